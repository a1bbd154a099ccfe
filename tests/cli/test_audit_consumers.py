"""`pakka audit --consumers` with settings files: what is against exactly-once is named in every form of file and of report."""

import json
import socket
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.usefixtures("current_directory")

RIGHT = {
    "group.id": "refunds",
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "transactional.id": "refunds-writer-0",
    "enable.idempotence": "true",
    "acks": "all",
    "max.in.flight.requests.per.connection": "5",
    "sasl.jaas.config": 'PlainLoginModule required password="hunter22";',
}


@pytest.fixture
def write(current_directory):
    def write(text, name="client.properties"):
        (current_directory / name).write_text(text)
        return name

    return write


@pytest.fixture
def told(pakka, write):
    """The settings that were found in a file, with what is not fine."""

    def told(settings, name="client.properties"):
        text = settings if isinstance(settings, str) else "".join(f"{k}={v}\n" for k, v in settings.items())
        result = pakka("audit", "--consumers", write(text, name), "--json")
        report = json.loads(result.stdout)
        weak = [f for f in report["settings"] if f["severity"] != "fine"]
        assert all(f["fix"] for f in weak)
        assert result.exit_code == (1 if any(f["severity"] == "breaks" for f in weak) else 0)
        assert "hunter22" not in result.stdout + result.stderr
        return {f["name"].removesuffix(f" in {name}"): (f["value"], f["severity"]) for f in weak}

    return told


def test_a_file_as_it_should_be_is_left_in_peace(told):
    assert told(RIGHT) == {}


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("isolation.level", "read_uncommitted", "breaks"),
        ("enable.auto.commit", "true", "breaks"),
        ("auto.offset.reset", "latest", "warns"),
        ("enable.idempotence", "false", "breaks"),
        ("acks", "1", "breaks"),
        ("acks", "0", "breaks"),
        ("max.in.flight.requests.per.connection", "6", "breaks"),
        ("transactional.id", "writer-6f1c2e0a-9d3b-4b7e-8a55-0c1d2e3f4a5b", "breaks"),
        ("transactional.id", "writer-${random.uuid}", "breaks"),
        ("transactional.id", "writer-${HOSTNAME}", "breaks"),
        ("transactional.id", "writer-$POD_NAME", "breaks"),
        ("transactional.id", "writer-%(pid)s", "breaks"),
        ("transactional.id", f"writer-{socket.gethostname()}-host", "breaks"),
    ],
)
def test_what_is_set_against_exactly_once_is_named(told, name, value, severity):
    assert told({**RIGHT, name: value}) == {name: (value, severity)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation.level", "READ_COMMITTED"),
        ("enable.auto.commit", "False"),
        ("auto.offset.reset", "Earliest"),
        ("enable.idempotence", "True"),
        ("acks", "ALL"),
    ],
)
def test_upper_and_lower_case_make_no_difference(told, name, value):
    assert told({**RIGHT, name: value}) == {}


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("isolation.level", "read_uncommitted", "breaks"),
        ("enable.auto.commit", "true", "breaks"),
        ("auto.offset.reset", "latest", "warns"),
        ("enable.idempotence", "false", "breaks"),
        ("acks", "1", "breaks"),
        ("max.in.flight.requests.per.connection", "6", "breaks"),
        ("transactional.id", "writer-${random.uuid}", "breaks"),
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_of_several_clients_in_a_file_the_worst_is_told_with_its_place(told, name, value, severity, place):
    other = {f"other.{name}": value}
    told_of = told({**other, **RIGHT} if place == "before" else {**RIGHT, **other})
    assert told_of == {name: (f"{value} of other.{name}", severity)}


@pytest.mark.parametrize("id", ["orders-outbox-1", "paid", "hosting-refunds", "rapid-7"])
def test_an_id_that_a_program_has_for_ever_is_fine(told, id):
    assert told({**RIGHT, "transactional.id": id}) == {}


def test_what_is_not_set_counts_as_what_clients_make_of_it(told):
    assert told({"group.id": "refunds"}) == {
        "isolation.level": ("not set, which is read_uncommitted", "breaks"),
        "enable.auto.commit": ("not set, which is true", "breaks"),
        "auto.offset.reset": ("not set, which is latest", "warns"),
    }
    assert "isolation.level" not in told({"group.id": "refunds", "sasl.username": "ana"})
    assert told({"linger.ms": "5"}) == {"enable.idempotence": ("not set", "warns")}


BAD = {"isolation.level": ("read_uncommitted", "breaks"), "enable.auto.commit": ("true", "breaks")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.properties",
            "# mine\n! too\ngroup.id : g\nisolation.level = \\\n   read_uncommitted\nenable.auto.commit true\n",
        ),
        (
            ".env",
            "export KAFKA_GROUP_ID=g\nKAFKA_ISOLATION_LEVEL='read_uncommitted'\nKAFKA_ENABLE_AUTO_COMMIT=\"true\"\n",
        ),
        ("a.json", '{"group_id": "g", "isolation_level": "read_uncommitted", "enable_auto_commit": true}'),
        ("a.json", '{"consumer": {"groupId": "g", "isolationLevel": "read_uncommitted", "enableAutoCommit": true}}'),
        (
            "a.yaml",
            "spring:\n  kafka:\n    consumer:\n      group-id: g\n      enable-auto-commit: true\n"
            "      properties:\n        isolation.level: read_uncommitted\n",
        ),
    ],
)
def test_every_form_of_file_is_read(told, name, text):
    assert {k: v for k, v in told(text, name).items() if k in BAD} == BAD


