"""Every error pakka raises.

The tree is split by what the reader should do next; the class says the exit code, the message says what is known of
the data, the hint says what to type::

    PakkaError
    ├── UsageError            2  fix the call
    │   └── ConfigError       2  fix the pipeline file; nothing has been started
    ├── RefusedError          1  a check said no; the data is unchanged
    │   ├── RegressError      1  checkpoint, state and sinks do not fit together
    │   ├── SchemaError       1  the rows do not fit the sink
    │   ├── QualityError      1  a rule with `on_fail: fail` was broken
    │   └── SinkError         1  the sink cannot do what was asked
    ├── AbortedError          1  the epoch was aborted before its decision; a restart runs it again
    ├── UnavailableError      1  a server gave no answer and nothing was asked of it that could matter; retry
    ├── UnknownOutcomeError   3  asked, and no answer: do not guess, ask again
    ├── FencedError           4  another driver owns the pipeline; stop this one
    └── BugError              1  pakka broke its own rule; the data is as the message says
"""

from __future__ import annotations

from typing import ClassVar


class PakkaError(Exception):
    """The root. `message` names subject, event, values and what is known of the data; `hint` says what to do."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class UsageError(PakkaError):
    """The call itself is wrong: an unknown name, an impossible combination."""

    exit_code = 2


class ConfigError(UsageError):
    """The pipeline file is wrong. Nothing has been started."""


class RefusedError(PakkaError):
    """A check refused to go on. The data is unchanged."""


class RegressError(RefusedError):
    """Checkpoint, state store and sinks contradict each other; going on would lose or double rows."""


class SchemaError(RefusedError):
    """The rows of this pipeline do not fit the sink's table, file or topic."""


class QualityError(RefusedError):
    """A rule with `on_fail: fail` was broken, so the epoch was aborted."""


class SinkError(RefusedError):
    """The sink cannot do what was asked: no rights, no room, not there."""


class AbortedError(PakkaError):
    """The epoch was aborted before its decision: nothing of it is visible, and a restart runs it again."""


class UnavailableError(PakkaError):
    """A server is not reachable and nothing was in flight; the same call may be repeated."""


class UnknownOutcomeError(PakkaError):
    """Something was asked and no answer came. Neither success nor failure may be assumed."""

    exit_code = 3


class FencedError(PakkaError):
    """A newer driver owns the pipeline. This one must stop and may change nothing."""

    exit_code = 4

    @classmethod
    def of(cls, subject: str, pipeline: str, mine: int, seen: int) -> FencedError:
        """The one wording of it: who refused, the fence that lost and the fence that won."""
        return cls(
            f"{subject}: fence {mine} lost to fence {seen}; nothing was changed by fence {mine}",
            hint=f"another driver is running; stop this one, or see the owner with `pakka status {pipeline}`",
        )

    @classmethod
    def replaced(cls, pipeline: str, mine: int, store: str, held: int | None) -> FencedError:
        """The state store no longer knows this driver's fence, though no newer driver has taken one."""
        holds = "knows nothing of it" if held is None else f"holds only fence {held}"
        return cls(
            f"pipeline `{pipeline}`: state store {store} {holds}, while fence {mine} is running: it was removed, or replaced by an "
            f"older copy; nothing was changed by fence {mine}",
            hint="stop this driver and find out who changed the state store; the next run compares it with the sinks",
        )


class BugError(PakkaError):
    """pakka broke one of its own rules, such as a wrong move between phases."""
