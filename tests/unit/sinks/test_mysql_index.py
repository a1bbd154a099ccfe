"""By which unique index a row can meet the row of another key, without a server; test_mysql_upsert.py has them on one."""

import pytest

from pakka.sinks._mysql_index import UniqueIndex, other_keys


@pytest.mark.parametrize(
    ("index", "is_other"),
    [
        (UniqueIndex("t", "i", ["shop", "ID"]), False),
        (UniqueIndex("t", "i", ["id", "email", "Shop"], prefixes=["email"]), False),
        (UniqueIndex("t", "i", ["id", "shop"], has_expressions=True), False),
        (UniqueIndex("t", "i", ["id", "shop"], prefixes=["Shop"]), True),
        (UniqueIndex("t", "i", ["id"]), True),
        (UniqueIndex("t", "i", [], has_expressions=True), True),
        (UniqueIndex("t", "i", ["id"], has_expressions=True), True),
        (UniqueIndex("t", "i", ["id", "N"]), False),
        (UniqueIndex("t", "i", ["n"], has_expressions=True), False),
    ],
)
def test_an_index_is_of_another_key_unless_it_holds_the_key_or_a_column_that_is_never_alike(index, is_other):
    assert other_keys([index], ("id", "SHOP"), ("n",)) == (["i"] if is_other else [])
