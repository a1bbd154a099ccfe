"""Whatever the value is: through COPY into a real server and back by SELECT it is the same, or it was refused."""

import datetime as dt
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pakka.errors import SchemaError
from pakka.sinks._postgres_array import numeric_wire
from tests.unit.sinks.postgres_kit import column, copy, fit_of, make

pytestmark = pytest.mark.postgres

# The table is made again for every example, inside a transaction that is undone.
many = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def maybe(values):
    return st.lists(st.none() | values, min_size=1, max_size=30)


def exact(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def through(pg, batch: pa.RecordBatch, declared: str | None = None) -> list:
    batch = batch.append_column("i", pa.array(range(batch.num_rows)))
    with pg.transaction(force_rollback=True):
        if declared is None:
            make(pg, batch.schema)
        else:
            pg.execute(f"CREATE TABLE t (x {declared}, i bigint)")
        half = batch.num_rows // 2
        copy(pg, batch.slice(0, half), batch.slice(half))
        return [row[0] for row in pg.execute("SELECT x FROM t ORDER BY i", binary=True)]


@many
@given(values=maybe(st.integers(-(2**63), 2**63 - 1)), unsigned=maybe(st.integers(0, 2**64 - 1)))
def test_whole_numbers_arrive(pg, values, unsigned):
    assert through(pg, column(values, pa.int64())) == values
    assert through(pg, column(values, pa.int64()), "numeric") == values
    assert through(pg, column(unsigned, pa.uint64())) == unsigned
    assert through(pg, column([values], pa.list_(pa.int64()))) == [values]


@many
@given(values=maybe(st.integers(-(2**63), 2**63 - 1)), declared=st.sampled_from([("smallint", 15), ("integer", 31)]))
def test_a_whole_number_arrives_or_is_refused(pg, values, declared):
    name, bits = declared
    if all(v is None or -(2**bits) <= v < 2**bits for v in values):
        assert through(pg, column(values, pa.int64()), name) == values
    else:
        with pytest.raises(SchemaError, match="and the column takes"):
            through(pg, column(values, pa.int64()), name)


@many
@given(data=st.data(), precision=st.integers(1, 38))
def test_decimals_arrive_with_all_their_digits(pg, data, precision):
    scale = data.draw(st.integers(0, precision))
    values = data.draw(maybe(st.integers(-(10**precision) + 1, 10**precision - 1).map(lambda n: exact(n, scale))))
    kind = pa.decimal128(precision, scale)
    shown = [None if v is None else format(v, "f") for v in pa.array(values, kind).to_pylist()]
    for declared in (None, "numeric"):
        assert [None if v is None else format(v, "f") for v in through(pg, column(values, kind), declared)] == shown
    assert through(pg, column([values], pa.list_(kind))) == [values]
    assert through(pg, column(values, pa.decimal256(76, 38)), "numeric") == values


@many
@given(data=st.data(), scale=st.integers(0, 4), column_scale=st.integers(0, 4), column_precision=st.integers(4, 12))
def test_a_decimal_is_never_rounded(pg, data, scale, column_scale, column_precision):
    values = data.draw(maybe(st.integers(-(10**10), 10**10).map(lambda n: exact(n, scale))))
    kind, declared = pa.decimal128(20, scale), f"numeric({column_precision},{column_scale})"
    units = [v.scaleb(column_scale) for v in values if v is not None]
    if all(u == u.to_integral_value() and abs(u) < 10**column_precision for u in units):
        assert through(pg, column(values, kind), declared) == values
    else:
        with pytest.raises(SchemaError, match="and the column"):
            through(pg, column(values, kind), declared)


@many
@given(number=st.integers(-(10**70), 10**70), scale=st.integers(0, 40))
def test_the_slow_way_of_a_number_is_what_the_server_sends(pg, number, scale):
    text = format(exact(number, scale), "f")
    (sent,) = pg.execute("SELECT numeric_send(%s::text::numeric)", [text]).fetchone()
    assert numeric_wire(exact(number, scale)) == sent


@many
@given(doubles=maybe(st.floats()), singles=maybe(st.floats(width=32)))
def test_floats_arrive_bit_by_bit(pg, doubles, singles):
    def bits(values, form):
        return [None if v is None else "nan" if v != v else struct.pack(form, v) for v in values]

    assert bits(through(pg, column(doubles, pa.float64())), ">d") == bits(doubles, ">d")
    assert bits(through(pg, column(singles, pa.float32())), ">f") == bits(singles, ">f")
    assert bits(through(pg, column([doubles], pa.list_(pa.float64())))[0], ">d") == bits(doubles, ">d")


@many
@given(values=maybe(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_text_arrives(pg, values):
    assert through(pg, column(values, pa.string())) == values
    assert through(pg, column([values], pa.list_(pa.string()))) == [values]
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.string())), ("c", pa.map_(pa.string(), pa.string()))])
    keys = {v: v for v in values if v is not None}
    rows = [{"a": v, "b": values, "c": list(keys.items())} for v in values]
    assert through(pg, column(rows, kind)) == [{"a": v, "b": values, "c": keys} for v in values]


