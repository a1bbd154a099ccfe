"""Several drivers in one process, exactly one running at a time, and the seed says which.

A driver is synchronous code, so each has a thread of its own. Only the one that holds the baton runs; it gives it away at
switch points, which are all its contacts with the world. So a course of events depends on the seed alone, and no state of
the simulation needs a lock.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from random import Random

TICK_S = 0.001
"""How much simulated time a switch point takes."""


_PACES = (1.0, 1.0, 1.0, 0.2, 0.02)


class Crashed(BaseException):
    """The driver's process is dead. It unwinds its thread, and whatever it still tries on the way has no effect."""


class Over(BaseException):
    """The simulation has ended, because a rule is broken; every driver is unwound."""


class Unit:
    """One driver: its thread, and the time at which it goes on if it sleeps or is frozen."""

    def __init__(self, name: str, body: Callable[[], None], pace: float) -> None:
        self.name = name
        self.pace = pace
        """How often it is chosen, beside the others. Epochs pass by between two steps of a slow one."""
        self.body = body
        self.wake_s = 0.0
        self.is_crashed = False
        self.go = threading.Lock()
        self.go.acquire()


class Baton:
    """Who runs, and what time it is."""

    def __init__(self, chance: Random, stay: float) -> None:
        self.chance = chance
        self.stay = stay
        """How likely the one that runs goes on at a switch point, though others are ready too."""
        self.on_idle: Callable[[], None] = lambda: None
        """Called when no driver is left; it may start one. If it does not, this is the end."""
        self.now_s = 0.0
        self.steps = 0
        self.units: list[Unit] = []
        self.current: Unit | None = None
        self.is_over = False
        self.trouble: BaseException | None = None
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._laters = 0
        self._end = threading.Lock()
        self._end.acquire()

    def spawn(self, name: str, body: Callable[[], None]) -> Unit:
        """Start a driver. It runs when it is chosen for the first time."""
        unit = Unit(name, body, self.chance.choice(_PACES))
        self.units.append(unit)
        threading.Thread(target=self._live, args=(unit,), name=name, daemon=True).start()
        return unit

    def run(self) -> None:
        """Let them run until none is left and `on_idle` starts no other. What broke a driver's thread is raised here."""
        self.on_idle()
        if self.units:
            self._next(None).go.release()
            self._end.acquire()
        if self.trouble is not None:
            raise self.trouble

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        """Do something when the time has come, whoever runs then."""
        self._laters += 1
        heapq.heappush(self._later, (self.now_s + delay_s, self._laters, do))

    def switch(self) -> None:
        """A switch point of the one that runs. It returns when that one is chosen again."""
        mine = self.current
        assert mine is not None
        if self.is_over:
            raise Over
        self.steps += 1
        self.now_s += TICK_S
        self._do_due()
        other = self._next(mine)
        if other is not mine:
            other.go.release()
            mine.go.acquire()
        if self.is_over:
            raise Over

    def _next(self, mine: Unit | None) -> Unit:
        while True:
            now_s = self.now_s
            if mine is not None and mine.wake_s <= now_s and (len(self.units) == 1 or self._stays(mine)):
                break
            ready = [u for u in self.units if u.wake_s <= now_s]
            if self.is_over:
                ready = self.units
            if ready:
                mine = ready[0] if len(ready) == 1 else self.chance.choices(ready, [u.pace for u in ready])[0]
                break
            # Nobody can run now, so time goes to the next moment at which something happens.
            self.now_s = min([u.wake_s for u in self.units] + [at for at, _, _ in self._later[:1]])
            self._do_due()
        self.current = mine
        return mine

    def _stays(self, unit: Unit) -> bool:
        return self.chance.random() < self.stay * unit.pace

    def _do_due(self) -> None:
        while self._later and self._later[0][0] <= self.now_s and not self.is_over:
            try:
                heapq.heappop(self._later)[2]()
            except BaseException as error:
                self._end_by(error)

    def flush(self) -> None:
        """Time passes until all that was to be done later is done."""
        while self._later and not self.is_over:
            self.now_s = max(self.now_s, self._later[0][0])
            self._do_due()

    def _live(self, unit: Unit) -> None:
        unit.go.acquire()
        try:
            unit.body()
        except BaseException as error:
            self._end_by(error)
        self.units.remove(unit)
        self.current = None
        try:
            if not self.units and not self.is_over:
                self.on_idle()
        except BaseException as error:
            self._end_by(error)
        if self.units:
            self._next(None).go.release()
        else:
            self._end.release()

    def _end_by(self, error: BaseException) -> None:
        """No error may pass over a thread's end unseen: the baton would be lost with it."""
        if not isinstance(error, Crashed | Over):
            self.trouble, self.is_over = error, True