def test_a_producer_is_known_by_the_prefix_that_spring_has_for_its_ids(told):
    assert told("spring:\n  kafka:\n    producer:\n      transaction-id-prefix: refunds-\n", "a.yaml") == {}
    wrong = told({"spring.kafka.producer.transaction-id-prefix": "tx-${random.uuid}-"})
    assert wrong == {"transactional.id": ("tx-${random.uuid}-", "breaks")}


KAFKAJS = {
    "brokers": ["broker1:9092"],
    "consumer": {"groupId": "refunds"},
    "subscribe": {"fromBeginning": True},
    "run": {"autoCommit": False},
    "producer": {"transactionalId": "refunds-writer-0", "idempotent": True, "maxInFlightRequests": 1},
}


def test_kafkajs_reads_what_is_committed_unless_it_is_told_otherwise(told):
    assert told(json.dumps(KAFKAJS), "a.json") == {}
    consumer = {"groupId": "refunds", "readUncommitted": False}
    assert told(json.dumps({**KAFKAJS, "consumer": consumer}), "a.json") == {}


def test_what_kafkajs_has_set_wrong_is_mended_in_its_own_words(pakka, write):
    wrong = {
        "consumer": {"groupId": "refunds", "readUncommitted": True},
        "run": {"autoCommit": True},
        "producer": {"idempotent": False, "maxInFlightRequests": 10},
    }
    report = json.loads(pakka("audit", "--consumers", write(json.dumps(wrong), "a.json"), "--json").stdout)
    fixes = {f["name"]: f["fix"] for f in report["settings"] if f["severity"] != "fine"}
    assert fixes == {
        "isolation.level in a.json": "readUncommitted: false",
        "enable.auto.commit in a.json": "autoCommit: false, and commit offsets with the result",
        "auto.offset.reset in a.json": "fromBeginning: true",
        "enable.idempotence in a.json": "idempotent: true",
        "max.in.flight.requests.per.connection in a.json": "maxInFlightRequests: 5",
    }


def test_what_a_database_commits_by_itself_is_not_taken_for_kafkajs(told):
    java = {"group.id": "refunds", "enable.auto.commit": False, "auto.offset.reset": "none"}
    text = json.dumps({"kafka": {**java, "bootstrap.servers": "b:9092"}, "jdbc": {"autoCommit": True}})
    assert told(text, "a.json") == {"isolation.level": ("not set, which is read_uncommitted", "breaks")}


def test_people_get_a_table_and_the_exit_code_1(pakka, write):
    result = pakka(
        "audit", "--consumers", write("group.id=g\nisolation.level=read_uncommitted\nenable.auto.commit=false\n")
    )
    first, _, head, *rows = result.stdout.splitlines()
    assert result.exit_code == 1
    assert first.startswith("client.properties is set up against exactly-once, in ")
    assert head.split("  ")[0] == "setting"
    assert "isolation.level in client.properties     read_uncommitted" in rows[0]
    assert rows[0].endswith("isolation.level=read_committed")


def test_builds_and_pages_get_their_forms(pakka, write):
    name = write("acks=1\nenable.idempotence=true\n")
    suite = ElementTree.fromstring(pakka("audit", "--consumers", name, "--format", "junit").stdout.encode())
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    page = pakka("audit", "--consumers", name, "--format", "markdown").stdout.splitlines()
    assert page[:4] == ["## client.properties", "", "It is set up against exactly-once.", ""]
    assert page[4] == "| setting | found | severity | why it matters | what mends it |"


def test_several_files_are_one_report(pakka, write):
    one, other = write("acks=1\n", "a.properties"), write("acks=0\n", "b.properties")
    report = json.loads(pakka("audit", "--consumers", one, other, "--json").stdout)
    assert report["failed"] == ["acks in a.properties", "acks in b.properties"]


WRONG = {
    ("--consumers",): "`--consumers` needs something to look at",
    ("--consumers", "refunds"): "`refunds` is no file, and taken for a consumer group: its cluster is needed",
    ("--consumers", "gone.properties"): "gone.properties cannot be read: No such file or directory",
    ("--consumers", "empty.properties"): "empty.properties has nothing of a Kafka consumer or producer",
    ("--consumers", "bad.json"): "bad.json is not JSON: it cannot be read from line 2 on",
    ("--consumers", "bad.yaml"): "bad.yaml is not YAML: it cannot be read from line 2 on",
    ("--consumers", "list.yaml"): "list.yaml holds no settings: names with values are needed",
    ("--consumers", "binary.properties"): "binary.properties cannot be read: it is not text",
    ("--consumers", "empty.properties", "--require", "exactly-once"): "`--require` is for sinks",
    ("--consumers", "x", "--command-config", "y"): "`--command-config` says how to get into a cluster",
    ("--consumers", "g", "--servers", "nowhere"): "--servers: 'nowhere' is not a server: host and port are needed",
    ("--consumers", "g", "--servers", "ana:hunter22@h:1"): "--servers: a server is host and port, without user",
    ("memory:", "--servers", "h:1"): "`--servers` and `--command-config` are for `--consumers`",
    (): "one TARGET is needed, and 0 were given",
    ("memory:", "memory:"): "one TARGET is needed, and 2 were given",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_use_is_told(pakka, write, current_directory, words):
    write("some.thing=1\n", "empty.properties")
    write('{"acks": 1,\n"password": hunter22}', "bad.json")
    write("acks: 1\npassword: ]hunter22\n", "bad.yaml")
    write("- acks\n", "list.yaml")
    (current_directory / "binary.properties").write_bytes(b"\xff\xfe\x00acks=1")
    result = pakka("audit", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {WRONG[words]}")
    assert "\nhint: " in result.stderr
    assert "hunter22" not in result.stderr
