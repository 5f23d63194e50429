"""Matches that wait for a partner, which may come any time: what is kept of them and of their partners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import prod

from millpond.plan.classes import ColumnClasses, NoPlanError, build_exact_classes
from millpond.plan.needs import Need, PartnerWait
from millpond.plan.partial_matches import TimedNeed
from millpond.plan.state import COUNT_BYTES, VALUE_BYTES, Kept
from millpond.plan.synopsis_bound import describe_column
from millpond.query.expressions import Ref
from millpond.query.parts import Part, type_of
from millpond.query.types import Family

# The least and the greatest value that a column is compared with; None without one.
_Ends = tuple[Fraction | None, Fraction | None]


def build_partner_need(wait: PartnerWait) -> TimedNeed:
    """The matches of the partners that are waited for, with the timestamps that matter."""
    return TimedNeed(wait.need, (column for column, _ in wait.lags))


def find_compared_classes(need: Need, alias: str) -> tuple[ColumnClasses, ...]:
    """The classes of the columns of an occurrence out of scope with which matches of a need are compared.

    Raises NoPlanError if they are infinitely many.
    """
    complete = TimedNeed(need, ()).sets[-1].match_set
    if complete.differing:
        raise NoPlanError(f"{alias} is in a <> join with rows that can come any time")
    compared: dict[Ref, list[_Ends]] = {}
    for requirement in complete.requirements:
        low, high = requirement.find_value_range(need.part.closure)
        for column, shift in requirement.partners:
            if column.occurrence == alias:
                compared.setdefault(column, []).append((_plus(low, shift), _plus(high, shift)))
    return tuple(_build_classes(need.part, column, compared[column]) for column in sorted(compared, key=str))


def _build_classes(part: Part, column: Ref, ends: list[_Ends]) -> ColumnClasses:
    """Every value between those that an integer column is compared with, all below, and all above."""
    type_, own = type_of(part, column), part.closure.range(column)
    if own.low is not None and own.high is not None:
        return build_exact_classes(part, column, nullable=False)
    if type_.family is not Family.NUMBER or type_.step != 1:
        raise NoPlanError(f"{column} is unbounded")
    low = own.low if own.low is not None else _pick_if_known(min, (low for low, _ in ends))
    high = own.high if own.high is not None else _pick_if_known(max, (high for _, high in ends))
    if low is None or high is None:
        raise NoPlanError(f"{column} is compared with infinitely many values")
    values = max(int(high - low) + 1, 0)
    return ColumnClasses(column, low, high, values, own.low is None, own.high is None, null=False)


def describe_wait(wait: PartnerWait, part: Part, shown: Iterable[Ref]) -> Kept:
    """The matches of a part that wait; ``shown`` are the columns that their results contain."""
    classes = [*wait.classes]
    classes += [build_exact_classes(part, ref) for ref in sorted(set(shown) - wait.refs, key=str)]
    entries = prod(each.classes for each in classes)
    size = entries * (VALUE_BYTES * (len(classes) + len(wait.lags)) + COUNT_BYTES)
    names = " and ".join(dict.fromkeys(part.select.occurrence(alias).table.name for alias in part.aliases))
    columns = tuple(
        describe_column(part if each.column not in wait.refs else wait.need.part, each) for each in classes
    )
    return Kept(names, None, columns, ("count of rows that wait for a partner",), entries, size)


def _plus(end: Fraction | None, shift: Fraction) -> Fraction | None:
    return None if end is None else end + shift


def _pick_if_known(
    pick: Callable[[Iterable[Fraction]], Fraction], ends: Iterable[Fraction | None]
) -> Fraction | None:
    every = list(ends)
    known = [end for end in every if end is not None]
    return pick(known) if len(known) == len(every) else None
