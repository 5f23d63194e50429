"""Reads conditions of WHERE and ON that name the current time: ``at > now() - INTERVAL 1 HOUR``.

The select is joined with the current time, a stream with one row for each moment (``query/current_time.py``).
No row is later than the current time.  The groups of such a select, and the rows of a DISTINCT, are those of
one moment: they are grouped by the current time, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.conditions import Rest, conjunction, read_row_condition
from millpond.frontend.expressions import Reader
from millpond.frontend.joins import FromClause, Surroundings
from millpond.frontend.row_expressions import mark_as_read
from millpond.frontend.scope import Scope
from millpond.query.current_time import CLOCK, find_now, is_clock
from millpond.query.expressions import TRUE, Comparison, Condition, Op, Ref
from millpond.query.model import Join, JoinSide, Occurrence, Select, Term

_MOMENTS = (exp.CurrentTimestamp, exp.CurrentTimestampLTZ, exp.Localtimestamp)
_DAYS = (exp.CurrentDate,)
# The key of a node that has taken the place of a call; the select may be read again.
_IS_NOW = "is the current time"


def join_current_time(clause: FromClause, where: exp.Expr | None, around: Surroundings) -> FromClause:
    """FROM, joined with the current time if WHERE or ON names it; there it becomes a column."""
    places = [where] if where is not None else []
    places += [operand for operand, _ in clause.rest]
    calls = [call for place in places for call in _find_calls(place)]
    clocks = [o for o in clause.occurrences if is_clock(o.table)]
    if not calls and not clocks:
        return clause
    conditions = [clause.condition] if clause.condition != TRUE else []
    if not clocks:
        clocks = [Occurrence(around.take(CLOCK.name), CLOCK)]
        occurrences = (*clause.occurrences, *clocks)
        joins = (*clause.joins, Join(clocks[0].alias, JoinSide.INNER)) if clause.joins else ()
        scope = replace(clause.scope, occurrences=occurrences, sources=clause.scope.visible)
        clause = replace(clause, occurrences=occurrences, joins=joins, scope=scope)
        now = _now_of(clocks[0])
        conditions += [_is_not_later(o, now) for o in occurrences[:-1] if o.table.streaming and o.table.time]
    now = _now_of(clocks[0])
    conditions += [Comparison(_now_of(other), Op.EQ, now) for other in clocks[1:]]
    for call in calls:
        _replace(clause.scope, call, now)
    conditions += _read_rest(clause.scope, clause.rest)
    return replace(clause, condition=conjunction(conditions))


def group_by_moment(clause: FromClause, group_by: tuple[Ref, ...] | None) -> tuple[Ref, ...] | None:
    """The group columns of a select with groups, and the current time if its conditions name it."""
    now = find_now(clause.occurrences)
    return group_by if now is None else (*(group_by or ()), now)


def split_by_moment(term: Term) -> Term:
    """A DISTINCT select whose conditions name the current time as groups of one moment, where it can be."""
    if not term.distinct or len(term.selects) != 1:
        return term
    (select,) = term.selects
    columns = [item.expression for item in select.items]
    now = find_now(select.occurrences)
    if now is None or select.group_by is not None:
        return term
    shown = tuple(each for each in columns if isinstance(each, Ref))
    grouped: Select = replace(select, group_by=(*dict.fromkeys(shown), now))
    return Term((grouped,), False) if len(shown) == len(columns) else term


def _find_calls(node: exp.Expr) -> Iterator[exp.Expr]:
    """The calls of the current time in a condition, without those in its subqueries."""
    for each in list(node.walk(prune=lambda found: isinstance(found, exp.Query | exp.Subquery))):
        is_call = isinstance(each, (*_MOMENTS, *_DAYS)) or each.meta.get(_IS_NOW)
        if is_call or (isinstance(each, exp.Anonymous) and each.name.upper() == "NOW"):
            yield each


def _replace(scope: Scope, call: exp.Expr, now: Ref) -> None:
    """Put the column of the current time, or its date, in the place of a call."""
    if isinstance(call, exp.Column):  # replaced when the select was read before
        scope.refer(call, now)
        return
    if "start" in call.meta:  # not CURRENT_TIMESTAMP without parentheses
        mark_as_read(scope.statement, call)
    column = scope.make_column(now, call)
    column.meta[_IS_NOW] = True
    made: exp.Expr = column
    if isinstance(call, _DAYS):
        made = exp.Cast(this=column, to=exp.DataType.build("date"))
        scope.statement.place(made, call)
    scope.statement.place(column, call)
    call.replace(made)


def _read_rest(scope: Scope, rest: Rest) -> Iterator[Condition]:
    """The conditions of ON that can be read now; the others stay."""
    for found in list(rest):
        if not any(each.meta.get(_IS_NOW) for each in found[0].walk()):
            continue
        try:
            condition = read_row_condition(Reader(scope.statement, scope), found[0])
        except SqlError:
            continue
        rest.remove(found)
        yield condition


def _now_of(clock: Occurrence) -> Ref:
    now = find_now([clock])
    assert now is not None
    return now


def _is_not_later(occurrence: Occurrence, now: Ref) -> Comparison:
    """A row is at most as late as the current time."""
    assert occurrence.table.time is not None
    time = Ref(occurrence.alias, occurrence.table.time)
    return Comparison(time, Op.LE, now, f"{time} <= now()")