@many
@given(values=maybe(st.text(st.characters(exclude_categories=["Cs"]), max_size=6)), size=st.integers(1, 5))
def test_text_arrives_or_is_refused(pg, values, size):
    batch = column(values, pa.string())
    there = [v for v in values if v is not None]
    if not any("\0" in v or len(v) > size for v in there):
        assert through(pg, batch, f"varchar({size})") == values
    else:
        with pytest.raises(SchemaError, match=r"NUL character|and the column takes"):
            through(pg, batch, f"varchar({size})")
    if any("\0" in v or len(v) != size for v in there):
        with pytest.raises(SchemaError, match=r"NUL character|and the column holds exactly"):
            through(pg, batch, f"char({size})")
    else:
        assert through(pg, batch, f"char({size})") == values


@many
@given(values=maybe(st.binary()))
def test_bytes_arrive(pg, values):
    assert through(pg, column(values, pa.binary())) == values
    assert through(pg, column([values, None, values], pa.list_(pa.binary()))) == [values, None, values]


@many
@given(
    walls=maybe(st.datetimes()),
    instants=maybe(st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))),
    days=maybe(st.dates()),
    times=maybe(st.times()),
)
def test_moments_arrive(pg, walls, instants, days, times):
    assert through(pg, column(walls, pa.timestamp("us"))) == walls
    assert through(pg, column(instants, pa.timestamp("us", "America/Lima"))) == instants
    assert through(pg, column(days, pa.date32())) == days
    assert through(pg, column(times, pa.time64("us"))) == times
    assert through(pg, column([instants], pa.list_(pa.timestamp("us", "UTC")))) == [instants]


@many
@given(ticks=st.integers(-(2**63), 2**63 - 1))
def test_a_moment_is_the_same_instant_or_refused(pg, ticks):
    """Years that Python cannot read: the server counts its microseconds from 2000 on."""
    batch = pa.record_batch([pa.array([ticks]).view(pa.timestamp("us", "UTC"))], names=["x"])
    with pg.transaction(force_rollback=True):
        make(pg, batch.schema)
        if ticks < -210_866_803_200_000_000:
            with pytest.raises(SchemaError, match="begin in 4713 BC"):
                fit_of(pg, batch.schema)(batch)
            return
        copy(pg, batch)
        (sent,) = pg.execute("SELECT timestamptz_send(x) FROM t").fetchone()
    assert int.from_bytes(sent, signed=True) + 946_684_800_000_000 == ticks


@many
@given(
    rows=maybe(
        st.fixed_dictionaries(
            {
                "n": st.none() | st.integers(-(2**63), 2**63 - 1),
                "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "l": st.none() | st.lists(st.none() | st.booleans(), max_size=3),
                "s": st.none() | st.fixed_dictionaries({"t": st.none() | st.dates()}),
            }
        )
    )
)
def test_nested_values_arrive_as_json(pg, rows):
    kind = pa.struct(
        [("n", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.bool_())), ("s", pa.struct([("t", pa.date32())]))]
    )

    def in_json(row):
        inner = row["s"] and {"t": row["s"]["t"] and row["s"]["t"].isoformat()}
        return {**row, "s": inner}

    got = through(pg, column(rows, kind))
    for row in filter(None, got):
        # A number in JSON is decimal. What makes it a double again is reading it as one.
        row["f"] = None if row["f"] is None else float(row["f"])
    assert got == [row and in_json(row) for row in rows]
