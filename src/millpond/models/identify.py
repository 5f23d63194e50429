"""Identification of a stream's model: chosen and fitted as values come, and again when the stream changes.

Four kinds of model, with normal or empirical noise, are fitted to the first half of the remembered values and
compared by how well they predict the second half, one step at a time; BIC charges each free parameter.  The
best one is fitted again to all remembered values.  From then on every value is predicted before it is
learned.  The stream has changed when predictions become worse than before (a CUSUM of the log-loss), or worse
than those of a model fitted to the latest values only; then the values before the change are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import log, sqrt
from typing import Any

import numpy as np

from millpond.models.array_types import Floats, Ints, integers
from millpond.models.chains import AR1_REACH, AutoRegressive, Walk
from millpond.models.models import Model, Stationary, Trend
from millpond.models.noise import Noise

# How many values are remembered, how many a choice needs, after how many it is made again at the latest, and
# how many are learned at a time.
REMEMBERED = 2000
ENOUGH = 40
PATIENCE = 200
BLOCK = 50
# How many values a model must have learned before its failures count as a change of the stream.
SETTLED = 200
# By how much (in nats per value) a model of the latest values must predict better than the current one.
OUTGROWN = 0.3
# How many standard errors from zero a slope must be.
SLOPED = 3.0
# How many standard errors below 1 the slope of an AR(1) model must be: the Dickey-Fuller test at 1 %.
ROOTED = 3.43
# The widest ranges of values for which tables are built: of any model, of the steps of a walk, and of the
# values of an AR(1) model, whose tables are square.
WIDEST = 1_000_000
WIDEST_STEPS = 200
WIDEST_CHAIN = 1500
# The weight of the fitted normal in an empirical distribution, in observations.
SMOOTHING = 10.0
# The least probability that a prediction gives to any value.
LEAST = 1e-6
# The CUSUM's slack and threshold, in standard deviations of the log-loss.
SLACK = 0.5
ALARM = 20.0
# The least deviation of the log-loss that is assumed, because empirical frequencies are estimates.
STEADY = 0.3
# The most that a single value adds to the CUSUM: an outlier is not a change.
SURPRISE = 4.0


@dataclass(frozen=True, eq=False)
class Identified:
    """The identified model, its kind, and how well every fit predicted values it had not seen.

    ``likelihoods`` are mean log-likelihoods less the BIC penalty; ``loss`` and ``spread`` are the mean and
    standard deviation of the chosen fit's log-loss.
    """

    kind: str
    model: Model
    likelihoods: dict[str, float]
    loss: float
    spread: float


class Identifier:
    """Identifies the model of a stream of integers, in bounded memory and without configuration.

    It learns in blocks of BLOCK values, so the result does not depend on how the stream is cut into batches.
    """

    def __init__(self) -> None:
        self._values = np.empty(0, np.int64)  # remembered, up to the step `_next` - 1
        self._waiting = np.empty(0, np.int64)  # values of an incomplete block
        self._next = 0
        self._learned = 0  # the step up to which the current model has learned
        self._found: Identified | None = None
        self._sum = 0.0  # the CUSUM, and the step since which it is positive
        self._since = 0
        self._restarts = 0

    @property
    def found(self) -> Identified | None:
        """The current model; None before there are enough values, or if they range too widely."""
        return self._found

    @property
    def restarts(self) -> int:
        """How often a change of the stream was detected."""
        return self._restarts

    @property
    def remembered(self) -> int:
        """How many of the latest values are remembered: at most those since the last change."""
        return len(self._values)

    def observe(self, values: Ints) -> None:
        """Learn the next values of the stream, in order."""
        waiting = np.concatenate([self._waiting, integers(values)])
        full = len(waiting) - len(waiting) % BLOCK
        for start in range(0, full, BLOCK):
            self._learn(waiting[start : start + BLOCK])
        self._waiting = waiting[full:]

    def skip(self, count: int) -> None:
        """Continue after ``count`` values that were not seen; the values before the gap are forgotten."""
        self._next += len(self._waiting) + count
        self._values, self._waiting = self._values[:0], self._waiting[:0]
        self._learned = self._since = self._next
        self._sum = 0.0
        self._found = None

    def _learn(self, block: Ints) -> None:
        failing = self._detect_change(block)
        self._values = np.concatenate([self._values, block])[-REMEMBERED:]
        self._next += len(block)
        if failing:
            self._restart(self._next - self._since)
        elif self._is_outgrown():
            self._restart(SETTLED)
        if self._found is None or self._next - self._learned >= min(PATIENCE, len(self._values) // 4):
            self._choose()

    def _restart(self, kept: int) -> None:
        self._restarts += 1
        self._values = self._values[-kept:]
        self._found = None

    def _is_outgrown(self) -> bool:
        """Whether a model of the latest values predicts clearly better than the current one."""
        if self._found is None or len(self._values) < 2 * SETTLED or self._next % SETTLED:
            return False
        fresh = identify(self._values[-SETTLED:], self._next - SETTLED)
        if fresh is None:
            return False
        count = SETTLED // 2 + 1
        losses = -log_likelihoods(self._found.model, self._values[-count:], self._next - count)
        return float(losses.mean()) - fresh.loss > OUTGROWN

    def _choose(self) -> None:
        self._found = identify(self._values, self._next - len(self._values))
        self._learned = self._next
        self._sum = 0.0
        self._since = self._next

    def _detect_change(self, block: Ints) -> bool:
        """Whether the current model predicts worse than it did."""
        if self._found is None or len(self._values) < SETTLED:
            return False
        known = np.concatenate([self._values[-1:], block])
        losses = -log_likelihoods(self._found.model, known, self._next - 1)
        surprises = np.minimum((losses - self._found.loss) / max(self._found.spread, STEADY), SURPRISE)
        for place, surprise in enumerate(surprises.tolist()):
            self._sum = max(0.0, self._sum + surprise - SLACK)
            if self._sum == 0.0:
                self._since = self._next + place + 1
            if self._sum > ALARM:
                return True
        return False

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON values; :meth:`load` identifies the current model from it again."""
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
        """Restore what :meth:`state` returned."""
        self._values = np.array(state["values"], np.int64)
        self._waiting = np.array(state["waiting"], np.int64)
        self._next, self._learned = state["next"], state["learned"]
        self._sum, self._since, self._restarts = state["sum"], state["since"], state["restarts"]
        learned = self._values[: len(self._values) - (self._next - self._learned)]
        self._found = identify(learned, self._learned - len(learned))


