"""Statistics of the arrivals on one side of a join, the partners of the tuples on the other side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp

import numpy as np

from millpond.engines.budgeted.frequency_sketch import FrequencySketch
from millpond.engines.budgeted.program import JoinKeyKind, LevelProgram
from millpond.models.array_types import Floats, Ints
from millpond.models.identify import REMEMBERED, Identifier
from millpond.models.models import Model, Stationary
from millpond.models.score_tables import heeb_table
from millpond.policies.registry import PolicyChoice

# Frequencies decay over MIN_HORIZON arrivals, or over HORIZON_FACTOR times the budget if that is more.
MIN_HORIZON, HORIZON_FACTOR = 10_000, 10
# Window positions count as rising if this share of neighbours does.
RISING_SHARE = 0.9
# A model is identified only from batches whose values differ by at most MAX_RANGE: score tables grow with it.
MAX_RANGE = 20_000
# The widest band of integers over which the probabilities of a model are summed.
MAX_BAND = 200


@dataclass(frozen=True)
class WindowFront:
    """The highest window position of a side so far, and its speed per arrival.

    ``speed`` is 0 unless the positions rise with the stream.
    """

    reached: float | None = None
    speed: float = 0.0

    def advance(self, positions: Floats, arrived: int) -> WindowFront:
        """The front after a batch of ``arrived`` tuples, some of which were seen here at ``positions``."""
        if len(positions) < 2 or not arrived:
            return self
        rising = float((positions[1:] >= positions[:-1]).mean())
        middle = len(positions) // 2
        climb = float(np.median(positions[middle:]) - np.median(positions[:middle])) * 2 / arrived
        return WindowFront(float(positions.max()), climb if rising >= RISING_SHARE and climb > 0 else 0.0)

    def steps_until(self, ends: Floats) -> Floats:
        """The number of arrivals until the front passes each end; infinite where it does not move."""
        if self.reached is None or self.speed <= 0:
            return np.full(len(ends), np.inf)
        return (ends - self.reached) / self.speed


class PartnerStream:
    """Statistics of the arrivals on one side of a join: a model, frequencies, and the front of a window."""

    def __init__(
        self, level: LevelProgram, choice: PolicyChoice, model: Model | None, size: int, width: int
    ) -> None:
        self._kind = level.kind
        self._given = model
        self.steps = 0
        self.last = 0
        identifies = model is None and choice.expects and level.has_integer_keys
        self._identifier = Identifier() if identifies else None
        horizon = max(MIN_HORIZON, HORIZON_FACTOR * size) if choice.expects else None
        self._frequencies = FrequencySketch(width if level.kind.is_equality else 1, horizon)
        self._recent = np.empty(0, np.float64)
        self.front = WindowFront()

    @property
    def model(self) -> Model | None:
        """The given or identified model; None where only frequencies distinguish the values."""
        if self._given is not None:
            return self._given
        found = self._identifier.found if self._identifier is not None else None
        return None if found is None or isinstance(found.model, Stationary) else found.model

    def observe(self, values: Ints | Floats, positions: Floats, recent: Ints | Floats, arrived: int) -> None:
        """Learn from a batch.

        ``values`` and ``positions`` are those of this shard's tuples.  ``arrived`` tuples came to the whole
        stream, and ``recent`` are the values of the last ones.
        """
        if self._kind.is_equality:
            self._frequencies.observe(values)  # type: ignore[arg-type]
        elif self._kind is JoinKeyKind.BAND:
            self._recent = np.concatenate([self._recent, recent])[-REMEMBERED:]
        self.front = self.front.advance(positions, arrived)
        self.steps += arrived
        if self._identifier is not None and len(recent):
            self._identify(self._identifier, recent, arrived)
        if len(recent):
            self.last = int(recent[-1])

    def _identify(self, identifier: Identifier, recent: Ints | Floats, arrived: int) -> None:
        """Give the identifier the recent values; it counts the steps whose values it is not given."""
        if np.ptp(recent) > MAX_RANGE:
            identifier.skip(arrived)
            return
        if len(recent) < arrived:
            identifier.skip(arrived - len(recent))
        identifier.observe(np.rint(recent).astype(np.int64))

    def match_rates(self, values: Ints | Floats, low: float | None, high: float | None) -> Floats:
        """The share of the arrivals that match each value: equal to it, or in the band around it."""
        if self._kind is JoinKeyKind.BAND:
            ordered = np.sort(self._recent)
            top = len(ordered) if high is None else np.searchsorted(ordered, values + high, "right")
            bottom = 0 if low is None else np.searchsorted(ordered, values + low, "left")
            found: Floats = (top - bottom) / max(len(ordered), 1) * np.ones(len(values))
            return found
        if self._kind is JoinKeyKind.NOTHING:
            return np.ones(len(values))
        return self._frequencies.relative_frequencies(values)  # type: ignore[arg-type]

    def expected_benefit(
        self, values: Ints | Floats, alpha: float, low: float | None, high: float | None
    ) -> Floats:
        """H of each value (paper 3, section 5): its expected partners, weighted by exp(-steps / alpha)."""
        model = self.model
        is_band = self._kind is JoinKeyKind.BAND
        is_narrow = low is not None and high is not None and high - low <= MAX_BAND
        if model is None or (is_band and not is_narrow):
            decay = exp(-1 / alpha)
            return self.match_rates(values, low, high) * decay / (1 - decay)
        table = heeb_table(model, alpha)
        now, integers = self.steps - 1, np.rint(values).astype(np.int64)
        if not is_band:
            return table.look_up(integers, now, self.last)
        assert low is not None and high is not None
        offsets = np.arange(int(np.ceil(low)), int(np.floor(high)) + 1)
        total: Floats = table.look_up(integers[:, None] + offsets[None, :], now, self.last).sum(axis=1)
        return total

    def state(self) -> dict[str, bytes]:
        known = {
            "steps": self.steps,
            "last": self.last,
            "recent": self._recent.tolist(),
            "front": asdict(self.front),
            "identifier": self._identifier.state() if self._identifier is not None else None,
        }
        return {"known": json.dumps(known).encode(), "frequencies": self._frequencies.save()}

    def load(self, state: Mapping[str, bytes]) -> None:
        known = json.loads(state["known"])
        self.steps, self.last = known["steps"], known["last"]
        self._recent = np.array(known["recent"], np.float64)
        self.front = WindowFront(**known["front"])
        if self._identifier is not None and known["identifier"] is not None:
            self._identifier.load(known["identifier"])
        self._frequencies.load(state["frequencies"])
