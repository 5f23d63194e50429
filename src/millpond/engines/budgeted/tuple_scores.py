"""What a tuple is worth to one binary join: scores by policy, from what was seen of its partners."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp

import numpy as np

from millpond.engines.budgeted.frequency_sketch import FrequencySketch
from millpond.engines.budgeted.program import JoinKeyKind, LevelProgram
from millpond.models.arrays import Floats, Ints
from millpond.models.identify import REMEMBERED, Identifier
from millpond.models.models import Model, Stationary
from millpond.models.scores import heeb_table
from millpond.policies.heeb import published_alpha
from millpond.policies.registry import PolicyChoice

# Counters for the frequencies of values, shared out over the shards.
COUNTERS = 1 << 16
# Frequencies follow the last arrivals, at least so many and so many times what can be kept.
HORIZON, HORIZON_TIMES = 10_000, 10
# Places rise if this share of neighbours does.
RISING = 0.9
# Values that range more widely at a time follow no model that is worth a table.
WIDEST_RANGE = 20_000
# The widest band of whole numbers over which the chances of a model are summed.
WIDEST_BAND = 200


@dataclass(frozen=True, eq=False)
class CandidateTuples:
    """What is known of tuples on one side: values, places in a sliding window, when they came and were last
    used, and how often."""

    value: Ints | Floats
    place: Floats
    came: Floats
    used: Floats
    uses: Ints


@dataclass(frozen=True)
class WindowFront:
    """How far the places of a side have come, and how fast they rise; ``speed`` is 0 unless they do."""

    reached: float | None = None
    speed: float = 0.0

    def after(self, places: Floats, arrived: int) -> WindowFront:
        """The front after a batch of ``arrived`` tuples, of which some were seen, with their ``places``."""
        if len(places) < 2 or not arrived:
            return self
        rises = float((places[1:] >= places[:-1]).mean())
        middle = len(places) // 2
        climb = float(np.median(places[middle:]) - np.median(places[:middle])) * 2 / arrived
        return WindowFront(float(places.max()), climb if rises >= RISING and climb > 0 else 0.0)

    def remaining(self, ends: Floats) -> Floats:
        """The steps until the front has passed each end; for ever where it does not move."""
        if self.reached is None or self.speed <= 0:
            return np.full(len(ends), np.inf)
        return (ends - self.reached) / self.speed


class PartnerStream:
    """What is known of the arrivals on one side, which are the partners of the tuples on the other."""

    def __init__(
        self, level: LevelProgram, choice: PolicyChoice, model: Model | None, size: int, width: int
    ) -> None:
        self._kind = level.kind
        self._given = model
        self.steps = 0
        self.last = 0
        self._identifier = Identifier() if self._modelled(level, choice) and model is None else None
        horizon = max(HORIZON, HORIZON_TIMES * size) if choice.expects else None
        counted = level.kind in (JoinKeyKind.NUMBER, JoinKeyKind.HASH)
        self._frequencies = FrequencySketch(width if counted else 1, horizon)
        self._recent = np.empty(0, np.float64)
        self.front = WindowFront()

    @staticmethod
    def _modelled(level: LevelProgram, choice: PolicyChoice) -> bool:
        whole = level.kind is JoinKeyKind.NUMBER or (level.kind is JoinKeyKind.BAND and level.whole)
        return choice.expects and whole

    @property
    def model(self) -> Model | None:
        """The model in force; none where values are told apart only by how often they come."""
        if self._given is not None:
            return self._given
        found = self._identifier.found if self._identifier is not None else None
        return None if found is None or isinstance(found.model, Stationary) else found.model

    def observe(self, values: Ints | Floats, places: Floats, recent: Ints | Floats, arrived: int) -> None:
        """Learn the values that came here; of all that ``arrived`` in the stream, ``recent`` are the last."""
        if self._kind in (JoinKeyKind.NUMBER, JoinKeyKind.HASH):
            self._frequencies.observe(values)  # type: ignore[arg-type]
        elif self._kind is JoinKeyKind.BAND:
            self._recent = np.concatenate([self._recent, recent])[-REMEMBERED:]
        self.front = self.front.after(places, arrived)
        self.steps += arrived
        if self._identifier is not None and len(recent):
            if np.ptp(recent) > WIDEST_RANGE:
                self._identifier.skip(arrived)
            else:
                if len(recent) < arrived:
                    self._identifier.skip(arrived - len(recent))
                self._identifier.observe(np.rint(recent).astype(np.int64))
        if len(recent):
            self.last = int(recent[-1])

    def counts(self, values: Ints | Floats, low: float | None, high: float | None) -> Floats:
        """The share of arrivals that match each value, or lie in the band around it."""
        if self._kind is JoinKeyKind.BAND:
            ordered = np.sort(self._recent)
            top = len(ordered) if high is None else np.searchsorted(ordered, values + high, "right")
            bottom = 0 if low is None else np.searchsorted(ordered, values + low, "left")
            found: Floats = (top - bottom) / max(len(ordered), 1) * np.ones(len(values))
            return found
        if self._kind is JoinKeyKind.NOTHING:
            return np.ones(len(values))
        return self._frequencies.shares(values)  # type: ignore[arg-type]

    def expected(self, values: Ints | Floats, alpha: float, low: float | None, high: float | None) -> Floats:
        """The partners that each value can expect, those further away counting less."""
        model = self.model
        banded = self._kind is JoinKeyKind.BAND
        narrow = low is not None and high is not None and high - low <= WIDEST_BAND
        if model is None or (banded and not narrow):
            decay = exp(-1 / alpha)
            return self.counts(values, low, high) * decay / (1 - decay)
        table = heeb_table(model, alpha)
        now, whole = self.steps - 1, np.rint(values).astype(np.int64)
        if not banded:
            return table.look_up(whole, now, self.last)
        assert low is not None and high is not None
        offsets = np.arange(int(np.ceil(low)), int(np.floor(high)) + 1)
        summed: Floats = table.look_up(whole[:, None] + offsets[None, :], now, self.last).sum(axis=1)
        return summed

    def state(self) -> dict[str, bytes]:
        known = {
            "steps": self.steps,
            "last": self.last,
            "recent": self._recent.tolist(),
            "front": asdict(self.front),
            "identifier": self._identifier.state() if self._identifier is not None else None,
        }
        return {"known": json.dumps(known).encode(), "frequencies": self._frequencies.state()}

    def load(self, state: Mapping[str, bytes]) -> None:
        known = json.loads(state["known"])
        self.steps, self.last = known["steps"], known["last"]
        self._recent = np.array(known["recent"], np.float64)
        self.front = WindowFront(**known["front"])
        if self._identifier is not None and known["identifier"] is not None:
            self._identifier.load(known["identifier"])
        self._frequencies.load(state["frequencies"])


class LevelScorer:
    """The policy of one level: what its tuples are worth."""

    def __init__(
        self,
        level: LevelProgram,
        choice: PolicyChoice,
        models: tuple[Model | None, Model | None],
        size: int,
        shards: int,
    ) -> None:
        self._level = level
        self._choice = choice
        self._size = size
        width = max(1, COUNTERS // shards)
        self.partners = tuple(PartnerStream(level, choice, model, size, width) for model in models)

    def scores(self, side: int, tuples: CandidateTuples, rng: np.random.Generator, clock: float) -> Floats:
        """What the tuples of a side (0 is the left) are worth; only the order matters."""
        match self._choice.name:
            case "fifo":
                return tuples.came
            case "lru":
                return tuples.used
            case "lfu":
                return tuples.uses.astype(np.float64)
            case "rand":
                return rng.random(len(tuples.came))
        low, high = self._level.low, self._level.high
        if side == 1:  # the band as the right side sees it
            low, high = (None if high is None else -high), (None if low is None else -low)
        partner = self.partners[1 - side]
        if self._choice.name == "prob":
            return partner.counts(tuples.value, low, high)
        alpha = self._alpha_of(partner, clock)
        found = partner.expected(tuples.value, alpha, low, high)
        if self._level.windowed and high is not None:
            # Section 7: what comes when the tuple has left the window does not count.
            left = np.maximum(partner.front.remaining(tuples.place + high), 0.0)
            found = found * -np.expm1(-left / alpha)
        return found

    def modelled(self, side: int, values: Ints, clock: float) -> Floats | None:
        """What a side's values are worth by the model of their partners alone; None without one."""
        partner = self.partners[1 - side]
        if not self._choice.expects or partner.model is None:
            return None
        return partner.expected(values, self._alpha_of(partner, clock), None, None)

    def _alpha_of(self, partner: PartnerStream, clock: float) -> float:
        """Alpha in steps of the partner, which may come faster or slower than the other side."""
        rate = partner.steps / clock if clock else 1.0
        return max(self.alpha * rate, 0.05)

    @property
    def alpha(self) -> float:
        """As section 5 chooses it for the kinds of the two streams."""
        if self._choice.alpha is not None:
            return self._choice.alpha
        left, right = (partner.model for partner in self.partners)
        return published_alpha(left, right, self._size)
