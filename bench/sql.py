"""What the questions about SQL servers share: servers set up as for work, JDBC as a careful user would tune it, and one table."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from bench import engine
from pakka.sinks._postgres_copy import CopyStream
from tests.fixtures import mysql, postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "orders"
COLUMNS = ("id", "customer_id", "qty", "amount", "tax", "created_at", "sku", "note")
PARTITIONS = 2
"""Connections that rows go through at once, on every side."""
POSTGRES = {
    "shared_buffers": "1GB",
    # A checkpoint falls into no run: each begins with one.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    # It begins when it likes, in the middle of one side or of the other.
    "autovacuum": "off",
}
MARIADB = {"innodb_buffer_pool_size": "1G", "innodb_log_file_size": "1G"}
_POSTGRES_TYPES = ("bigint", "int", "int", "numeric(12,2)", "numeric(10,4)", "timestamptz", "text", "text")
_MYSQL_TYPES = ("bigint", "int", "int", "decimal(12,2)", "decimal(10,4)", "datetime(6)", "varchar(64)", "varchar(255)")
_COPIED = pa.schema(
    [
        ("id", pa.int64()),
        ("customer_id", pa.int32()),
        ("qty", pa.int32()),
        ("amount", pa.decimal128(12, 2)),
        ("tax", pa.decimal128(10, 4)),
        ("created_at", pa.timestamp("us")),
        ("sku", pa.string()),
        ("note", pa.string()),
    ]
)
NO_POSTGRES = "No PostgreSQL server on this machine (`make setup-postgres`), so it was not asked."
NO_MARIADB = "No MariaDB server on this machine (`make setup-mariadb`), so it was not asked."
_JAR_PLACE = Path("/usr/share/java")


@dataclass(frozen=True)
class Jdbc:
    """A JDBC driver, and the options that make it fast."""

    scheme: str
    driver: str
    jars: str
    package: str
    options: str

    @property
    def is_installed(self) -> bool:
        return any(_JAR_PLACE.glob(self.jars))

    def is_ready(self, spark: SparkSession) -> bool:
        """Let Spark load the driver: from a jar of Debian's, or because it was started with `--packages`."""
        return engine.has_class(spark, self.driver, sorted(_JAR_PLACE.glob(self.jars))[-1:])

    @property
    def missing(self) -> str:
        return f"No JDBC driver {self.driver} (`apt-get install {self.package}`), so Spark's JDBC writer was not asked."

    def append(self, batch: DataFrame, url: str, table: str = TABLE, mode: str = "append") -> None:
        """As a user writes it in foreachBatch: in as many connections as ours, ten thousand rows a statement."""
        parts = urlsplit(url)
        writer = batch.coalesce(PARTITIONS).write.mode(mode).option("batchsize", 10_000)
        # What is there is emptied, not made anew with other types.
        writer = writer.option("truncate", "true").option("driver", self.driver)
        login = {"user": parts.username or "", "password": unquote(parts.password or "")}
        address = f"jdbc:{self.scheme}://{parts.hostname}:{parts.port}{parts.path}?{self.options}"
        writer.jdbc(address, table, properties=login)


POSTGRES_JDBC = Jdbc(
    "postgresql",
    "org.postgresql.Driver",
    "postgresql.jar",
    "libpostgresql-jdbc-java",
    "reWriteBatchedInserts=true",
)
MARIADB_JDBC = Jdbc(
    # Spark has a dialect for this name only, and the driver takes it for its own.
    "mysql",
    "org.mariadb.jdbc.Driver",
    "mariadb-java-client.jar",
    "libmariadb-java",
    "rewriteBatchedStatements=true&permitMysqlScheme",
)


@contextmanager
def postgres_server() -> Iterator[postgres.PostgresServer | None]:
    """A server of the benchmark's own; None where there are no programs for it."""
    binaries = postgres.find_binaries()
    if binaries is None:
        yield None
        return
    with postgres.running_server(binaries, **POSTGRES) as server:
        yield server


@contextmanager
def mariadb_server() -> Iterator[mysql.MysqlServer | None]:
    """A server of the benchmark's own; None where there are no programs for it."""
    binaries = mysql.find_binaries()
    if binaries is None:
        yield None
        return
    with mysql.running_server(binaries, **MARIADB) as server:
        yield server


