"""Write the golden records that are missing: `python -m tests.conformance.record`, once, at a release.

One that is there is never written again: it stands for what users of that release have on their disks, and on their servers.
"""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pakka.testing.contract import Golden, record
from tests.conformance.harnesses import GOLDEN, HARNESSES, Shipped
from tests.conformance.kafka import Ground, KafkaHarness, PreparedKafkaHarness, ShardedKafkaHarness
from tests.conformance.mysql import MysqlHarness, SpooledMysqlHarness
from tests.conformance.on_server import OnServer
from tests.conformance.postgres import PostgresHarness, SpooledPostgresHarness
from tests.fixtures import mysql, postgres
from tests.fixtures.kafka import relayed_kafka

ON_SERVERS: dict[type[OnServer], Callable[[], AbstractContextManager[Any]]] = {
    PostgresHarness: lambda: postgres.running_server(postgres.need_binaries()),
    SpooledPostgresHarness: lambda: postgres.running_server(postgres.need_binaries()),
    MysqlHarness: lambda: mysql.running_server(mysql.need_binaries()),
    SpooledMysqlHarness: lambda: mysql.running_server(mysql.need_binaries()),
}


def main() -> None:
    for harness in HARNESSES.values():
        if is_missing(harness):
            write(harness)
    for on_server, running in ON_SERVERS.items():
        if is_missing(on_server):
            with running() as server:
                write_with_script(on_server, server)
    for on_kafka in filter(is_missing, (KafkaHarness, PreparedKafkaHarness, ShardedKafkaHarness)):
        with relayed_kafka() as (kafka, proxy), closing(Ground(kafka, proxy)) as ground:
            write_with_page(on_kafka, ground)


def is_missing(harness: type[Shipped]) -> bool:
    return not (GOLDEN / f"{harness.name}.json").exists()


def write(harness: type[Shipped]) -> Golden:
    with tempfile.TemporaryDirectory() as place:
        golden = record(harness(Path(place)), version("pakka"))
    golden.write(GOLDEN / f"{harness.name}.json")
    print(f"wrote {harness.name}")
    return golden


def write_with_script(harness: type[OnServer], on: Any) -> None:
    tables: list[str] = []

    class Watched(harness):  # type: ignore[misc,valid-type]
        server = on

        def close(self) -> None:
            tables.extend(self.tables())
            super().close()

    golden = write(Watched)
    script = Watched.script_of(golden, tables)
    (GOLDEN / f"{harness.name}.sql").write_text(script)


def write_with_page(harness: type[KafkaHarness], on: Ground) -> None:
    class Grounded(harness):  # type: ignore[misc,valid-type]
        ground = on

    write(Grounded)
    with tempfile.TemporaryDirectory() as place:
        harness.golden_page().write_bytes(Grounded(Path(place)).page())


if __name__ == "__main__":
    main()
