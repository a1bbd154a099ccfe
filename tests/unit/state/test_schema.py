"""The tables have a version, go forward by steps, and are left alone by code that is too old."""

import pytest

from pakka.errors import RefusedError, UsageError
from pakka.state import _schema
from tests.unit.state.places import OWNER, PIPELINE, decision, fill

STEP_2 = (
    "ALTER TABLE pakka_pipeline ADD COLUMN note TEXT",
    "UPDATE pakka_pipeline SET note = 'migrated'",
)


def version(store):
    return store._read(lambda: _schema.version_of(store._execute, store.has_meta))


def test_a_new_store_has_the_newest_version(store):
    assert version(store) == len(_schema.STEPS)


def test_another_process_may_make_the_tables_first(place):
    def outrun(store_class):
        class Outrun(store_class):
            def _migrate(self, version):
                place.open().close()
                super()._migrate(version)

        return Outrun

    store = place.open_as(outrun)
    assert version(store) == len(_schema.STEPS)
    store.close()


def test_an_older_store_is_brought_forward_with_what_it_holds(store, place, monkeypatch):
    store.take_fence(PIPELINE, OWNER)
    fill(store, 0, 2)
    before = store.read(PIPELINE)
    store.close()
    monkeypatch.setattr(_schema, "STEPS", (*_schema.STEPS, STEP_2))
    newer = place.open()
    assert version(newer) == 2
    assert newer.read(PIPELINE) == before
    assert newer._read(lambda: newer._execute("SELECT note FROM pakka_pipeline")) == [("migrated",)]
    newer.close()


def test_a_driver_of_the_version_before_goes_on_until_it_is_fenced(store, place, monkeypatch):
    store.take_fence(PIPELINE, OWNER)
    with monkeypatch.context() as patch:
        patch.setattr(_schema, "STEPS", (*_schema.STEPS, STEP_2))
        place.open().close()
    store.decide(decision(0))
    assert store.read(PIPELINE).open == (decision(0),)


def test_a_step_that_fails_leaves_the_version_before(store, place, monkeypatch):
    store.take_fence(PIPELINE, OWNER)
    with monkeypatch.context() as patch:
        patch.setattr(_schema, "STEPS", (*_schema.STEPS, (*STEP_2, "UPDATE no_such_table SET a = 1")))
        with pytest.raises(RefusedError, match="no_such_table"):
            place.open()
    assert version(store) == 1
    assert place.open().read(PIPELINE).fence == 1


def test_a_store_of_a_newer_pakka_is_refused(store, place, monkeypatch):
    store._write("a test", lambda: store._execute("UPDATE pakka_meta SET version = 7"))
    with pytest.raises(RefusedError, match="its tables are of version 7 and this pakka knows version 1") as caught:
        place.open()
    assert "newer pakka" in caught.value.hint


def test_looking_does_not_migrate(store, place, monkeypatch):
    monkeypatch.setattr(_schema, "STEPS", (*_schema.STEPS, STEP_2))
    with pytest.raises(UsageError, match="older than version 2"):
        place.open(must_exist=True)
    assert version(store) == 1