@contextmanager
def postgres_database(server: postgres.PostgresServer, key: str = "") -> Iterator[str]:
    """A new database with an empty table, after a checkpoint: no run pays for what another has left to the disk."""
    url = server.create_database()
    try:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(_create(_POSTGRES_TYPES, key))
            db.execute("CHECKPOINT")
        yield url
    finally:
        server.drop_database(url)


def fill_postgres(url: str, count: int) -> None:
    """Rows as they might have been there before."""
    values = (
        "n, n % 1000003, n % 97, n % 10000000 / 100.0, n % 100000 / 10000.0, to_timestamp(1700000000 + n), "
        "'sku-' || n % 50021, 'order note ' || md5(n::text)"
    )
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"INSERT INTO {TABLE} SELECT {values} FROM generate_series(0, {count - 1}) AS n")
        db.execute(f"VACUUM ANALYZE {TABLE}")


@contextmanager
def postgres_twin(server: postgres.PostgresServer, template: str) -> Iterator[str]:
    """A new database with the same tables and rows as another."""
    name = f"twin_{uuid.uuid4().hex[:12]}"
    of = urlsplit(template).path.lstrip("/")
    with psycopg.connect(server.url("postgres"), autocommit=True) as db:
        # Since PostgreSQL 15 the default would write all of it to the log, too.
        strategy = "STRATEGY file_copy" if db.info.server_version >= 150_000 else ""
        db.execute(f"CREATE DATABASE {name} TEMPLATE {of} {strategy}")
        db.execute("CHECKPOINT")
    url = server.url(name)
    try:
        yield url
    finally:
        server.drop_database(url)


@contextmanager
def mariadb_database(server: mysql.MysqlServer) -> Iterator[str]:
    """A new database with an empty table."""
    url = server.create_database()
    try:
        mysql.query(url, _create(_MYSQL_TYPES, ""))
        yield url
    finally:
        server.drop_database(url)


def _create(types: tuple[str, ...], key: str) -> str:
    columns = [f"{name} {kind}" for name, kind in zip(COLUMNS, types, strict=True)]
    return f"CREATE TABLE {TABLE} ({', '.join(columns)}{f', PRIMARY KEY ({key})' if key else ''})"


def postgres_sum(url: str) -> tuple[int, str]:
    """How many rows there are, and a sum over all that is in them, whatever their order."""
    with psycopg.connect(url) as db:
        found = db.execute(f"SELECT count(*), sum(hashtextextended({TABLE}::text, 0))::text FROM {TABLE}").fetchone()
    assert found is not None
    return int(found[0]), str(found[1])


def mariadb_sum(url: str) -> tuple[int, str]:
    """How many rows there are, and a sum over all that is in them, whatever their order."""
    ((count, total),) = mysql.query(
        url, f"SELECT count(*), CAST(sum(crc32(concat_ws('|', {', '.join(COLUMNS)}))) AS char) FROM {TABLE}"
    )
    return int(count), str(total)


def find_psql(server: postgres.PostgresServer) -> str | None:
    return shutil.which("psql", path=str(server.binaries)) or shutil.which("psql")


def copy_files(parquet: Path, place: Path) -> list[Path]:
    """The rows of Parquet files as binary COPY has them, in as many files as there are connections."""
    files = [place / f"rows-{n}.copy" for n in range(PARTITIONS)]
    parts = sorted(parquet.glob("*.parquet"))
    for number, path in enumerate(files):
        with open(path, "wb") as file:
            stream: CopyStream | None = None
            for part in parts[number::PARTITIONS]:
                for batch in pq.read_table(part).cast(_COPIED).to_batches():
                    if stream is None:
                        stream = CopyStream(_COPIED)
                        file.write(stream.start())
                    file.write(stream.write(batch))
            file.write(stream.finish() if stream else b"")
    return files


def psql_copy(psql: str, url: str, files: list[Path]) -> None:
    """All files at once, a connection each."""
    commands = [[psql, url, "-qc", f"\\copy {TABLE} FROM '{path}' (FORMAT binary)"] for path in files]
    running = [subprocess.Popen(command) for command in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError(f"psql ended with {codes}")
