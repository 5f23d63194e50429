"""Which model a stream follows: chosen and fitted as it comes, and chosen anew when it changes.

Four kinds of model, with normal noise and with noise as it was counted, are fitted to the first half of what
is remembered and judged by how well they predict the second half, one step at a time; each free parameter
costs what BIC says.  The best is fitted again to all of it.  From then on every value is first predicted and
then learned: when predictions become worse than they were (a CUSUM of their log-loss), or than those of a
model of the last values alone, the stream has changed, and what came before the change is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import log, sqrt
from typing import Any

import numpy as np

from millpond.models.arrays import Floats, Ints, integers
from millpond.models.chains import AR1_REACH, AutoRegressive, Walk
from millpond.models.models import Model, Stationary, Trend
from millpond.models.noise import Noise

# How many values are remembered, how few allow a choice, after how many at most it is made again,
# and how many are learned at a time.
REMEMBERED = 2000
ENOUGH = 40
PATIENCE = 200
BLOCK = 50
# How many values a model must have learned before its failures count as a change of the stream.
SETTLED = 200
# By how much (in nats a value) a model of the last values alone must predict better than the one in force.
OUTGROWN = 0.3
# How many standard errors from zero a slope must be to count.
SLOPED = 3.0
# How many standard errors below 1 the slope of an AR(1) model must be: the Dickey-Fuller test at 1 %.
ROOTED = 3.43
# The widest range of values for which a table of chances is kept; tables of chains grow faster, hence also of
# the steps of a walk and of the values of an AR(1) model.
WIDEST = 1_000_000
WIDEST_STEPS = 200
WIDEST_CHAIN = 1500
# A fitted normal counts as much as this many observations in an estimated distribution.
SMOOTHING = 10.0
# The chance a prediction gives at least to every value: nothing is impossible to a fitted model.
LEAST = 1e-6
# The CUSUM's slack and threshold, in standard deviations of the log-loss.
SLACK = 0.5
ALARM = 20.0
# A log-loss that varies less than this varies by chance: the counts of a noise are themselves estimates.
STEADY = 0.3
# No single value adds more than this to the CUSUM: an outlier is not a change.
SURPRISE = 4.0


@dataclass(frozen=True, eq=False)
class Identified:
    """The model in force, its kind, and how well every fit predicted values it had not seen.

    ``likelihoods`` are means of the log of the chance given to what came, less the price of the parameters;
    ``loss`` and ``spread`` are the mean and deviation of the chosen fit's log-loss.
    """

    kind: str
    model: Model
    likelihoods: dict[str, float]
    loss: float
    spread: float


class Identifier:
    """Chooses and fits a model to a stream of integers, in bounded memory and with nothing to configure.

    It learns in blocks of BLOCK values: what it finds does not depend on how the stream is cut into batches.
    """

    def __init__(self) -> None:
        self._values = np.empty(0, np.int64)  # remembered, up to the step `_next` - 1
        self._waiting = np.empty(0, np.int64)  # for their block to be full
        self._next = 0
        self._learned = 0  # the step up to which the model in force has learned
        self._found: Identified | None = None
        self._sum = 0.0  # the CUSUM, and the step since which it is above zero
        self._since = 0
        self._restarts = 0

    @property
    def found(self) -> Identified | None:
        """The model in force; none before there are enough values, or where they range too widely."""
        return self._found

    @property
    def restarts(self) -> int:
        """How often the stream was found to have changed."""
        return self._restarts

    @property
    def remembered(self) -> int:
        """How many of the last values learned the model in force may be judged by: those since a change."""
        return len(self._values)

    def observe(self, values: Ints) -> None:
        """Learn the next values of the stream, in order."""
        waiting = np.concatenate([self._waiting, integers(values)])
        full = len(waiting) - len(waiting) % BLOCK
        for start in range(0, full, BLOCK):
            self._learn(waiting[start : start + BLOCK])
        self._waiting = waiting[full:]

    def skip(self, count: int) -> None:
        """Go on after ``count`` values that were not seen; those before them say nothing of their order."""
        self._next += len(self._waiting) + count
        self._values, self._waiting = self._values[:0], self._waiting[:0]
        self._learned = self._since = self._next
        self._sum = 0.0
        self._found = None

    def _learn(self, block: Ints) -> None:
        failing = self._watch(block)
        self._values = np.concatenate([self._values, block])[-REMEMBERED:]
        self._next += len(block)
        if failing:
            self._restart(self._next - self._since)
        elif self._outgrown():
            self._restart(SETTLED)
        if self._found is None or self._next - self._learned >= min(PATIENCE, len(self._values) // 4):
            self._choose()

    def _restart(self, kept: int) -> None:
        self._restarts += 1
        self._values = self._values[-kept:]
        self._found = None

    def _outgrown(self) -> bool:
        """Whether the last values alone make a model that predicts clearly better than the one in force."""
        if self._found is None or len(self._values) < 2 * SETTLED or self._next % SETTLED:
            return False
        fresh = identify(self._values[-SETTLED:], self._next - SETTLED)
        if fresh is None:
            return False
        judged = SETTLED // 2 + 1
        losses = -predictive(self._found.model, self._values[-judged:], self._next - judged)
        return float(losses.mean()) - fresh.loss > OUTGROWN

    def _choose(self) -> None:
        self._found = identify(self._values, self._next - len(self._values))
        self._learned = self._next
        self._sum = 0.0
        self._since = self._next

    def _watch(self, block: Ints) -> bool:
        """Whether the model in force predicts worse than it did."""
        if self._found is None or len(self._values) < SETTLED:
            return False
        known = np.concatenate([self._values[-1:], block])
        losses = -predictive(self._found.model, known, self._next - 1)
        surprises = np.minimum((losses - self._found.loss) / max(self._found.spread, STEADY), SURPRISE)
        for place, surprise in enumerate(surprises.tolist()):
            self._sum = max(0.0, self._sum + surprise - SLACK)
            if self._sum == 0.0:
                self._since = self._next + place + 1
            if self._sum > ALARM:
                return True
        return False

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON values; the model in force is found again from it."""
        return {
            "values": self._values.tolist(),
            "waiting": self._waiting.tolist(),
            "next": self._next,
            "learned": self._learned,
            "sum": self._sum,
            "since": self._since,
            "restarts": self._restarts,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state that :meth:`state` gave."""
        self._values = np.array(state["values"], np.int64)
        self._waiting = np.array(state["waiting"], np.int64)
        self._next, self._learned = state["next"], state["learned"]
        self._sum, self._since, self._restarts = state["sum"], state["since"], state["restarts"]
        learned = self._values[: len(self._values) - (self._next - self._learned)]
        self._found = identify(learned, self._learned - len(learned))


def identify(values: Ints, first: int = 0) -> Identified | None:
    """The model that best predicts the second half of the values from the first, whose step is ``first``."""
    if len(values) < ENOUGH or int(values.max()) - int(values.min()) > WIDEST:
        return None
    half = len(values) // 2
    likelihoods: dict[tuple[str, str], float] = {}
    losses: dict[tuple[str, str], Floats] = {}
    for name, (fit, noise, parameters) in _FITS.items():
        model = fit(values[:half], first, noise)
        if model is not None:
            losses[name] = -predictive(model, values[half - 1 :], first + half - 1)
            price = parameters * log(len(values)) / 2 / len(values)
            likelihoods[name] = -float(losses[name].mean()) - price
    named = {" ".join(name): value for name, value in likelihoods.items()}
    for name in sorted(likelihoods, key=lambda name: -likelihoods[name]):
        fit, noise, _ = _FITS[name]
        model = fit(values, first, noise)
        if model is not None:
            return Identified(name[0], model, named, float(losses[name].mean()), float(losses[name].std()))
    return None


def predictive(model: Model, values: Ints, first: int) -> Floats:
    """The log of the chance that the model gave to each value but the first, one step ahead."""
    steps = first + np.arange(1, len(values))
    match model:
        case Stationary():
            chances = model.noise(values[1:])
        case Trend():
            chances = model.noise(values[1:] - model.centre(steps))
        case Walk():
            chances = model.step(np.diff(values))
        case AutoRegressive():
            chances = model.next_chances(values[:-1], values[1:])
        case _:
            raise TypeError(f"{type(model).__name__} is not a model that is fitted")
    return np.asarray(np.log((1 - LEAST) * chances + LEAST))


# --- fits ------------------------------------------------------------------------------------------

Estimate = Callable[[Ints], Noise]


def counted_noise(values: Ints) -> Noise:
    """The relative frequencies of the values, smoothed by a normal distribution of their mean and spread."""
    low, high = int(values.min()), int(values.max())
    spread = max(float(values.std()), 0.25)
    margin = max(1, round(spread))
    places = np.arange(low - margin, high + margin + 1)
    smooth = np.exp(-0.5 * ((places - values.mean()) / spread) ** 2)
    counts = np.bincount(values - places[0], minlength=len(places)).astype(np.float64)
    weights = counts + SMOOTHING * smooth / smooth.sum()
    return Noise(int(places[0]), weights / weights.sum())


def normal_noise(values: Ints) -> Noise:
    """A rounded normal distribution with the values' mean and spread."""
    rounding = 1 / 12  # the variance that rounding adds
    spread = sqrt(max(float(values.var()) - rounding, 0.01))
    return Noise.normal(spread, mean=float(values.mean()))


def _fit_stationary(values: Ints, first: int, noise: Estimate) -> Model | None:
    return Stationary(noise(values))


def _fit_trend(values: Ints, first: int, noise: Estimate) -> Model | None:
    steps = first + np.arange(len(values))
    slope = float(np.polyfit(steps - steps.mean(), values, 1)[0])
    line = Trend.line(slope, 0, Noise.point(0))
    error = float(np.std(values - slope * steps)) / (float(steps.std()) * sqrt(len(steps)))
    if line.slope == 0 or abs(slope) < SLOPED * error:
        return None
    start = float(values.mean()) - float(line.slope) * float(steps.mean())
    line = Trend(line.slope, Fraction(round(start * line.scale), line.scale), line.noise)
    return Trend(line.slope, line.intercept, noise(values - line.centre(steps)))


def _fit_walk(values: Ints, first: int, noise: Estimate) -> Model | None:
    moves = np.diff(values)
    if int(np.ptp(moves)) > WIDEST_STEPS:
        return None
    return Walk(noise(moves), int(values[-1]))


def _fit_ar1(values: Ints, first: int, noise: Estimate) -> Model | None:
    before, after = values[:-1].astype(np.float64), values[1:].astype(np.float64)
    spread = float(before.var())
    if spread == 0:
        return None
    slope = float(((before - before.mean()) * (after - after.mean())).mean()) / spread
    constant = float(after.mean()) - slope * float(before.mean())
    deviation = float((after - constant - slope * before).std())
    error = deviation / sqrt(spread * len(before))
    if abs(slope) < SLOPED * error or 1 - slope < ROOTED * error:
        return None  # not to be told from independent values, or from a walk
    if deviation == 0 or 2 * AR1_REACH * deviation / sqrt(1 - slope**2) > WIDEST_CHAIN:
        return None
    return AutoRegressive(constant, slope, deviation)


# By kind and noise: how it is fitted, and how many parameters it has beside a location and a spread.
_FITS: dict[tuple[str, str], tuple[Callable[[Ints, int, Estimate], Model | None], Estimate, int]] = {
    ("stationary", "normal"): (_fit_stationary, normal_noise, 0),
    ("stationary", "counted"): (_fit_stationary, counted_noise, 0),
    ("walk", "normal"): (_fit_walk, normal_noise, 0),
    ("walk", "counted"): (_fit_walk, counted_noise, 0),
    ("trend", "normal"): (_fit_trend, normal_noise, 1),
    ("trend", "counted"): (_fit_trend, counted_noise, 1),
    ("ar1", "normal"): (_fit_ar1, normal_noise, 1),
}
