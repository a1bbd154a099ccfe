"""Transactions that have ended, are still open in a partition, and of which nobody knows any more how they ended.

Mostly a coordinator or a note knows, and they are mended (`_kafka_mender`). What is left is told to a person: a coordinator forgets an id under
which nothing was begun for seven days (`transactional.id.expiration.ms`), and whoever takes it then is another producer, which cannot end what
the one before has left open. So nothing here decides over it, and no advice is to abort what may have been committed: its rows would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pakka.errors import SinkError
from pakka.kafka_line import Address
from pakka.sinks._kafka_batch import Place
from pakka.sinks._kafka_raw import Described, Registry

GUIDE = "docs/reference/kafka-sink.md says what can be done, under `What nobody remembers`"
_NEVER = "do not abort what may have been committed, its rows would be lost"


def forgotten(
    registry: Registry, places: Collection[Place], known: int | None, among: Callable[[], Collection[int]] | None = None
) -> dict[int, list[Place]]:
    """Where a producer has something open that no coordinator knows, as far as this user may ask; without the one that is `known`.

    `among`: those to look for, asked for only if there are any others.
    """
    found: dict[int, list[Place]] = {}
    for place, opened in registry.open_in(places).items() if places else ():
        for producer in set(opened or ()) - {known}:
            found.setdefault(producer, []).append(place)
    if found and among is not None:
        mine = among()
        found = {producer: where for producer, where in found.items() if producer in mine}
    listed = {t.producer_id for t in registry.known(found)} if found else set()
    return {producer: where for producer, where in found.items() if producer not in listed}


def named(places: Collection[Place]) -> str:
    return ", ".join(f"partition {partition} of `{topic}`" for topic, partition in sorted(places))


def lost_page(whose: object, address: Address, lost: Mapping[int, Collection[Place]], epoch: int) -> SinkError:
    """The ledger cannot be read to its end, and never will be by itself."""
    producer, places = sorted(lost.items())[0]
    return SinkError(
        f"{whose}: {address}: producer {producer} has a transaction open in {named(places)}, the ledger, and no coordinator knows it any "
        f"more: its id has expired, and whether it was committed, and epoch {epoch} with it, cannot be told; nothing was changed",
        hint=f"{_NEVER}: see with `pakka status` and a reader of `read_committed` whether epoch {epoch} is visible, then make the ledger anew "
        f"with the page that is true; {GUIDE}",
    )


def lost_rows(whose: object, address: Address, lost: Mapping[int, Collection[Place]]) -> SinkError:
    """Rows that readers never get to, and whatever is behind them, also of other programs."""
    producer, places = sorted(lost.items())[0]
    return SinkError(
        f"{whose}: {address}: producer {producer}, which was this sink's, has a transaction open in {named(places)}, and no coordinator knows it "
        "any more: its id has expired, and whether it was committed is not known here; readers get no further there; nothing was changed",
        hint=f"{_NEVER}: see with `pakka status` and the ledger whether its epoch was committed; {GUIDE}",
    )


def lost_end(
    whose: object, address: Address, found: Described, hanging: Collection[Place], is_commit: bool | None
) -> SinkError:
    """Nobody knows what it should become, or nobody can make it so."""
    known = {
        True: "it was committed",
        False: "it was aborted",
        None: "whether it was committed is not known any more",
    }
    topic, partition = sorted(hanging)[0]
    tool = f"kafka-transactions.sh --bootstrap-server {address.servers}"
    see = f"see its records with `{tool} describe-producers --topic {topic} --partition {partition}` and a reader of `read_uncommitted`"
    do = {
        True: f"do not abort it, its rows would be lost: save them, and make the topic anew with them; {GUIDE}",
        False: "then `abort` of the same tool ends it",
        None: f"{_NEVER}; {GUIDE}",
    }
    return SinkError(
        f"{whose}: {address}: a transaction of `{found.id}` (producer {found.producer_id}) has ended and is still open in "
        f"{named(hanging)}; {known[is_commit]}, and its next end would decide over it; nothing was changed",
        hint=f"{see}; {do[is_commit]}",
    )
