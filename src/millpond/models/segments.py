"""A stream cut into segments at the steps where its identified model changes.

The model of a segment is identified from earlier values only.  It is replaced when another model predicts
clearly better, or when a new fit has seen twice as many values; so parameters improve, and tables are rebuilt
rarely.  An alarm of the change detector alone does not replace a model, because some streams alarm often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from millpond.models.array_types import Ints
from millpond.models.chains import Walk
from millpond.models.identify import BLOCK, REMEMBERED, Identified, Identifier, log_likelihoods
from millpond.models.models import Model, Trend

# By how many standard errors a model must predict better to replace the current one at once.
CLEARLY = 3.0


@dataclass(frozen=True, eq=False)
class Segment:
    """The steps from ``start`` to before ``stop``, and their model, if one is identified.

    ``start`` is the model's step 0.
    """

    start: int
    stop: int
    kind: str | None = None
    model: Model | None = None

    def __len__(self) -> int:
        return self.stop - self.start


def shift_model(model: Model, start: int, last: int) -> Model:
    """The model whose step 0 is step ``start`` of the given one; ``last`` is the value before it."""
    match model:
        case Trend():
            return Trend(model.slope, model.intercept + start * model.slope, model.noise)
        case Walk():
            return Walk(model.step, last)
    return model


def split_into_segments(values: Ints) -> list[Segment]:
    """Identify the models of a stream as it comes; the first segment has no model yet."""
    identifier = Identifier()
    cuts: list[tuple[int, Identified | None]] = [(0, None)]
    learned = 0
    for now in range(BLOCK, len(values), BLOCK):
        identifier.observe(values[now - BLOCK : now])
        current, fresh = cuts[-1][1], identifier.found
        if fresh is None or fresh is current:
            continue
        recent = values[now - identifier.remembered : now]
        if (
            current is None
            or _lead(fresh, current.model, recent, now) > CLEARLY
            or (len(recent) >= min(2 * learned, REMEMBERED) and now - cuts[-1][0] >= learned)
        ):
            cuts.append((now, fresh))
            learned = len(recent)
    stops = [start for start, _ in cuts[1:]] + [len(values)]
    return [_segment(start, stop, found, values) for (start, found), stop in zip(cuts, stops, strict=True)]


def _lead(fresh: Identified, current: Model, recent: Ints, now: int) -> float:
    """By how many standard errors the fresh model predicts the later half of the values better.

    Its loss there was measured when it was chosen, with parameters fitted to the first half.
    """
    half = len(recent) // 2
    losses = -log_likelihoods(current, recent[half - 1 :], now - len(recent) + half - 1)
    error = sqrt((float(losses.var()) + fresh.spread**2) / len(losses))
    return (float(losses.mean()) - fresh.loss) / max(error, 1e-9)


def _segment(start: int, stop: int, found: Identified | None, values: Ints) -> Segment:
    if found is None:
        return Segment(start, stop)
    return Segment(start, stop, found.kind, shift_model(found.model, start, int(values[start - 1])))


def most_common_kind(segments: Sequence[Segment]) -> str | None:
    """The kind of model that holds for the most steps; None if most have no model."""
    lengths: dict[str | None, int] = {}
    for segment in segments:
        lengths[segment.kind] = lengths.get(segment.kind, 0) + len(segment)
    return max(lengths, key=lambda kind: lengths[kind])
