"""The table of twins: what each does, and the cases that must catch it at the least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from pakka.contract.sink import Committer, Writer
from pakka.model.id import Binding, Slot
from pakka.testing.twins import committers as c
from pakka.testing.twins import settlers as s
from pakka.testing.twins import writers as w
from pakka.testing.twins.honest import HonestCommitter, HonestSink, HonestSlotCommitter, HonestWriter


@dataclass(frozen=True, repr=False)
class LoudSink(HonestSink):
    """Shows its password to whoever logs it."""

    def __repr__(self) -> str:
        return f"LoudSink({self.path!r}, password={self.password!r})"


@dataclass(frozen=True)
class RootedSink(HonestSink):
    """Cannot leave its process."""

    def __reduce__(self) -> str:
        raise TypeError("cannot pickle a live connection")


@dataclass(frozen=True, slots=True)
class Twin:
    """A sink that lies, made from its parts."""

    lie: str
    caught_by: tuple[str, ...]
    writer: Callable[[HonestSink, Slot, pa.Schema], Writer] = HonestWriter
    committer: Callable[[HonestSink, Binding, int], Committer] = HonestCommitter
    sink: type[HonestSink] = HonestSink

    def make(self, path: str, password: str = "") -> HonestSink:
        return self.sink(path, self.writer, self.committer, password)


HONEST = Twin("none: commits an epoch in one transaction", ())
HONEST_BY_SLOT = Twin("none: commits slot by slot", (), committer=HonestSlotCommitter)

TWINS: dict[str, Twin] = {
    # Isolation
    "eager": Twin(
        "shows rows at prepare", ("prepare_alone_is_invisible", "an_old_fence_cannot_decide"), writer=w.Eager
    ),
    "hasty": Twin("shows rows as they are written", ("a_writer_that_died_leaves_nothing",), writer=w.Hasty),
    "careless": Twin("loses the last batch", ("commit_makes_visible_once",), writer=w.Careless),
    "jumbling": Twin("mixes a row's columns", ("commit_makes_visible_once",), writer=w.Jumbling),
    "miscounting": Twin("tells fewer rows than it has", ("commit_makes_visible_once",), writer=w.Miscounting),
    "hoarding": Twin("keeps a staged copy of what is committed", ("commit_makes_visible_once",), committer=c.Hoarding),
    "piecemeal": Twin("shows part of an epoch", ("many_writers_commit_as_one",), committer=c.Piecemeal),
    "confused": Twin("takes one slot for all of them", ("commit_makes_visible_once",), committer=c.Confused),
    "muddled": Twin("mixes up slots of several threads", ("slots_may_be_committed_side_by_side",), committer=c.Muddled),
    "picky": Twin("refuses an empty epoch", ("an_empty_slot_and_an_empty_epoch_are_committed",), committer=c.Picky),
    # Idempotence
    "doubling": Twin("second commit doubles", ("commit_twice_leaves_one_copy",), committer=c.Doubling),
    "sly": Twin("second commit doubles, unsaid", ("commit_twice_leaves_one_copy",), committer=c.Sly),
    "touchy": Twin("second commit raises", ("commit_twice_leaves_one_copy",), committer=c.Touchy),
    "volatile": Twin(
        "answers COMMITTED before it has committed",
        ("commit_makes_visible_once", "commit_twice_leaves_one_copy"),
        committer=c.Volatile,
    ),
    "swallowing": Twin(
        "calls a failed commit COMMITTED", ("a_lost_request_is_not_called_committed",), committer=c.Swallowing
    ),
    "despairing": Twin(
        "calls an unknown commit REFUSED", ("a_lost_answer_is_unknown_and_ends_in_one_copy",), committer=c.Despairing
    ),
    "destructive": Twin("aborts what was committed", ("abort_after_commit_is_refused",), committer=s.Destructive),
    "spiteful": Twin("refuses a late abort, and does it", ("abort_after_commit_is_refused",), committer=s.Spiteful),
    "agreeable": Twin("does not refuse a late abort", ("abort_after_commit_is_refused",), committer=s.Agreeable),
    "fussy": Twin("second abort raises", ("abort_twice_is_harmless",), committer=s.Fussy),
    "forgiving": Twin("commits what was aborted", ("commit_after_abort_is_refused",), committer=s.Forgiving),
    "leaky": Twin("leaks on abort", ("abort_leaves_nothing",), committer=s.Leaky),
    "lazy": Twin("does not abort", ("abort_leaves_nothing",), committer=s.Lazy),
    "slamming": Twin("second close raises", ("close_twice_is_harmless",), committer=s.Slamming),
    # Separation
    "forgetful": Twin(
        "forgets prepared rows on restart",
        (
            "a_new_process_finds_what_is_pending_and_finishes_it",
            "a_prepared_of_another_process_commits_here",
            "another_process_commits_a_prepared",
        ),
        writer=w.Forgetful,
        committer=c.Remembering,
    ),
    "clinging": Twin("its record holds a live handle", ("another_process_commits_a_prepared",), writer=w.Clinging),
    "rooted": Twin(
        "does not pickle", ("it_travels_to_the_executors", "another_process_commits_a_prepared"), sink=RootedSink
    ),
    "modern": Twin(
        "cannot read records of the last release", ("a_prepared_of_the_last_release_commits",), committer=c.Modern
    ),
    "messy": Twin("leaves litter when it gives up", ("a_writer_that_gave_up_leaves_nothing",), writer=w.Messy),
    "postponing": Twin(
        "writes its ledger after the rows",
        ("the_declared_guarantee_is_the_one_a_kill_test_observes",),
        committer=c.Postponing,
    ),
    # Rejection
    "obliging": Twin("accepts a used id", ("the_same_id_twice_the_first_wins",), writer=w.Obliging),
    "narrow": Twin("commits a used id again", ("a_used_id_adds_nothing",), writer=w.Obliging, committer=c.Narrow),
    "fearless writer": Twin("prepares under an old fence", ("an_old_fence_cannot_prepare",), writer=w.Fearless),
    "fearless": Twin("commits under an old fence", ("an_old_fence_cannot_commit",), committer=c.Fearless),
    "slow": Twin(
        "checks the fence before its transaction",
        ("an_old_fence_overtaken_in_its_commit_changes_nothing",),
        committer=c.Slow,
    ),
    "meddling": Twin("aborts under an old fence", ("an_old_fence_cannot_abort",), committer=s.Meddling),
    "falling": Twin("lets the fence fall", ("an_old_fence_cannot_come_back",), committer=s.Falling),
    "numeric": Twin(
        "takes another epoch of the same number for this one",
        ("an_epoch_of_another_origin_is_not_taken_for_this_one",),
        committer=c.Numeric,
    ),
    "greedy": Twin("commits every attempt", ("a_speculative_twin_leaves_one_copy",), committer=c.Greedy),
    # Honesty
    "unmindful": Twin(
        "declares exactly-once without a ledger",
        ("a_sink_without_a_ledger_is_not_exactly_once",),
        committer=s.Unmindful,
    ),
    "boastful": Twin("its ledger tells a prepared epoch", ("ledger_tells_the_truth",), committer=s.Boastful),
    "vague": Twin("its ledger forgets the rows", ("ledger_tells_the_truth",), committer=s.Vague),
    "skipping": Twin("does not remember an empty epoch", ("ledger_tells_the_truth",), committer=s.Skipping),
    "hopeful": Twin(
        "calls an epoch whole with its first slot",
        ("an_epoch_in_part_is_not_called_whole",),
        committer=c.Hopeful,
    ),
    "exacting": Twin(
        "refuses a slot of an epoch that was accepted without it",
        ("an_epoch_accepted_as_whole_refuses_no_slot",),
        committer=c.Exacting,
    ),
    "careworn": Twin("never calls an epoch whole", ("an_epoch_in_part_is_not_called_whole",), committer=c.Careworn),
    "deaf": Twin(
        "commits slot by slot and cannot be told that an epoch is whole",
        ("it_has_the_shape_of_the_contract",),
        committer=c.Deaf,
    ),
    "blind": Twin(
        "pending is always empty",
        ("pending_tells_the_truth", "a_new_process_finds_what_is_pending_and_finishes_it"),
        committer=s.Blind,
    ),
    "shortsighted": Twin(
        "pending forgets half-written slots",
        ("pending_tells_the_truth", "a_writer_that_died_leaves_nothing"),
        committer=s.Shortsighted,
    ),
    "nostalgic": Twin("pending names what is committed", ("pending_tells_the_truth",), committer=s.Nostalgic),
    "reticent": Twin("tells half of what is in doubt", ("what_is_in_doubt_is_what_is_pending",), committer=s.Reticent),
    "pushy": Twin("raises its fence when it is opened", ("looking_changes_nothing",), committer=s.Pushy),
    "homebound": Twin(
        "works in one thread only", ("a_committer_may_be_called_from_any_thread",), committer=s.Homebound
    ),
    "amputated": Twin("has no power to commit", ("it_has_the_shape_of_the_contract",), committer=s.Amputated),
    "loud": Twin("its repr shows a secret", ("it_shows_no_secret",), sink=LoudSink),
    # Values
    "rounding": Twin("rounds decimals", ("every_spark_type_reads_back_or_is_refused",), writer=w.Rounding),
    "blunt": Twin("refuses with an error of its own", ("every_spark_type_reads_back_or_is_refused",), writer=w.Blunt),
    "nulling": Twin("turns NaN to null", ("hard_numbers_read_back_or_are_refused",), writer=w.Nulling),
    "shortening": Twin("cuts long texts", ("hard_texts_read_back_or_are_refused",), writer=w.Shortening),
    "wrapping": Twin(
        "takes instants through nanoseconds", ("hard_moments_read_back_or_are_refused",), writer=w.Wrapping
    ),
    "flattening": Twin("turns empty lists to null", ("nested_values_read_back_or_are_refused",), writer=w.Flattening),
    "late": Twin(
        "finds out at the commit what it cannot store", ("nested_values_read_back_or_are_refused",), writer=w.Late
    ),
}
