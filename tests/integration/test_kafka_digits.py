"""No JSON value makes Spark write out the zeros of an exponent, or read a text of a million digits, or take a comma out of a decimal, and what only looks so is read as ever."""

import json
import random
import re

import pytest

import pakka
from pakka.sources import _kafka_decode as decode
from pakka.sources._kafka_digits import without_endless
from pakka.sources.kafka import KafkaSource
from tests.integration.conftest import need_connector
from tests.integration.kafka_kit import Clients

pytestmark = pytest.mark.spark

SCHEMA = (
    "id STRING, a DECIMAL(10,2), b ARRAY<STRUCT<c: DECIMAL(38,2), t: STRING>>, d DOUBLE, m MAP<STRING, DECIMAL(5,1)>"
)
# 500 million zeros: whoever writes them out is not done in ten minutes, and the test fails by its time.
HUGE = "500000000"
ENDLESS = [
    '{"a":1E%s}',
    '{"a":-1.5e+%s}',
    '{"a":1E-%s}',
    '{"a":0E%s}',
    '{"a":1E0000%s}',
    '{"a":1E%s\n}',
    '{"a":1E%s ,"id":"1"}',
    '{"a":"1E%s"}',
    '{"a":"+1E%s" }',
    '{"a":".1E%s"}',
    '{"a":"1.E%s"}',
    '{"a":"1E5,00,000,000"}',
    '{"a":"1E,+500000000"}',
    '{"a":"1E5,0,0,0,0,0,0,0,0"}',
    # Letters, signs and digits by their numbers, and digits of others.
    '{"a":"1\\u0045%s"}',
    '{"a":"1\\u0065%s"}',
    '{"a":"\\u0031E%s"}',
    '{"a":"1\\u002EE%s"}',
    '{"a":"1\\u002CE\\u002c\\u002b%s"}',
    '{"a":"1E\\u0035\\u003000000000"}',
    '{"a":"1E٥٠٠٠٠٠٠٠٠"}',
    '{"a":"1E\\u0665\\u0660\\u0660\\u0660\\u0660\\u0660\\u0660\\u0660\\u0660"}',
    '{"\\u0061":1E%s}',
    # Spark takes these quotes, too.
    "{'a':'1E%s'}",
    # Where the last one counts, and where it is not one document.
    '{"a":1E%s,"a":1}',
    '{"a":"1E%s","a":"1"}',
    '{"m":{"x":1E%s,"x":1}}',
    '{"a":1},{"a":1E%s}',
    '{"a":1}],"items":[{"a":1E%s}',
    '{"a":1E%s',
    '{"a":1E%s,',
    '{"a":1E%s}}',
    '{"a":"1E%s":',
    '{"a":1E%sx}',
    '{"a":1E%s"}',
    '{"a":1E%s.5}',
    '{"a":1E%se5}',
    '{"b":[{"c":1E%s{}]}',
    # Deeper down, and where none is expected.
    '{"b":[{"c":1},{"c":1E%s}]}',
    '{"b":[{"c":1E%s,"t":1.5}]}',
    '{"m":{"x":1E%s}}',
    '[{"a":1E%s}]',
    '{"id":"12e34567","a":1E-%s}',
    # As far as Java counts, and farther.
    '{"a":1E2147483647}',
    '{"a":"1E-2147483647"}',
    # A million digits.
    '{"a":"%s"}' % ("7" * 900_000),
    '{"a":"-0.%s"}' % ("7" * 900_000),
    '{"a":"%s"}' % ("7," * 450_000),
    '{"a":"%s"}' % ("\\u0037" * 150_000),
    # What the look itself could be held up by: much of what it passes over.
    '{"a":"1E%s500000000"}' % ("," * 900_000),
    '{"a":"1E%s500000000"}' % ("\\u002c" * 150_000),
]
COMMAS = [
    '{"a":"1,23"}',
    '{"a":"1,234.5"}',
    '{"a":",1"}',
    '{"a":"1,"}',
    '{"a":"-1,5e+3"}',
    '{"a":\n"1,23"}',
    '{"a":"1\\u002c23"}',
    '{"a":"\\u0031\\u002C23"}',
    '{"a":"٥,٥"}',
    "{'a':'1,23'}",
    '{"b":[{"c":1,"t":"x"},{"c":"1,2"}]}',
    '{"m":{"1,2":1.5,"x":"1,5"}}',
    '{"a":"1,23","a":"1"}',
    '{"a":"1E%s5"}' % ("," * 900_000),
    '{"a":"1E%s5"}' % ("\\u002C" * 150_000),
]
REPEATED = [
    "1,",
    ",'1",
    ",'1,",
    ",'1\\u002c",
    "1\\u0045",
    "1e",
    "1e1,",
    "e\\u0031",
    "1e12345 ",
    ", 1e1",
    ",",
    ".",
    "-1",
    "\\\\",
    '\\"',
    "'1",
    "\\u0045",
]
GOOD = [
    '{"a":1.5}',
    '{"a":1.5E2}',
    '{"a":"1E3"}',
    '{"id":"12e34567","a":0.0}',
    '{"id":"12e34567","a":1}',
    '{"id":"a 12e34567 b","a":0.0}',
    '{"id":"12e34567, and so","a":1.5e1}',
    '{"id":"say \\"12e34567\\"","a":1}',
    '{"id":"3e12345","b":[{"c":12345678901234567890123456.25,"t":"9e99999"}]}',
    '{"id":"3e12345","m":{"3e12345":1.5}}',
    '{"id":1E50000,"a":2}',
    '{"d":1E50000,"a":1}',
    '{"d":1e5,"a":1}',
    '{"id":"%s","a":1}' % ("7" * 5000),
    json.dumps({"id": "中" * 2000, "a": 2}),
    '{"id":"1,23","a":1.5}',
    '{"id":"1,23","a":"1.5","b":[{"c":"2","t":"1,2"},{"c":"3"}]}',
    '{"m":{"1,2":"1.5", "3" : "4"},"id":",","a":"1.5"}',
    *('{"id":"%s","a":1}' % (piece * (900_000 // len(piece))) for piece in REPEATED),
]


def documents(spark, texts):
    rows = [(None, bytearray(text.encode()), "t", 0, i, None) for i, text in enumerate(texts)]
    columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    return spark.createDataFrame(rows, columns)


def kept(spark, texts, schema) -> list[bool]:
    """Which documents are let through to Spark's reader."""
    from pyspark.sql.functions import expr
    from pyspark.sql.types import StructType

    value = expr("CAST(value AS STRING)")
    finite = without_endless(value, value, StructType.fromDDL(schema))
    rows = documents(spark, texts).select("offset", finite.isNotNull().alias("kept")).collect()
    return [row.kept for row in sorted(rows, key=lambda row: row.offset)]


def decoded(spark, texts):
    from pyspark.sql.types import StructType

    made, struct, is_bad = decode.from_json(documents(spark, texts), StructType.fromDDL(SCHEMA))
    rows = made.select("offset", struct.alias("row"), is_bad.alias("bad")).collect()
    return sorted(rows, key=lambda row: row.offset)


def test_what_would_hold_spark_is_no_good_and_is_not_read(spark):
    assert [row.bad for row in decoded(spark, [text.replace("%s", HUGE) for text in ENDLESS])] == [True] * len(ENDLESS)


def test_a_decimal_with_a_comma_is_no_good(spark):
    """Spark takes commas out, and makes 123 of 1,23."""
    assert [row.bad for row in decoded(spark, COMMAS)] == [True] * len(COMMAS)


def test_what_only_looks_so_is_read_as_without_the_look(spark, monkeypatch):
    found = decoded(spark, GOOD)
    monkeypatch.setattr(decode, "without_endless", lambda value, document, schema: document)
    assert found == decoded(spark, GOOD)
    assert not any(row.bad for row in found)


# Any text that Java takes for a number once its commas are gone, with what its exponent is.
JAVA = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?(\d+))?")
NUMBER = [
    ["", "+", "-"],
    ["1", "0.5", ".7", "2.", "٥"],
    ["e", "E"],
    ["", "+", "-"],
    ["5", "0", "٥٠"],
    ["0000", "77777", "٥٠٠٠"],
]
ANYTHING = ["1", "0", "e", ".", ",", "+", "x", " ", '"', "\\"]


def is_refused(text: str) -> bool:
    found = JAVA.fullmatch(text.replace(",", ""))
    return bool(found and ("," in text or len(found[1] or "") >= 5))


def written(chance: random.Random) -> str:
    """A number, or nearly one."""
    pieces = [chance.choice(each) for each in NUMBER]
    for _ in range(chance.choice([0, 0, 1, 2])):
        pieces.insert(chance.randrange(7), chance.choice(["", ",", *ANYTHING]))
    return "".join(pieces)


def quoted(chance: random.Random, text: str) -> str:
    """As JSON, with some characters by their numbers."""
    made = [f"\\u{ord(c):04{chance.choice('xX')}}" if c in '"\\' or chance.random() < 0.2 else c for c in text]
    return f'"{"".join(made)}"'


@pytest.mark.parametrize("seed", range(3))
def test_any_text_that_java_would_take_for_such_a_number_is_found(spark, seed):
    chance = random.Random(seed)
    texts = [written(chance) for _ in range(5000)]
    where = [chance.choice("ab") for _ in texts]
    values = [f'{{"id":{quoted(chance, t)},"{w}":{quoted(chance, t)}}}' for t, w in zip(texts, where, strict=True)]
    # Nothing is read in column b, which is a text.
    refused = [is_refused(t) and w == "a" for t, w in zip(texts, where, strict=True)]
    assert 500 < sum(refused) < 4000
    found = kept(spark, values, "id STRING, a DECIMAL(10,2), b STRING")
    missed = [v for v, bad, passed in zip(values, refused, found, strict=True) if bad and passed]
    assert missed == []
    # What is refused beyond that is no decimal either.
    lost = [t for t, bad, passed in zip(texts, refused, found, strict=True) if not bad and not passed]
    assert [t for t in lost if JAVA.fullmatch(t.replace(",", ""))] == []


@pytest.mark.kafka
def test_a_poison_pill_is_a_dead_letter_and_the_pipeline_goes_on(spark, here, kafka_server, kafka_topics, memory):
    need_connector()
    topic = kafka_topics.create("in")
    pills = [f'{{"id": 1, "amount": 1E{HUGE}}}', f'{{"id": 1, "amount": "{"7" * 900_000}"}}']
    Clients(kafka_server.bootstrap).send(topic, ['{"id": 0, "amount": 1.25}', *pills, '{"id": 2, "amount": "2.5"}'])
    source = KafkaSource(kafka_server.bootstrap, topic, schema="id BIGINT, amount DECIMAL(10,2)")
    pakka.run(pakka.Pipeline("refunds", source, {"out": memory["out"]}, dead_letters=memory["dead"]))
    assert memory.column("out", "id") == [0, 2]
    letters = [json.loads(row["row"]) for row in memory.rows("dead")]
    assert [(row["offset"], row["value"]) for row in sorted(letters, key=lambda row: row["offset"])] == [
        (1, pills[0]),
        (2, pills[1][:131_072]),
    ]
