"""A whole stream cut where its identified model changes, so that compiled loops can follow it.

Every stretch is ruled by a model that was found from what came before it.  A model is replaced by one that
predicts clearly better, and else by one that has learned twice as much: parameters are better known by then,
and tables are made anew only so often.  An alarm alone replaces nothing: a stream may just be restless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from millpond.models.arrays import Ints
from millpond.models.chains import Walk
from millpond.models.identify import BLOCK, REMEMBERED, Identified, Identifier, predictive
from millpond.models.models import Model, Trend

# By how many standard errors a model must predict better to replace the one in force at once.
CLEARLY = 3.0


@dataclass(frozen=True, eq=False)
class Stretch:
    """The steps from ``start`` to before ``stop``, and the model that rules them, if one is found.

    ``start`` is the model's step 0.
    """

    start: int
    stop: int
    kind: str | None = None
    model: Model | None = None

    def __len__(self) -> int:
        return self.stop - self.start


def begun(model: Model, start: int, last: int) -> Model:
    """The model as it is from step ``start`` on, before which came the value ``last``."""
    match model:
        case Trend():
            return Trend(model.slope, model.intercept + start * model.slope, model.noise)
        case Walk():
            return Walk(model.step, last)
    return model


def stretches(values: Ints) -> list[Stretch]:
    """The stretches of a stream; the first, in which nothing is known yet, has no model."""
    identifier = Identifier()
    cuts: list[tuple[int, Identified | None]] = [(0, None)]
    learned = 0
    for now in range(BLOCK, len(values), BLOCK):
        identifier.observe(values[now - BLOCK : now])
        ruling, fresh = cuts[-1][1], identifier.found
        if fresh is None or fresh is ruling:
            continue
        recent = values[now - identifier.remembered : now]
        if (
            ruling is None
            or _lead(fresh, ruling.model, recent, now) > CLEARLY
            or (len(recent) >= min(2 * learned, REMEMBERED) and now - cuts[-1][0] >= learned)
        ):
            cuts.append((now, fresh))
            learned = len(recent)
    stops = [start for start, _ in cuts[1:]] + [len(values)]
    return [_stretch(start, stop, found, values) for (start, found), stop in zip(cuts, stops, strict=True)]


def _lead(fresh: Identified, ruling: Model, recent: Ints, now: int) -> float:
    """By how many standard errors the fresh model predicted the later half of the values better.

    It is judged by what it had learned from the first half, as it was when it was chosen.
    """
    half = len(recent) // 2
    losses = -predictive(ruling, recent[half - 1 :], now - len(recent) + half - 1)
    error = sqrt((float(losses.var()) + fresh.spread**2) / len(losses))
    return (float(losses.mean()) - fresh.loss) / max(error, 1e-9)


def _stretch(start: int, stop: int, found: Identified | None, values: Ints) -> Stretch:
    if found is None:
        return Stretch(start, stop)
    return Stretch(start, stop, found.kind, begun(found.model, start, int(values[start - 1])))


def ruling_kind(parts: Sequence[Stretch]) -> str | None:
    """The kind of model that rules most steps; none where there is no model in most."""
    lengths: dict[str | None, int] = {}
    for part in parts:
        lengths[part.kind] = lengths.get(part.kind, 0) + len(part)
    return max(lengths, key=lambda kind: lengths[kind])
