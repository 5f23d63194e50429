"""Decides from what Spark reports after each micro-batch whether the state of a query keeps growing.

The state of a healthy query may grow for a while, until the watermark passes the first window, and rise and
fall from then on.  So growth is measured against the prediction of the plan: a state that is predicted to
grow has to be seen growing; one that is predicted to stay flat has to grow while its watermark stands still.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Batches before anything is said, by what is predicted.
_PREDICTED, _UNPREDICTED, _IN_TIME = 8, 16, 64
_MOST = 256  # samples that are kept
_STUCK = 20  # batches before a watermark that stands still is reported
_CLEARLY = 1.5  # growth that cannot be noise; linear growth from the beginning gives 2
_LARGER = 1.1  # growth of bytes in a state that is predicted to grow


@dataclass(frozen=True)
class StateSample:
    """The state after a micro-batch: rows and sizes in bytes, by operator, and the watermark.

    A size is comparable between the batches of an operator only: that of all its rows or, with RocksDB, the
    average size of those that the batch wrote.
    """

    batch: int
    rows: tuple[int, ...]
    sizes: tuple[float, ...]
    watermark: str | None = None

    @property
    def total(self) -> int:
        return sum(self.rows)


@dataclass(frozen=True)
class Growth:
    """A finding: why the state is taken to grow for ever, and since when it was seen."""

    finding: str
    first: StateSample
    last: StateSample


@dataclass
class StateHistory:
    """The samples of a run of a query, at most 256: in long runs, one stands for several batches."""

    samples: list[StateSample] = field(default_factory=list)
    _span: int = 1  # batches for each sample
    _open: int = 0  # batches in the last sample

    def add(self, sample: StateSample) -> bool:
        """Add a sample; a query that waits for rows reports the last batch again, which is ignored."""
        if self.samples and sample.batch <= self.samples[-1].batch:
            return False
        if 0 < self._open < self._span:
            self.samples[-1] = _merge(self.samples[-1], sample)
            self._open += 1
            return True
        if len(self.samples) == _MOST:
            self.samples = [_merge(*pair) for pair in zip(self.samples[::2], self.samples[1::2], strict=True)]
            self._span *= 2
        self.samples.append(sample)
        self._open = 1
        return True

    def find_growth(self, predicted: str | None, bound: int | None) -> Growth | None:
        """Whether the state exceeds its bound or keeps growing, as of the last sample.

        ``predicted`` is "grows", "flat" or, if the plan is not known, None; ``bound`` is the number of
        entries that a bounded query needs.
        """
        if not self.samples:
            return None
        last, middle = self.samples[-1], self.samples[(len(self.samples) - 1) // 2]
        exceeds = bound is not None and last.total > bound
        if predicted == "grows" and exceeds:
            return Growth(f"{last.total:,} rows of state, where {bound:,} entries would do", last, last)
        if predicted == "grows":
            grows = self._is_growing(_PREDICTED, 1.0, _LARGER)
        elif predicted == "flat":
            if exceeds and self._is_growing(_UNPREDICTED, _CLEARLY, None):
                return Growth(f"{last.total:,} rows of state, more than the bound of {bound:,}", middle, last)
            grows = self._has_stuck_watermark() and self._is_growing(_STUCK, _CLEARLY, None)
            if grows:
                finding = f"the watermark stands still at {last.watermark}, so nothing is removed"
                return Growth(finding, middle, last)
        else:
            in_time = last.watermark is not None and not self._has_stuck_watermark()
            grows = self._is_growing(_IN_TIME if in_time else _UNPREDICTED, _CLEARLY, _CLEARLY)
        return Growth("the state keeps growing", middle, last) if grows else None

    def _is_growing(self, patience: int, rows: float, sizes: float | None) -> bool:
        """Whether the rows of an operator, or their size, are rising by a factor."""
        if len(self.samples) < patience:
            return False
        operators = range(min(len(each.rows) for each in self.samples))
        return any(
            is_rising([each.rows[i] for each in self.samples], rows)
            or (sizes is not None and is_rising([each.sizes[i] for each in self.samples], sizes))
            for i in operators
        )

    def _has_stuck_watermark(self) -> bool:
        """Whether the query has a watermark that did not move in the second half of the batches."""
        half = self.samples[len(self.samples) // 2 :]
        return half[-1].watermark is not None and len({each.watermark for each in half}) == 1


def _merge(one: StateSample, next_: StateSample) -> StateSample:
    """The larger values of two samples, as of the second one."""
    rows = tuple(map(max, one.rows, next_.rows))
    return StateSample(next_.batch, rows, tuple(map(max, one.sizes, next_.sizes)), next_.watermark)


def is_rising(series: Sequence[float], factor: float) -> bool:
    """Whether the largest value of a series is larger than that of its first half, by a factor.

    Values that rise and fall, and those that rise only in the beginning, are not rising.

    >>> is_rising([1, 2, 3, 4, 5, 6], 1.5), is_rising([1, 2, 3, 1, 2, 3], 1.0), is_rising([1, 5, 5, 5], 1.0)
    (True, False, False)
    """
    half = max(series[: max(len(series) // 2, 1)], default=0.0)
    return max(series, default=0.0) > factor * half
