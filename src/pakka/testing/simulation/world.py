"""The world around the drivers: time, chance, the network, and what is remembered of it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from pakka.errors import PakkaError, UnavailableError, UnknownOutcomeError
from pakka.testing.simulation.baton import Baton, Crashed, Over
from pakka.testing.simulation.plan import Fault, Plan

STEPS_MOST = 60_000
"""More switch points than any seed needs; a world that is still not at its end goes round in circles."""

STORE = "state store"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that was broken, and how."""

    rule: str
    what: str


class World:
    """What every part of the simulation shares."""

    def __init__(self, plan: Plan, chance: Random) -> None:
        self.plan = plan
        self.chance = chance
        self.baton = Baton(chance, plan.stay)
        self.history: list[tuple[float, str, str, object]] = []
        self.counts: Counter[str] = Counter()
        self.lives: Counter[str] = Counter()
        """How often a store or sink was replaced by another copy of itself."""
        self.faults_left = plan.faults_most
        self.is_calm = False
        """No fault strikes any more, and all must end well."""
        self.failure: Failure | None = None
        self.on_step: Callable[[str], None] = lambda _what: None
        self.on_freeze: Callable[[], None] = lambda: None

    @property
    def now_s(self) -> float:
        return self.baton.now_s

    def note(self, what: str, detail: object = "", who: str | None = None) -> None:
        """Write the history. It is put into words only if somebody reads it, so `detail` must not change any more."""
        unit = self.baton.current
        self.history.append((self.baton.now_s, who or (unit.name if unit else "world"), what, detail))

    def fail(self, rule: str, what: str) -> Over:
        """A rule is broken: the simulation ends here. Raise what comes back."""
        if self.failure is None:
            self.failure = Failure(rule, what)
            self.note(f"BROKEN: {rule}", what)
        self.baton.is_over = True
        return Over()

    def strikes(self, fault: Fault) -> bool:
        """Does this fault strike now?"""
        rate = self.plan.rates.get(fault)
        if rate is None or self.is_calm or self.faults_left <= 0 or self.chance.random() >= rate:
            return False
        self.faults_left -= 1
        self.counts[fault.value] += 1
        return True

    def step(self, what: str, detail: object = "") -> None:
        """A switch point: others may run, and the driver may crash or be frozen here."""
        unit = self.baton.current
        assert unit is not None
        if unit.is_crashed:
            raise Crashed
        self.note(what, detail)
        if self.baton.steps > STEPS_MOST:
            raise self.fail("progress resumes when faults stop", f"no end after {STEPS_MOST} steps")
        self.on_step(what)
        self.baton.switch()
        if self.strikes(Fault.CRASH):
            unit.is_crashed = True
            self.note("CRASH", what)
            if what.startswith("at "):
                self.counts[f"crash {what}"] += 1
            raise Crashed
        if self.strikes(Fault.FREEZE):
            self.note("FROZEN", what)
            self.on_freeze()
            unit.wake_s = self.now_s + self.chance.choice((0.1, 0.5, 2.0, 10.0))
            self.baton.switch()
            self.note("goes on", what)

    def at_point(self, point: str, epoch: int) -> None:
        """What `pakka.points.reach` calls."""
        if self.baton.current is not None:
            self.counts[f"reach {point}"] += 1
            self.step(f"at {point}", f"epoch {epoch}")

    def sleep(self, wait_s: float) -> None:
        """The sleep that the coordinator is given."""
        unit = self.baton.current
        assert unit is not None
        unit.wake_s = self.now_s + wait_s
        self.step("waits", f"{wait_s} s")

    def clock(self) -> float:
        """The clock that the coordinator is given."""
        return self.baton.now_s

    def ask(self, subject: str, what: str, effect: Callable[[], T], detail: object = "") -> T:
        """A request that changes nothing: it is answered, or nobody is there."""
        self.step(f"{subject}: {what}", detail)
        if self.strikes(Fault.UNAVAILABLE):
            raise self._unavailable(subject, what)
        return effect()

    def tell(self, subject: str, what: str, effect: Callable[[], T], detail: object = "") -> T:
        """A request that changes something, once, at one instant; its answer may be lost, and so may it be itself."""
        self.step(f"{subject}: {what}", detail)
        if self.strikes(Fault.UNAVAILABLE):
            raise self._unavailable(subject, what)
        if self.strikes(Fault.LOST_REQUEST):
            raise self._unknown(subject, what, "request lost")
        if self.strikes(Fault.DELAYED):
            life, delay_s = self.lives[subject], self.chance.choice((0.01, 0.1, 1.0))
            self.baton.later(delay_s, lambda: self._do_late(subject, life, what, effect))
            raise self._unknown(subject, what, "request delayed")
        answer = effect()
        if self.strikes(Fault.LOST_ANSWER):
            raise self._unknown(subject, what, "answer lost")
        self.step("answered", answer)
        return answer

    def _do_late(self, subject: str, life: int, what: str, effect: Callable[[], object]) -> None:
        if self.lives[subject] != life:
            # A request to what is gone does not reach what stands in its place.
            return
        self.note(f"{subject}: {what}, delayed", who="network")
        try:
            effect()
        except PakkaError as error:
            # Whoever asked has long stopped to listen.
            self.note("refused", error.message, who="network")

    def _unavailable(self, subject: str, what: str) -> UnavailableError:
        self.note("NO CONNECTION", f"{subject}: {what}")
        return UnavailableError(f"{subject}: not reachable for {what}; nothing was sent")

    def _unknown(self, subject: str, what: str, why: str) -> UnknownOutcomeError:
        self.note("NO ANSWER", f"{subject}: {what}: {why}")
        return UnknownOutcomeError(f"{subject}: no answer to {what}; whether it was done is unknown")
