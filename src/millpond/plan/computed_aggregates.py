"""Which aggregates the engines with a state of their own compute; Spark's operators compute all of them."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.plan.needs import Need, TimedPlan
from millpond.plan.synopses import ExactPlan
from millpond.query.aggregate_functions import ORDERED, Memory, find_memory
from millpond.query.model import Aggregate, Select
from millpond.query.parts import type_of
from millpond.query.trees import refs
from millpond.query.types import INTEGERS

_IN_WINDOWS = "is run only where groups close and one stream is read"


def explain_uncomputed(plan: TimedPlan | ExactPlan) -> str | None:
    """Why no engine computes an aggregate of the plan; None if they compute all of them."""
    for select, need in _list_needs(plan):
        if need.aggregate is not None:
            reason = _explain_aggregate(select, need, need.aggregate, isinstance(plan, TimedPlan))
            if reason is not None:
                return f"{need.aggregate.text} is checked, but {reason}"
    return None


def _list_needs(plan: TimedPlan | ExactPlan) -> Iterator[tuple[Select, Need]]:
    if isinstance(plan, TimedPlan):
        for timed in plan.selects:
            yield from ((timed.select, need) for _, wanted in timed.parts for need in wanted)
    else:
        for exact in plan.selects:
            yield from ((exact.select, each.need) for each in exact.needs)


def _explain_aggregate(select: Select, need: Need, aggregate: Aggregate, in_time: bool) -> str | None:
    memory = find_memory(aggregate)
    if memory in (Memory.SKETCH, Memory.LIST) or aggregate.function == "COLLECT_SET":
        return f"{aggregate.function} {_IN_WINDOWS}"
    if need.values is not None:
        return f"it is not run: keeping only {need.values} values of its argument is not supported"
    if memory is Memory.COUNTS and aggregate.function not in ("COUNT", "SUM", "AVG"):
        types = {type_of(need.part, ref) for ref in refs(aggregate)}
        if aggregate.others or not types <= set(INTEGERS):
            return f"{aggregate.function} {_IN_WINDOWS}, or of one column of integers"
    streams = [o for o in select.every_occurrence if o.table.streaming]
    if aggregate.function in ORDERED and in_time and len(streams) > 1:
        return f"{aggregate.function} over a join in time is not run"
    return None
