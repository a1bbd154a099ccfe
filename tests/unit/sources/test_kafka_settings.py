"""One way to write how to get into a cluster, for two clients."""

import pytest

from pakka.errors import ConfigError
from pakka.kafka_cluster import Topic
from pakka.sources._kafka_settings import consumer_options, split
from pakka.sources.kafka import KafkaSource


def options(**settings) -> dict[str, str]:
    return consumer_options(
        "source kafka", *split("source kafka", {n.replace("_", "."): v for n, v in settings.items()})
    )


def test_only_what_is_committed_is_read():
    assert options() == {"kafka.isolation.level": "read_committed"}
    with pytest.raises(ConfigError, match="aborted transactions would be delivered"):
        split("source kafka", {"kafka.isolation.level": "read_uncommitted"})
    assert split("source kafka", {"kafka.isolation.level": "read_committed"}) == ({}, {})


def test_a_password_becomes_a_login_of_the_consumer():
    made = options(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="u", sasl_password='a"b\\c'
    )
    assert made["kafka.security.protocol"] == "SASL_SSL"
    assert made["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert made["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="a\\"b\\\\c";'
    )
    assert "kafka.sasl.password" not in made


def test_a_password_without_a_mechanism_is_refused():
    with pytest.raises(ConfigError, match=r"`sasl.mechanism` is `GSSAPI`"):
        options(sasl_mechanism="GSSAPI", sasl_username="u", sasl_password="p")


def test_certificates_travel_as_text_because_executors_have_other_disks(tmp_path):
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"-----{name}-----")
    made = options(
        ssl_ca_location=str(tmp_path / "ca"),
        ssl_certificate_location=str(tmp_path / "certificate"),
        ssl_key_location=str(tmp_path / "key"),
        ssl_endpoint_identification_algorithm="none",
    )
    assert made["kafka.ssl.truststore.type"] == made["kafka.ssl.keystore.type"] == "PEM"
    assert made["kafka.ssl.truststore.certificates"] == "-----ca-----"
    assert made["kafka.ssl.keystore.certificate.chain"] == "-----certificate-----"
    assert made["kafka.ssl.keystore.key"] == "-----key-----"
    assert made["kafka.ssl.endpoint.identification.algorithm"] == ""
    with pytest.raises(ConfigError, match=r"`ssl.ca.location` .*missing cannot be read"):
        options(ssl_ca_location=str(tmp_path / "missing"))


def test_what_the_consumer_calls_by_another_name_is_given_by_that_name():
    made = options(socket_timeout_ms=5000, fetch_wait_max_ms=100, client_id="x", check_crcs=True)
    assert made == {
        "kafka.request.timeout.ms": "5000",
        "kafka.fetch.max.wait.ms": "100",
        "kafka.client.id": "x",
        "kafka.check.crcs": "true",
        "kafka.isolation.level": "read_committed",
    }


def test_the_consumers_own_settings_go_to_it_alone():
    ours, own = split("source kafka", {"security.protocol": "PLAINTEXT", "kafka.max.poll.records": 7})
    assert (ours, own) == ({"security.protocol": "PLAINTEXT"}, {"kafka.max.poll.records": "7"})
    with pytest.raises(ConfigError, match=r"`socket.nagle.disable` is a setting of librdkafka"):
        split("source kafka", {"socket.nagle.disable": True})


@pytest.mark.parametrize(
    "name", ["kafka.group.id", "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.bootstrap.servers"]
)
def test_what_would_break_the_promise_may_not_be_set(name):
    with pytest.raises(ConfigError, match=f"may not have `{name}`"):
        KafkaSource("a:1", "t", schema="id INT", settings={name: "x"})


def test_no_secret_is_shown():
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "hush",
    }
    source = KafkaSource("a:1,b:2", ("t", "u"), schema="id INT", settings=settings)
    assert "hush" not in repr(source) + source.describe() + source.replayable().because + repr(source.address)
    assert source.describe() == "topics t, u of kafka://a:1,b:2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one of `topics` and `pattern`"),
        ({"topics": "t", "pattern": "t.*"}, "one of `topics` and `pattern`"),
        ({"topics": "t"}, "format `json` needs a `schema`"),
        ({"topics": "t", "format": "raw", "schema": "id INT"}, "has no use for a `schema`"),
        ({"topics": "t", "schema": "id INT", "max_offsets_per_epoch": 0}, "at least 1"),
        ({"pattern": "(", "schema": "id INT"}, "not a regular expression"),
        # Java's alone.
        ({"pattern": r"\Qa.b\E", "schema": "id INT"}, "not a regular expression that Python reads too: bad escape"),
        ({"pattern": r"\p{L}+", "schema": "id INT"}, "not a regular expression that Python reads too: bad escape"),
        ({"pattern": "(?<n>a)", "schema": "id INT"}, "not a regular expression that Python reads too"),
        # Read differently.
        ({"pattern": "a[a-z&&[^q]]", "schema": "id INT"}, r"has `&&` inside of `\[\.\.\.\]`"),
        ({"pattern": "a[a-c[x-z]]", "schema": "id INT"}, r"has `\[` inside"),
        ({"pattern": "[^][a]", "schema": "id INT"}, r"has `\[` inside"),
        ({"topics": "t", "schema": "id INT", "start": "yesterday"}, "start 'yesterday' is not understood"),
        (
            {"topics": "t", "schema": "id INT", "start": {"t": {"x": 1}}},
            "partition `x` of topic `t`, which is no number",
        ),
        # What Spark takes for the end and the beginning, and what it fails of.
        *(
            ({"topics": "t", "schema": "id INT", "start": {"t": {"0": 1, "1": odd}}}, words)
            for odd, words in (
                (-1, "offset -1 of topic `t` partition 1; an offset is a whole number from 0 on"),
                (-7, "offset -7"),
                (1.5, "offset 1.5"),
                ("3", "offset '3'"),
                (True, "offset True"),
                (None, "offset None"),
            )
        ),
        ({"topics": "t", "schema": "id INT", "servers": "nowhere"}, "is not a server"),
        ({"topics": "t", "schema": "id INT", "settings": {"security.protocol": "x"}}, "settings are not accepted"),
        ({"topics": "t", "schema": "id INT", "settings": {"sasl.username": "u"}}, "`sasl.mechanism` is ``"),
    ],
)
def test_a_source_that_cannot_work_is_refused_before_anything_is_asked(options, words):
    with pytest.raises(ConfigError, match=words):
        KafkaSource(**{"servers": "a:1", **options})


@pytest.mark.parametrize("pattern", ["a&&b", r"[a\[]x", "[]a]x[^]b]", r"\[[a-z&]", "t-(a|b)?[0-9]{2}.*"])
def test_a_pattern_that_both_languages_read_alike_is_taken(pattern):
    assert KafkaSource("a:1", pattern=pattern, schema="id INT").pattern == pattern


def test_a_start_that_names_a_partition_which_the_topic_lacks_is_refused():
    topics = {"t": Topic("t", "id-1", (0, 1), 1)}
    start = {"t": {"1": 7}}
    made = KafkaSource("a:1", "t", schema="id INT", start=start)._start(topics)
    assert made == {"startingOffsets": '{"t": {"0": -2, "1": 7}}'}
    with pytest.raises(ConfigError, match="`start` names partition 2 of topic `t`, which has 2 partitions"):
        KafkaSource("a:1", "t", schema="id INT", start={"t": {"1": 7, "2": 7}})._start(topics)
