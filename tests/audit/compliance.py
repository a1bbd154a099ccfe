"""`python -m tests.audit.compliance`: start the servers that sinks need, audit all sinks, and write the compliance table."""

from collections.abc import Iterator
from contextlib import contextmanager

from pakka.audit.table import write
from tests.docs.pages import ROOT
from tests.fixtures import kafka, mysql, postgres

PAGE = ROOT / "docs" / "reference" / "sinks.md"


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    """A server of each kind, by the name of its sink."""
    with (
        postgres.running_server(postgres.need_binaries()) as of_postgres,
        mysql.running_server(mysql.need_binaries()) as of_mysql,
        kafka.running_kafka() as of_kafka,
    ):
        yield {
            "postgres": of_postgres.create_database(),
            "mysql": of_mysql.create_database(),
            "kafka": f"kafka://{of_kafka.bootstrap}",
        }


if __name__ == "__main__":
    with servers() as urls:
        write(PAGE, urls)
