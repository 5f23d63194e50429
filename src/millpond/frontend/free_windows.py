"""Reads windows of another timestamp than the time of a stream: ``window(timestamp_millis(ms), '1 minute')``.

Such a window is a column that is computed from the row, and its start stands for it.  Rows of any window may
arrive at any time, so it never closes: a group by it is like one by any other expression.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import SqlError, SqlTypeError
from millpond.frontend.constants import Bound
from millpond.frontend.joint_arguments import JointArgumentError, refuse_lifted
from millpond.frontend.row_expressions import find_derived, is_row_expression, mark_as_read
from millpond.frontend.scope import Scope
from millpond.frontend.statement import Statement
from millpond.frontend.time_columns import UnknownFormError
from millpond.frontend.time_windows import compute_window_starts, name_window, read_window_lengths
from millpond.query.expressions import Condition, IsNull, Not, Ref
from millpond.query.model import Column, Derivation
from millpond.query.types import TIME_VALUE, WINDOW, Family


def read_free_window(scope: Scope, node: exp.Expr) -> Bound | None:
    """The window as the column with its start; None if it is not over a timestamp of the row.

    A sliding window is an array of starts, for each of which the row is repeated.
    """
    if not isinstance(node, exp.Anonymous) or not is_call_of(node, "WINDOW") or not node.expressions:
        return None
    moment, *lengths = node.expressions
    moment = _write_moment(scope, moment)
    if not is_row_expression(moment):
        return None
    found = find_derived(scope, moment)
    if found is None:  # over several tables, or over one that an outer join can replace by NULLs
        refuse_lifted(scope, [moment])
        raise JointArgumentError(scope)
    alias, column = found
    statement, derivation = scope.statement, column.derivation
    assert derivation is not None
    if column.type.family in (Family.DATE, Family.STRING):
        return read_free_window(scope, _cast_moment(scope, node, moment))
    if column.type.family is not Family.TIME:
        message = f"window() needs a TIMESTAMP, but {statement.excerpt(moment)} is {column.type}"
        raise SqlTypeError(message, statement.at(node))
    width, slide, offset = _read_lengths(statement, node, lengths)
    mark_as_read(statement, node)
    plain = moment.unnest()
    shown = scope.find_column(plain)[0].column if isinstance(plain, exp.Column) else column.name
    name = f"{name_window(shown, width, slide, offset)}.start"
    micros = f"unix_micros({derivation.sql})", f"epoch_us({derivation.duckdb})"
    texts = compute_window_starts(micros, width, slide, offset)
    copies = -(-width // slide)
    start = Column(
        name,
        TIME_VALUE,
        derivation=Derivation(
            *texts, repeated=copies > 1, arguments=derivation.arguments, near=derivation.near, width=width
        ),
        cardinality=None if column.cardinality is None else column.cardinality * copies,
    )
    return Bound(scope.derive(alias, start), WINDOW, "window")


def is_call_of(node: exp.Expr, *names: str) -> bool:
    """Whether a node calls a function that sqlglot does not know; the names are in upper case."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in names


def find_window_end(scope: Scope, node: exp.Expr) -> Ref | None:
    """The end of a window that a block has as a column: of ``w``, or of ``window_time(w)``; else None.

    As a time, a window is its last microsecond.
    """
    if isinstance(node, exp.Anonymous) and is_call_of(node, "WINDOW_TIME") and len(node.expressions) == 1:
        node = node.expressions[0]
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or not scope.knows(node):
        return None
    edges = scope.resolve(node)[1].edges
    return edges[1].ref if edges is not None else None


def _write_moment(scope: Scope, node: exp.Expr) -> exp.Expr:
    """The expression of the timestamp of which windows are made; that of a window is its last microsecond."""
    end = find_window_end(scope, node.unnest())
    if end is None:
        return node
    micros = exp.UnixMicros(this=scope.make_column(end, node))
    last = exp.Sub(this=micros, expression=exp.Literal.number(1))
    moment = exp.Anonymous(this="TIMESTAMP_MICROS", expressions=[last])
    moment.parent = node.parent
    for each in moment.walk():
        scope.statement.place(each, node)
    return moment


def _cast_moment(scope: Scope, node: exp.Anonymous, moment: exp.Expr) -> exp.Expr:
    """The call with its date, or its text, cast to a timestamp."""
    statement = scope.statement
    cast = exp.Cast(this=statement.copy(moment), to=exp.DataType.build("TIMESTAMP", dialect="spark"))
    made = exp.Anonymous(this=node.this, expressions=[cast, *map(statement.copy, node.expressions[1:])])
    made.parent = node.parent
    for each in (cast, made):
        statement.place(each, node)
    mark_as_read(statement, node)
    return made


def list_free_window_filters(scope: Scope) -> Iterator[Condition]:
    """A row whose timestamp is NULL lies in no window, and is not in the result of a select with windows."""
    for occurrence in scope.occurrences:
        for column in scope.derived.get(occurrence.alias, {}).values():
            if column.derivation is not None and column.derivation.width is not None:
                start = Ref(occurrence.alias, column.name)
                yield Not(IsNull(start, f"{start} IS NULL"))


def _read_lengths(statement: Statement, node: exp.Expr, lengths: list[exp.Expr]) -> tuple[int, int, int]:
    """The width of a window, how far the next one starts after it, and where the first one starts."""
    for each in lengths:
        if not isinstance(each, exp.Literal) or not each.is_string:
            remedy = "write a duration as a string, as in window(ts, '10 minutes')"
            raise SqlError(f"{statement.excerpt(node)} is not supported", statement.at(node), remedy)
    try:
        return read_window_lengths([each.name for each in lengths])
    except UnknownFormError as problem:
        raise SqlError(f"{statement.excerpt(node)} {problem}", statement.at(node)) from None
