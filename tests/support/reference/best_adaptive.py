"""The best adaptive strategy by exhaustive search: the definition of optimality in section 3.3."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product

from millpond.errors import MillpondError
from tests.support.reference.known_streams import Scripted

# The most states that a search may visit.
LARGEST = 2_000_000

Kept = tuple[tuple[int, int], ...]  # (side, value) of each kept tuple, sorted


def best_adaptive(r: Scripted, s: Scripted, candidates: Kept, size: int, now: int, ahead: int) -> float:
    """The highest expected number of results during steps now+1 … now+ahead over all strategies."""
    return max(first_choices(r, s, candidates, size, now, ahead).values())


def first_choices(
    r: Scripted, s: Scripted, candidates: Kept, size: int, now: int, ahead: int
) -> dict[Kept, float]:
    """For each set that can be kept now, the highest expected number of results that it leads to.

    A strategy sees everything that has arrived before it chooses.  The search is exponential in ``ahead``;
    large ones are refused.
    """
    _guard(r, s, size + 2, now, ahead)

    @cache
    def value(candidates: Kept, step: int) -> float:
        """The expected results from step ``step`` + 1 on, before the choice among the candidates."""
        if step == now + ahead:
            return 0.0
        return max(outcome(choice, step + 1) for choice in choices(candidates))

    def choices(candidates: Kept) -> set[Kept]:
        return {tuple(sorted(kept)) for kept in combinations(candidates, min(size, len(candidates)))}

    def outcome(choice: Kept, step: int) -> float:
        total = 0.0
        for (r_value, r_chance), (s_value, s_chance) in product(_support(r, step), _support(s, step)):
            found = sum((s_value if side == 0 else r_value) == own for side, own in choice)
            after = tuple(sorted((*choice, (0, r_value), (1, s_value))))
            total += r_chance * s_chance * (found + value(after, step))
        return total

    return {choice: outcome(choice, now + 1) for choice in choices(candidates)}


def _support(model: Scripted, step: int) -> list[tuple[int, float]]:
    noise = model.steps[step]
    return [(noise.first + i, float(w)) for i, w in enumerate(noise.weights) if w > 0]


def _guard(r: Scripted, s: Scripted, candidates: int, now: int, ahead: int) -> None:
    nodes = 1
    for step in range(now + 1, now + ahead + 1):
        nodes *= len(_support(r, step)) * len(_support(s, step)) * max(1, candidates * (candidates - 1) // 2)
        if nodes > LARGEST:
            raise MillpondError(
                f"an exhaustive search over {ahead} steps would visit more than {LARGEST:,} states",
                remedy="look fewer steps ahead",
            )
