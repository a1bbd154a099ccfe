"""A pipeline as a value: what it refuses before anything is started."""

import pytest

import pakka
from pakka.errors import ConfigError
from pakka.model.rule import Rule
from pakka.sinks.files import ParquetSink


def pipeline(sinks, **more):
    return pakka.Pipeline("refunds", pakka.RateSource(), sinks, **more)


def test_two_sinks_on_one_output_are_refused():
    with pytest.raises(ConfigError, match="sinks `a` and `b` both write to"):
        pipeline({"a": ParquetSink("out"), "b": ParquetSink("./out/")})


@pytest.mark.parametrize(("one", "other"), [("out", "out/dead"), ("out/a/b", "out")])
def test_an_output_inside_another_is_refused(one, other):
    with pytest.raises(ConfigError, match="is inside that of the other"):
        pipeline({"a": ParquetSink(one)}, dead_letters=ParquetSink(other))


def test_outputs_side_by_side_are_fine():
    assert list(pipeline({"a": ParquetSink("out/a"), "b": ParquetSink("out/ab")}).outputs) == ["a", "b"]


def test_a_pipeline_without_sinks_is_refused():
    with pytest.raises(ConfigError, match="has no sinks"):
        pipeline({})


def test_dead_letters_that_nobody_takes_are_refused():
    with pytest.raises(ConfigError, match="there is no `dead_letters` sink"):
        pipeline({"a": pakka.MemorySink()}, quality=(Rule.not_null("x"),))


@pytest.mark.parametrize("name", ["dead_letters", "a b", "../x"])
def test_a_sink_name_that_cannot_be_is_refused(name):
    with pytest.raises(ConfigError):
        pipeline({name: pakka.MemorySink()})


def test_no_slots_are_refused():
    with pytest.raises(ConfigError, match="slots is 0"):
        pipeline({"a": pakka.MemorySink()}, slots=0)


def test_every_public_name_is_there():
    assert all(getattr(pakka, name) is not None for name in pakka.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = pakka.nope
