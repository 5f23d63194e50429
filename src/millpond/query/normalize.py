"""Normal forms of conditions: NOT pushed to the literals, OR expanded to branches, branches made disjoint.

All of it is sound in SQL's three-valued logic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millpond.query.expressions import And, Comparison, Condition, IsNull, Not, NotTrue, Or, Ref, Truth
from millpond.query.trees import aliases_in, refs

# The most parts of a condition that are analysed.
MAX_PARTS = 256
_MAX_BRANCHES = 1024

# A conjunction of literals: comparisons, IS NULL, NOT IS NULL.
Branch = tuple[Condition, ...]


class TooManyParts(Exception):
    """The condition has more branches than the limit."""


def push_negations(cond: Condition, negated: bool = False) -> Condition:
    """Push NOT down to the literals by De Morgan's laws, which hold in three-valued logic."""
    match cond:
        case Truth(value=value):
            return Truth(not value) if negated and value is not None else cond
        case Comparison(operator=op):
            return replace(cond, operator=op.opposite) if negated else cond
        case IsNull():
            return Not(cond) if negated else cond
        case Not(operand=operand):
            return push_negations(operand, not negated)
        case And(operands=operands) | Or(operands=operands):
            inner = tuple(push_negations(c, negated) for c in operands)
            return _flatten(Or if isinstance(cond, And) == negated else And, inner)
        case NotTrue():
            raise ValueError("IS NOT TRUE is not part of the language")


def _flatten(kind: type[And] | type[Or], operands: Iterable[Condition]) -> Condition:
    """The connective, flattened and without constants."""
    decisive, neutral = (Truth(True), Truth(False)) if kind is Or else (Truth(False), Truth(True))
    flat: list[Condition] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, kind) else (operand,)
    if decisive in flat:
        return decisive
    # A row qualifies only if the condition is true, so UNKNOWN counts as FALSE.
    kept = [c for c in flat if c != neutral and not (kind is Or and c == Truth(None))]
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


def expand_branches(cond: Condition) -> tuple[Branch, ...]:
    """The disjunctive normal form of a condition whose NOTs are at the literals."""
    match cond:
        case Or(operands=operands):
            out = tuple(branch for c in operands for branch in expand_branches(c))
        case And(operands=operands):
            out = ((),)
            for c in operands:
                out = tuple(left + right for left in out for right in expand_branches(c))
                if len(out) > _MAX_BRANCHES:
                    raise TooManyParts
        case Truth(value=True):
            return ((),)
        case Truth():
            return ()
        case _:
            return ((cond,),)
    if len(out) > _MAX_BRANCHES:
        raise TooManyParts
    return out


def make_disjoint(
    branches: tuple[Branch, ...], non_null: frozenset[Ref], filters_only: bool = False
) -> tuple[Branch, ...]:
    """Branches of which exactly one is true on every row where one of the given branches is true.

    Branches that only filter come first: the rows that they accept need no join, and the other branches
    get only the remaining rows.  With ``filters_only``, branches that join may still overlap.
    """
    ordered = sorted(branches, key=_is_join)
    out: list[Branch] = []
    for j, branch in enumerate(ordered):
        pieces: list[Branch] = [branch]
        for earlier in ordered[:j]:
            if filters_only and _is_join(earlier):
                continue
            refusals = _complement(earlier, non_null | find_non_null(branch))
            pieces = [piece + refusal for piece in pieces for refusal in refusals]
            if len(pieces) > MAX_PARTS:
                raise TooManyParts
        out += pieces
    return tuple(out)


def _is_join(branch: Branch) -> bool:
    """Some literal of the branch compares columns of two occurrences."""
    return any(len(aliases_in(literal)) > 1 for literal in branch)


def _complement(branch: Branch, non_null: frozenset[Ref]) -> list[Branch]:
    """Disjoint branches that cover the rows on which ``branch`` is false or unknown."""
    out: list[Branch] = []
    for i, literal in enumerate(branch):
        known = non_null | find_non_null(branch[:i])
        nullable: list[Ref] = []
        if isinstance(literal, Comparison):
            nullable = sorted(refs(literal) - known, key=str)
        for k, ref in enumerate(nullable):
            present = tuple(Not(IsNull(r)) for r in nullable[:k])
            out.append((*branch[:i], *present, IsNull(ref)))
        out.append((*branch[:i], push_negations(literal, negated=True)))
    return out


def find_non_null(literals: Iterable[Condition]) -> frozenset[Ref]:
    """The columns that cannot be NULL if the literals are true."""
    found: frozenset[Ref] = frozenset()
    for literal in literals:
        match literal:
            case Comparison():
                found |= refs(literal)
            case Not(operand=IsNull(operand=operand)):
                found |= refs(operand)
    return found