def identify(values: Ints, first: int = 0) -> Identified | None:
    """Identify the model that best predicts the second half of the values; ``first`` is their first step."""
    if len(values) < ENOUGH or int(values.max()) - int(values.min()) > WIDEST:
        return None
    half = len(values) // 2
    likelihoods: dict[tuple[str, str], float] = {}
    losses: dict[tuple[str, str], Floats] = {}
    for name, (fit, noise, parameters) in _FITS.items():
        model = fit(values[:half], first, noise)
        if model is not None:
            losses[name] = -log_likelihoods(model, values[half - 1 :], first + half - 1)
            penalty = parameters * log(len(values)) / 2 / len(values)
            likelihoods[name] = -float(losses[name].mean()) - penalty
    named = {" ".join(name): value for name, value in likelihoods.items()}
    for name in sorted(likelihoods, key=lambda name: -likelihoods[name]):
        fit, noise, _ = _FITS[name]
        model = fit(values, first, noise)
        if model is not None:
            return Identified(name[0], model, named, float(losses[name].mean()), float(losses[name].std()))
    return None


def log_likelihoods(model: Model, values: Ints, first: int) -> Floats:
    """The log of the probability that the model gives to each value but the first, one step ahead."""
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
            raise TypeError(f"{type(model).__name__} has no one-step prediction")
    return np.asarray(np.log((1 - LEAST) * chances + LEAST))


# --- fits ------------------------------------------------------------------------------------------

Estimate = Callable[[Ints], Noise]


def empirical_noise(values: Ints) -> Noise:
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
        return None  # indistinguishable from independent values, or from a walk
    if deviation == 0 or 2 * AR1_REACH * deviation / sqrt(1 - slope**2) > WIDEST_CHAIN:
        return None
    return AutoRegressive(constant, slope, deviation)


# By kind and noise: the fit, and how many parameters it has beside a location and a spread.
_FITS: dict[tuple[str, str], tuple[Callable[[Ints, int, Estimate], Model | None], Estimate, int]] = {
    ("stationary", "normal"): (_fit_stationary, normal_noise, 0),
    ("stationary", "empirical"): (_fit_stationary, empirical_noise, 0),
    ("walk", "normal"): (_fit_walk, normal_noise, 0),
    ("walk", "empirical"): (_fit_walk, empirical_noise, 0),
    ("trend", "normal"): (_fit_trend, normal_noise, 1),
    ("trend", "empirical"): (_fit_trend, empirical_noise, 1),
    ("ar1", "normal"): (_fit_ar1, normal_noise, 1),
}
