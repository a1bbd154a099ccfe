"""What a server says of rows that it has taken is heard, whatever is asked of it in between."""

import pyarrow as pa
import pytest

from pakka.errors import SchemaError
from pakka.model.id import Binding
from pakka.sinks._columns import Place
from pakka.sinks._mysql_line import Done
from pakka.sinks._mysql_load import Loader, Server


class ForgetfulLine:
    """A server that has a warning for rows, and forgets it with the next thing it is asked, as servers may."""

    takes_bulk = is_open = True

    def __init__(self) -> None:
        self.said: list[str] = []

    def do(self, statement, values=()):
        self.said.append(str(statement[:12]))
        return Done(1, 0)

    def bulk(self, statement, types, packets):
        self.said.append("bulk")
        return Done(1, 1)

    def ask(self, statement, values=()):
        last, words = self.said[-1], statement.split("(")[0]
        self.said.append(words)
        if words == "SHOW WARNINGS LIMIT 3":
            return [("Note", 1265, "made rounder")] if last == "bulk" else []
        return [(1,)]


@pytest.mark.parametrize("turn", ["", "pakka.turn.x"])
def test_a_warning_is_asked_for_before_the_turn_is_given_back(turn):
    line = ForgetfulLine()
    place, server = Place(Binding("refunds", "out", ""), "db", "refund"), Server(True, (10, 11), True, 1 << 20)
    loader = Loader(place, line, server, "refund", turn)
    loader.write(pa.record_batch([pa.array([1])], names=["id"]))
    with pytest.raises(SchemaError, match="1 rows were sent and 1 were taken: made rounder"):
        loader.flush()
    locks = [words for words in line.said if words.endswith("_LOCK")]
    assert locks == (["SELECT GET_LOCK", "SELECT RELEASE_LOCK"] if turn else [])
