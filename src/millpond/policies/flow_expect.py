"""FlowExpect (section 3): makes the best predetermined plan for the next steps, anew at every step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from ortools.graph.python import min_cost_flow

from millpond.models.array_types import Bools, Floats, Ints, integers
from millpond.models.models import Model, Past
from millpond.policies.policy import Candidates, Policy, R, S

# Benefits are probabilities; the solver needs integers.
UNIT = 1_000_000_000
# The number of relative positions of the two streams for which benefits are cached.
MOST_POSITIONS = 10_000


@dataclass(frozen=True, eq=False)
class FlowPlan:
    """The candidates that the best predetermined plan keeps, and its expected benefit (Theorem 2)."""

    keep: Bools
    benefit: float


@dataclass(frozen=True, eq=False)
class _FlowGraph:
    """The arcs of the graph for given numbers of candidates and steps; only their costs change.

    A unit of flow is a place in memory.  It waits in the pool of a step, or holds a tuple from its arrival
    until it returns to the pool of a later step.
    """

    tails: Ints
    heads: Ints
    capacities: Ints
    tuples: Ints  # of each arc that holds a tuple: the tuple
    steps: Ints  # and the step whose benefit it earns, from 1


@lru_cache(maxsize=64)
def _build_graph(candidates: int, ahead: int, size: int) -> _FlowGraph:
    arrivals = [0] * candidates + [step for step in range(1, ahead) for _ in range(2)]
    tails, heads, capacities = list(range(ahead)), list(range(1, ahead + 1)), [size] * ahead
    tuples, steps, back_tails, back_heads = [], [], [], []
    node = ahead + 1
    for number, arrived in enumerate(arrivals):
        tail = arrived
        for step in range(arrived + 1, ahead + 1):
            tails.append(tail)
            heads.append(node)
            tuples.append(number)
            steps.append(step)
            back_tails.append(node)
            back_heads.append(step)
            tail, node = node, node + 1
    ones = [1] * (len(tuples) + len(back_tails))
    return _FlowGraph(
        integers(tails + back_tails),
        integers(heads + back_heads),
        integers(capacities + ones),
        integers(tuples),
        integers(steps),
    )


def find_best_plan(certain: Floats, uncertain: Floats, size: int) -> FlowPlan:
    """The predetermined plan with the highest expected benefit for ``size`` places (Theorem 2, Corollary 6).

    ``certain[i, j]`` is the benefit of candidate i at step j+1 from now; ``uncertain[i, j]`` that of the i-th
    tuple still to come: two arrive at each step but the last.
    """
    candidates, ahead = certain.shape
    graph = _build_graph(candidates, ahead, size)
    benefits = np.vstack([certain, uncertain.reshape(-1, ahead)])[graph.tuples, graph.steps - 1]
    costs = np.zeros(len(graph.tails), np.int64)
    costs[ahead : ahead + len(benefits)] = -np.rint(benefits * UNIT).astype(np.int64)
    solver = min_cost_flow.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(graph.tails, graph.heads, graph.capacities, costs)
    solver.set_nodes_supplies(np.array([0, ahead]), np.array([size, -size]))
    if solver.solve() != solver.OPTIMAL:
        raise RuntimeError("OR-tools did not solve the flow of FlowExpect")
    held = solver.flows(np.arange(ahead, ahead + len(benefits))) > 0
    earned = np.bincount(graph.tuples[held], benefits[held], len(certain) + len(uncertain))
    keep = np.zeros(candidates, bool)
    keep[graph.tuples[held & (graph.steps == 1)]] = True
    return FlowPlan(keep & (earned[:candidates] > 1 / UNIT), float(benefits[held].sum()))


class FlowExpect(Policy):
    """Keeps what the best predetermined plan for the next ``ahead`` steps keeps; plans anew at every step.

    Not optimal for any ``ahead``, because a predetermined plan does not react to arrivals (section 3.4).
    """

    def __init__(self, r: Model, s: Model, ahead: int, size: int) -> None:
        self._models = (r, s)
        self._ahead = ahead
        self._size = size
        self._last = [0, 0]
        self._cache: dict[tuple[int, ...], Floats] = {}

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for side, values in enumerate((r, s)):
            if len(values):
                self._last[side] = int(values[-1])

    def scores(self, now: int, candidates: Candidates) -> Floats:
        """At least 1 for what the plan keeps; ties are broken by the expected matches within the horizon."""
        certain = self.certain(now, candidates)
        plan = find_best_plan(certain, self.uncertain(now), self._size)
        scores: Floats = plan.keep + certain.sum(axis=1) / (2 * self._ahead)
        return scores

    def certain(self, now: int, candidates: Candidates) -> Floats:
        """The expected benefit of each candidate at each of the next steps."""
        benefits = np.empty((len(candidates), self._ahead))
        for side in (R, S):
            own = candidates.side == side
            partner = 1 - side
            past = Past(now, self._last[partner])
            benefits[own] = self._models[partner].chances(candidates.value[own], self._ahead, past).T
        return benefits

    def uncertain(self, now: int) -> Floats:
        """The expected benefit of each future tuple at each step: R's and S's of the next step, and so on.

        It depends only on the relative position of the streams, and is cached by it.
        """
        try:
            position = self._relative_position(now)
        except TypeError:  # a model whose future does not repeat
            return self._future_benefits(now)
        if position not in self._cache:
            if len(self._cache) >= MOST_POSITIONS:
                self._cache.clear()
            self._cache[position] = self._future_benefits(now)
        return self._cache[position]

    def _relative_position(self, now: int) -> tuple[int, ...]:
        found: list[int] = []
        whole = []
        for side in (R, S):
            model = self._models[side]
            row, origin = model.place(np.array(now), np.array(self._last[side]))
            found += [int(row), int(origin) % model.scale]
            whole.append(int(origin) // model.scale)
        return (*found, whole[R] - whole[S])

    def _future_benefits(self, now: int) -> Floats:
        laws = []
        bounds = [self._bounds(side, now) for side in (R, S)]
        values = np.arange(max(low for low, _ in bounds), min(high for _, high in bounds) + 1)
        for side in (R, S):
            laws.append(self._models[side].chances(values, self._ahead, Past(now, self._last[side])))
        meet = laws[R] @ laws[S].T  # [i, j]: R's tuple of step i+1 equals S's of step j+1
        benefits = np.stack([meet, meet.T], axis=1)[:-1]  # entries before a tuple arrives are not used
        return benefits.reshape(-1, self._ahead)

    def _bounds(self, side: int, now: int) -> tuple[int, int]:
        """The lowest and highest value that the stream can take in the next steps."""
        low, high = self._models[side].reach(self._ahead)
        origin = self._models[side].origin_value(Past(now, self._last[side]))
        return low + origin, high + origin

    def state(self) -> dict[str, Any]:
        return {"last": list(self._last)}

    def load(self, state: dict[str, Any]) -> None:
        self._last = list(state["last"])
