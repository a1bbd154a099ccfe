"""The pure values: ids, phases, counts, prepared records, guarantees and rules."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pakka import errors
from pakka.errors import BugError, ConfigError, PakkaError
from pakka.model.epoch import Count, Epoch, Origin
from pakka.model.guarantee import Guarantee, Level, Part
from pakka.model.id import Slot, check_name, nearest
from pakka.model.phase import MOVES, Phase, move
from pakka.model.prepared import Prepared, SlotReport, add_checksums, checksum_of, totals
from pakka.model.rule import Rule, literal, quoted

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", fullmatch=True)
numbers = st.integers(0, 2**40)
slots = st.builds(Slot, names, names, numbers, numbers, numbers, numbers)


@settings(deadline=None)
@given(slots)
def test_an_id_names_its_slot(slot):
    assert Slot.parse(str(slot)) == slot


@pytest.mark.parametrize(
    "text", ["", "pakka.a.b.1.2.3", "pakka.a.b.1.2.3.4.5", "other.a.b.1.2.3.4", "pakka.a.b.1.2.3.x"]
)
def test_what_is_not_our_id_is_left_alone(text):
    assert Slot.parse(text) is None


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../x", "a.b", "-a", "ä", 'a"b', "x" * 64, "a\n"])
def test_an_odd_name_is_refused_with_one_that_would_do(name):
    with pytest.raises(ConfigError, match="is not allowed") as error:
        check_name("pipeline", name)
    assert check_name("pipeline", error.value.hint.split("`")[1])


def test_the_nearest_name_is_offered():
    assert nearest("merchnat", ["merchant", "amount"]) == "did you mean `merchant`?"
    assert nearest("zzz", ["b", "a"]) == "there is `a`, `b`"


@settings(deadline=None)
@given(slots, numbers, st.integers(0, 2**64 - 1))
def test_a_prepared_record_survives_json(slot, rows, checksum):
    record = Prepared(slot, rows, checksum_of(checksum), {"files": [["a", 1]]})
    report = SlotReport(slot.number, (record,), Count(rows, rows), True, {17: rows})
    assert SlotReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_position_survives_json_and_does_not_make_another_epoch():
    bare = Epoch("p", 3, Origin("query", 3, "digest"))
    placed = Epoch("p", 3, Origin("query", 3, "digest", '{"kafka":{}}'))
    assert Epoch.from_json(json.loads(json.dumps(placed.to_json()))).origin.position == '{"kafka":{}}'
    assert (placed, hash(placed)) == (bare, hash(bare))


def test_an_epoch_without_a_position_is_written_as_it_was_before_there_were_any():
    before = {"pipeline": "p", "number": 3, "origin": {"query": "query", "batch": 3, "digest": "digest"}}
    assert Epoch.from_json(before).to_json() == before


def test_a_record_of_a_newer_pakka_is_left_alone():
    record = Prepared(Slot("p", "s", 1, 1, 0, 0), 0, checksum_of(0)).to_json()
    with pytest.raises(BugError, match="version 99"):
        Prepared.from_json({**record, "v": 99})


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.randoms())
def test_checksums_do_not_depend_on_order_or_split(hashes, random):
    whole = checksum_of(sum(hashes))
    random.shuffle(hashes)
    cut = len(hashes) // 2
    assert add_checksums([checksum_of(sum(hashes[:cut])), checksum_of(sum(hashes[cut:]))]) == whole


def test_totals_are_by_sink():
    records = [Prepared(Slot("p", s, 1, 1, n, 0), n + 1, checksum_of(n)) for s in "ab" for n in range(3)]
    assert totals(records) == {"a": (6, checksum_of(3)), "b": (6, checksum_of(3))}


def test_only_the_moves_of_the_table_are_allowed():
    for before in Phase:
        for after in Phase:
            if after in MOVES[before]:
                assert move("p", 1, before, after) is after
            else:
                with pytest.raises(BugError, match=f"from {before.value} to {after.value}"):
                    move("p", 1, before, after)


def test_nothing_leads_from_a_decision_back_to_abort():
    assert Phase.ABORTED not in MOVES[Phase.DECIDED] | MOVES[Phase.COMMITTED]


def test_counts_add_up_and_add():
    one = Count(5, 3, 1, 1, {"a": 1})
    assert one.adds_up
    assert one + Count(2, 0, 2, 0, {"a": 1, "b": 1}) == Count(7, 3, 3, 1, {"a": 2, "b": 1})
    assert not Count(5, 3, 1, 0).adds_up


def test_a_guarantee_is_as_good_as_its_weakest_part_and_says_which():
    parts = (Part("source", True, "files are kept"), Part("sink", False, "a terminal", "use parquet"))
    guarantee = Guarantee(parts)
    assert guarantee.level is Level.AT_LEAST_ONCE
    assert "NO  sink: a terminal (use parquet)" in guarantee.explain()
    assert Guarantee(parts[:1]).level is Level.EXACTLY_ONCE


@pytest.mark.parametrize(
    "kind", [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, PakkaError)]
)
def test_every_error_pickles_with_its_hint(kind):
    error = pickle.loads(pickle.dumps(kind("what happened", "what to do")))
    assert (type(error), error.message, error.hint) == (kind, "what happened", "what to do")
    assert str(error) == "what happened\n\nhint: what to do"


def test_names_and_values_never_reach_sql_unquoted():
    assert quoted("a`; DROP TABLE x") == "`a``; DROP TABLE x`"
    assert literal("it's \\ here") == "'it\\'s \\\\ here'"
    assert Rule.one_of("c", ["a'b"]).condition == "`c` IS NULL OR `c` IN ('a\\'b')"


def test_a_rule_over_a_missing_column_names_the_nearest():
    with pytest.raises(ConfigError, match="no column `amont`") as error:
        Rule.range("amont", 0, 1).check_columns(["amount", "id"])
    assert error.value.hint == "did you mean `amount`?"
