"""Send settlements to Kafka, a few of them broken: what a payment provider writes to a topic.

KAFKA_SERVERS=127.0.0.1:9092 python examples/refunds-kafka/send.py --rows 20000
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "refunds"))

import settlements
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "settlements"
PARTITIONS = 4


def make_topics(servers: str, topics: Mapping[str, int]) -> None:
    """Each with so many partitions. One that is there is left as it is."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for made in admin.create_topics([NewTopic(name, n) for name, n in topics.items()], operation_timeout=30).values():
        try:
            made.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def send(servers: str, inputs: Path) -> None:
    """Every line of these files, by the key of its settlement."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 2})
    for file in sorted(inputs.glob("*.json")):
        for line in file.read_text().splitlines():
            producer.produce(TOPIC, line, line[18:27])
            producer.poll(0)
        if producer.flush(60):
            sys.exit(f"{servers} does not take the settlements")


def main() -> None:
    parser = argparse.ArgumentParser(description="Send settlements to Kafka, a few of them broken.")
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    servers = os.environ.get("KAFKA_SERVERS") or parser.error("set KAFKA_SERVERS first: `make kafka` says where it is")
    make_topics(servers, {TOPIC: PARTITIONS})
    with tempfile.TemporaryDirectory() as made:
        settlements.make(Path(made), given.rows)
        send(servers, Path(made))
    sys.stdout.write(f"sent {given.rows:,} settlements to topic {TOPIC} at {servers}\n")


if __name__ == "__main__":
    main()
