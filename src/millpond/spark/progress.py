"""The progress of a run, as data.  Imports no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# Up to this number, values are counted exactly.
_COUNTED_VALUES = 4_000


class Phase(Enum):
    """What a run is doing, in the words of the progress line."""

    STARTING = "starting Spark"
    PLANNING = "planning the query"
    FIRST_BATCH = "first batch"
    RUNNING = "running"
    WAITING = "waiting for rows"
    STOPPING = "stopping after this batch"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Notice:
    """Something to tell the user once: that a run resumes or, as a warning, a likely mistake."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class RateReport:
    """The rate of a stream as it was seen: on average, and in the fullest second; in rows per second.

    ``declared`` is the declared rate.  A window keeps the rows of the last ``window`` seconds.
    """

    stream: str
    average: float
    peak: int
    declared: int | None = None
    window: float | None = None

    @property
    def is_exceeded(self) -> bool:
        return self.declared is not None and self.peak > self.declared


@dataclass(frozen=True)
class CardinalityReport:
    """How many different values a column has had, about, and how many were declared.

    Beyond 4,000 the number is an estimate; the promise counts as broken if it is clearly higher.
    """

    stream: str
    column: str
    values: int
    declared: int

    @property
    def is_exceeded(self) -> bool:
        tolerance = 1.06 if self.values > _COUNTED_VALUES else 1.0
        return self.values > self.declared * tolerance


@dataclass(frozen=True)
class MissedReport:
    """The matches that a query on a budget has found and missed since it was started first.

    ``missed`` is an estimate.  The true number lies between ``low`` and ``high`` with a confidence of 95 %;
    both are None where the error of the estimate is not known.
    """

    found: int = 0
    missed: int = 0
    low: int | None = None
    high: int | None = None

    @property
    def share_found(self) -> float:
        return self.found / max(self.found + self.missed, 1)

    @property
    def error(self) -> int | None:
        """The larger distance of the limits from the estimate."""
        if self.low is None or self.high is None:
            return None
        return max(self.missed - self.low, self.high - self.missed)


@dataclass(frozen=True)
class Snapshot:
    """The totals of a run so far.  ``state_bound`` is the bound on ``state_entries``, None without one.

    ``waiting_for`` is what the first batch waits for.
    """

    phase: Phase
    waiting_for: str = ""
    batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    rejected_rows: int = 0
    state_entries: int = 0
    state_bound: int | None = None
    waiting_rows: int = 0
    shed_rows: int = 0
    missed: MissedReport = MissedReport()
    lookups: int = 0
    lookup_hits: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float | None = None  # of the last batch
    seconds: float = 0.0
    rates: tuple[RateReport, ...] = ()
    cardinalities: tuple[CardinalityReport, ...] = ()
