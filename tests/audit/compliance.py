"""`python -m tests.audit.compliance`: start the servers that sinks need, audit all sinks, and write the compliance table."""

from collections.abc import Iterator
from contextlib import contextmanager

from pakka.audit.run import audit
from pakka.audit.table import Refusals, write
from pakka.errors import SchemaError
from pakka.sinks.mysql import MysqlSink
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


def refused(url: str) -> Refusals:
    """What an audit says of a real MyISAM table, which is called `shop.refunds` on the page."""
    mysql.query(url, "CREATE TABLE refunds (id bigint) ENGINE=MyISAM")
    sink = MysqlSink(url, "refunds")
    try:
        audit(sink, "mysql")
    except SchemaError as error:
        told = error.message.replace(f" in {sink.address}", ""), error.hint
        # Without the quotes of the name: on the page the statement stands in such ones.
        message, hint = (
            words.replace(sink.where.sql, "shop.refunds").replace(str(sink.where), "shop.refunds") for words in told
        )
        return {"mysql, MyISAM table": (message, hint)}
    finally:
        mysql.query(url, "DROP TABLE refunds")
    raise AssertionError("a table without transactions was not refused")


if __name__ == "__main__":
    with servers() as urls:
        write(PAGE, urls, refused(urls["mysql"]))
