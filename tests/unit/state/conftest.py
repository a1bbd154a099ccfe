"""Every test of `place` runs over both stores."""

from collections.abc import Iterator

import pytest

from pakka.contract.state import StateStore
from tests.unit.state.places import Place


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request, tmp_path) -> Place:
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path}/state/store.db")
    return Place(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(place: Place) -> Iterator[StateStore]:
    opened = place.open()
    yield opened
    opened.close()
