"""Filters on ranks: ``rn <= 3``, ``rn = 1``, ``rn IN (1, 2)``."""

from __future__ import annotations

from millpond.query.evaluate import compile_condition
from millpond.query.expressions import Comparison, Condition, Literal, Op, Or, Ref
from millpond.query.trees import conjuncts, refs

_UPPER = (Op.LT, Op.LE, Op.EQ)


def find_rank_limit(condition: Condition, rank: Ref) -> int | None:
    """The greatest value of a rank that passes a condition; None if there is none.

    >>> rank = Ref("t", "rn")
    >>> find_rank_limit(Comparison(rank, Op.LT, Literal(6, None)), rank)
    5
    """
    limits = [find for each in conjuncts(condition) if (find := _find_limit(each, rank)) is not None]
    return max(min(limits), 0) if limits else None


def _find_limit(condition: Condition, rank: Ref) -> int | None:
    if isinstance(condition, Or):
        limits = [find_rank_limit(each, rank) for each in condition.operands]
        known = [limit for limit in limits if limit is not None]
        return max(known) if known and len(known) == len(limits) else None
    if not isinstance(condition, Comparison):
        return None
    left, operator, right = condition.left, condition.operator, condition.right
    if right == rank:
        left, operator, right = right, operator.mirrored, left
    if left != rank or not isinstance(right, Literal) or operator not in _UPPER:
        return None
    if isinstance(right.value, bool) or not isinstance(right.value, int | float) or right.value is None:
        return None
    limit = int(right.value // 1)
    return limit - 1 if operator is Op.LT and limit == right.value else limit


def admits_first(condition: Condition, rank: Ref) -> bool:
    """Whether a condition on a rank alone is fulfilled by the first one."""
    return (
        refs(condition) == {rank}
        and compile_condition(condition, {rank.occurrence: 0})([{rank.column: 1}]) is True
    )
