"""Reads calls of functions of a timestamp, each as a derived column of the table of its argument."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sqlglot import TokenType, exp

from millpond.errors import SqlError, SqlTypeError, one_line
from millpond.frontend.constants import Bound
from millpond.frontend.free_windows import find_window_end, is_call_of, read_free_window
from millpond.frontend.intervals import LONGEST_LENGTH, read_number, read_shift
from millpond.frontend.refusals import unsupported_error
from millpond.frontend.row_expressions import find_obstacle, is_row_expression, mark_as_read
from millpond.frontend.scope import Scope, SourceColumn
from millpond.frontend.spark_names import name_expression
from millpond.frontend.statement import Statement
from millpond.frontend.time_columns import Argument, UnknownFormError
from millpond.frontend.time_fields import EXTRACTED
from millpond.frontend.time_functions import find_maker, make_end, make_shift, make_window_end
from millpond.frontend.time_windows import make_free_end, make_session_end
from millpond.frontend.time_zones import find_slack
from millpond.query.calendar import DAY, TimeFunction, find_closing_function
from millpond.query.expressions import Arithmetic, Literal, Ref
from millpond.query.model import Column, Subquery
from millpond.query.types import INTERVAL, TIME_VALUE, TIMESTAMP, WINDOW, SqlType

_EDGES = ("START", "END")
_WINDOWS = ("WINDOW", "SESSION_WINDOW")
_TIMESTAMPS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
_SHIFTS = (exp.Add, exp.Sub, exp.TimestampAdd)


class WantedTimeError(Exception):
    """A block has to have another time column: a window is made of ``column``, a function of its time."""

    def __init__(self, table: str, column: str) -> None:
        super().__init__(table, column)
        self.table = table
        self.column = column


def read_time_call(scope: Scope, node: exp.Expr, grouped: bool = False) -> Bound | None:
    """The derived column that a call stands for, under Spark's name for it; None if it is no such call.

    ``grouped``: it is computed from the columns of a group, not from those of a row.
    """
    if isinstance(node, exp.Dot) and node.name.upper() in _EDGES:
        inner = read_time_call(scope, node.this)
        if inner is not None and is_window_call(node.this):
            scope.statement.leaves.update(_tokens(scope.statement, node))
            edge = pick_edge(scope, inner, node.name, grouped)
            return replace(edge, name=f"{inner.name}.{node.name.lower()}")
    if is_call_of(node, "WINDOW_TIME"):
        return _read_window_time(scope, node)
    call = _read_call(scope.statement, node)
    if call is None:
        free = read_free_window(scope, node)
        if free is None:
            _refuse_other_arguments(scope.statement, node)
        return free
    function, name, moment, arguments = call
    maker = find_maker(function)
    if maker is None:
        return None
    target = _read_moment(scope, moment)
    if target is None:
        return _read_other_window(scope, node, moment) if function in _WINDOWS else None
    ref, kind, shift = target
    if kind is not TIMESTAMP:
        if function == "WINDOW" or (function in _WINDOWS and kind is TIME_VALUE):
            return _read_other_window(scope, node, moment)
        if is_row_expression(node):
            return None
        message = f"{function} needs a TIMESTAMP, but {one_line(str(ref))} is {kind}"
        raise SqlTypeError(message, scope.statement.at(node))
    table = scope.occurrence_of(ref).table
    is_moment = isinstance(table.block, Subquery) and find_time_function(scope.column(ref)) is not None
    if is_moment and table.time is not None:
        raise WantedTimeError(table.name, ref.column)
    argument = _argument(scope, ref, shift)
    if function in _WINDOWS and not _is_windowed(argument, function):
        return _read_other_window(scope, node, moment)
    try:
        column = maker(argument, function, arguments)
    except UnknownFormError as problem:
        message = f"{scope.statement.excerpt(node)} {problem}"
        raise SqlError(message, scope.statement.at(node)) from None
    scope.statement.leaves.update(_tokens(scope.statement, node))
    kind = WINDOW if function in _WINDOWS else column.type
    return Bound(scope.derive(ref.occurrence, column), kind, name)


def _read_window_time(scope: Scope, node: exp.Expr) -> Bound | None:
    """``window_time(w)``, the last microsecond of a window that a block has as a column."""
    end = find_window_end(scope, node)
    if end is None:
        return None
    mark_as_read(scope.statement, node)
    column = make_shift(_argument(scope, end, -1))
    return Bound(scope.derive(end.occurrence, column), TIMESTAMP, name_expression(scope.statement, node))


def _is_windowed(argument: Argument, function: str) -> bool:
    """Whether windows can be made of a timestamp: the time column, or what is a fixed time after it."""
    is_shifted = bool(argument.shift) and function == "SESSION_WINDOW"
    return argument.is_time and argument.inner is None and not is_shifted


def _read_other_window(scope: Scope, node: exp.Expr, moment: exp.Expr) -> Bound:
    """The window of something else than the time of a stream."""
    free = read_free_window(scope, node)
    if free is None:
        raise _refuse_moment(scope.statement, node, moment)
    return free


def _refuse_moment(statement: Statement, node: exp.Expr, moment: exp.Expr) -> SqlError:
    """The error for windows of something else than the time of a stream."""
    function, shown = statement.word(_tokens(statement, node)[0]).lower(), statement.excerpt(moment)
    message = f"{function}() over {shown} is not supported: it needs the time column of a stream"
    remedy = f"if it is the time of the rows, declare TBLPROPERTIES ('time' = '{one_line(moment.name)}')"
    return SqlError(message, statement.at(node), remedy * isinstance(moment, exp.Column))


def read_shifted_time(scope: Scope, node: exp.Expr) -> Bound | None:
    """The column that is a timestamp plus or minus a constant; None if a node is none.

    Lengths that depend on the calendar are left to Spark.
    """
    target = _read_moment(scope, node) if isinstance(node, _SHIFTS) else None
    if target is None:
        return _read_shifted_date(scope, node)
    ref, kind, shift = target
    if kind is not TIMESTAMP or not shift:
        return None
    mark_as_read(scope.statement, node)
    column = make_shift(_argument(scope, ref, shift))
    return Bound(scope.derive(ref.occurrence, column), TIMESTAMP, name_expression(scope.statement, node))


def _read_moment(scope: Scope, node: exp.Expr) -> tuple[Ref, SqlType | None, int] | None:
    """A column, or a function of time as a column, its type, and the microseconds that are added to it."""
    node, shift = _strip_conversion(scope, node), 0
    found = read_shift(node)
    if found is not None:
        node, length = found
        node, shift = _strip_conversion(scope, node), length.fixed or 0
        if not length.is_exact(find_slack(scope.statement.time_zone)):
            return None
    end = find_window_end(scope, node)
    if end is not None:
        return end, scope.column(end).type, shift - 1
    if isinstance(node, exp.Column):
        is_known = not isinstance(node.this, exp.Star) and scope.knows(node)
        return (*scope.find_column(node), shift) if is_known else None
    called = read_time_call(scope, node) if is_row_expression(node) else None
    if called is None or called.type is not TIMESTAMP or not isinstance(called.expression, Ref):
        return None
    return called.expression, TIMESTAMP, shift


def _strip_conversion(scope: Scope, node: exp.Expr) -> exp.Expr:
    """A node without parentheses, and without conversions of a timestamp to a timestamp."""
    node = node.unnest()
    inner = node
    while _is_conversion(inner):
        inner = inner.this.unnest()
    if inner is node or not isinstance(inner, exp.Column) or not scope.knows(inner):
        return node
    return inner if scope.find_column(inner)[1] is TIMESTAMP else node


def _is_conversion(node: exp.Expr) -> bool:
    """Whether a node converts its operand to a timestamp: ``CAST(ts AS TIMESTAMP)``, ``to_timestamp(ts)``."""
    return isinstance(node, exp.Cast) and node.to.this in _TIMESTAMPS and not node.args.get("format")


def _read_shifted_date(scope: Scope, node: exp.Expr) -> Bound | None:
    """The date of a timestamp plus or minus a number of days, where all days are equally long."""
    match node:
        case exp.TsOrDsAdd():
            moment, count = node.this, read_number(node.expression)
        case exp.Add() | exp.Sub():
            moment, count = node.this, read_number(node.expression)
            count = -count if count is not None and isinstance(node, exp.Sub) else count
            if not _is_date(moment):
                return None
        case _:
            return None
    moment = moment.unnest()
    moment = moment.this if _is_date(moment) else moment
    target = _read_moment(scope, moment) if is_row_expression(node) else None
    if target is None or target[1] is not TIMESTAMP or count is None or count.denominator != 1:
        return None
    ref, _, shift = target
    if abs(count) * DAY > LONGEST_LENGTH:
        return None
    argument, maker = _argument(scope, ref, shift + int(count) * DAY), find_maker("CAST")
    if argument.slack or maker is None:
        return None
    mark_as_read(scope.statement, node)
    column = maker(argument, "CAST", [])
    return Bound(scope.derive(ref.occurrence, column), column.type, name_expression(scope.statement, node))


def _is_date(node: exp.Expr) -> bool:
    """Whether a node converts its operand to a date."""
    node = node.unnest()
    if isinstance(node, exp.TsOrDsToDate):
        return not node.args.get("format")
    return isinstance(node, exp.Cast) and node.to.this is exp.DType.DATE


def read_date_of(scope: Scope, column: exp.Column) -> Bound | None:
    """The date of a timestamp; None if the column is none."""
    ref, kind = scope.find_column(column)
    maker = find_maker("CAST")
    if kind is not TIMESTAMP or maker is None:
        return None
    made = maker(_argument(scope, ref), "CAST", [])
    return Bound(scope.derive(ref.occurrence, made), made.type, column.name)


def pick_edge(scope: Scope, window: Bound, edge: str, grouped: bool) -> Bound:
    """The start or the end of a window; ``grouped`` as in ``read_time_call``."""
    if edge.upper() == "START":
        return Bound(window.expression, TIMESTAMP, "start")
    start = window.expression
    assert isinstance(start, Ref)
    column = scope.column(start)
    if is_session(column):
        end = make_session_end(find_argument(scope, start), column)
        return Bound(scope.derive(start.occurrence, end), TIMESTAMP, "end")
    of_block = _find_block_window(scope, start)
    width = find_window_width(column) if of_block is None else of_block.width
    if grouped and width is not None:
        length = Literal(timedelta(microseconds=width), INTERVAL)
        return Bound(Arithmetic("+", start, length), TIMESTAMP, "end")
    if of_block is not None and of_block.edges is not None and of_block.edges[1].ref is not None:
        return Bound(of_block.edges[1].ref, TIMESTAMP, "end")
    function = find_time_function(column)
    if function is None:
        return Bound(scope.derive(start.occurrence, make_free_end(column)), TIMESTAMP, "end")
    end = make_window_end(find_argument(scope, start), function, column)
    return Bound(scope.derive(start.occurrence, end), TIMESTAMP, "end")


def _find_block_window(scope: Scope, start: Ref) -> SourceColumn | None:
    """The window with this start that a block has as a column."""
    columns = (column for source in scope.visible for column in source.columns)
    return next((each for each in columns if each.ref == start and each.edges is not None), None)


def find_time_function(column: Column) -> TimeFunction | None:
    """What function of time a column is, if it is one."""
    return column.derivation.time if column.derivation is not None else None


def find_window_width(column: Column) -> int | None:
    """How long the windows with a column as their start are, in microseconds; None if they are of a block."""
    function, derivation = find_time_function(column), column.derivation
    if function is not None:
        return function.width
    return derivation.width if derivation is not None else None


def is_session(column: Column) -> bool:
    """Whether a column is an edge of a session window."""
    return column.derivation is not None and column.derivation.gap is not None


def is_window_call(node: exp.Expr) -> bool:
    """Whether a node is a call of ``window`` or ``session_window``."""
    return is_call_of(node, *_WINDOWS)


def _refuse_other_arguments(statement: Statement, node: exp.Expr) -> None:
    """Refuse a call of a function of time whose argument is not a column."""
    if isinstance(node, exp.Func) and not isinstance(node, exp.Cast):
        function = statement.word(_tokens(statement, node)[0])
        if is_row_expression(node):
            return
        if function == "EXTRACT" or find_maker(function) is not None:
            obstacle = node if is_window_call(node) else find_obstacle(node)
            if not isinstance(obstacle, exp.AggFunc) and obstacle.find(exp.Column) is None:
                raise unsupported_error(statement, obstacle)
            message = f"{statement.excerpt(node)} is not supported"
            remedy = f"apply {function} to a TIMESTAMP column, with constants as its other arguments"
            if is_window_call(node) and node.find(exp.Interval):
                remedy = "write a duration as a string, as in window(ts, '10 minutes')"
            raise SqlError(message, statement.at(node), remedy)


# --- calls ---------------------------------------------------------------------------------------------


def _tokens(statement: Statement, node: exp.Expr) -> range:
    first, last = statement.span(node)
    if isinstance(node, exp.Cast) and statement.word(last + 1) == "::":
        last += 2
    return range(first, last + 1)


def _read_call(statement: Statement, node: exp.Expr) -> tuple[str, str, exp.Expr, list[str]] | None:
    """The function, the name that Spark gives the call, its timestamp, and its other arguments."""
    columns = list(node.find_all(exp.Column))
    if not isinstance(node, exp.Func) or len(columns) != 1 or isinstance(columns[0].this, exp.Star):
        return None
    column: exp.Expr = columns[0]
    while column.parent is not None and column.parent is not node and not _is_implied(column.parent):
        column = column.parent
    shown_name = column.name if isinstance(column, exp.Column) else name_expression(statement, column)
    if isinstance(node, exp.Cast) and node.this is column and node.to.this is exp.DType.DATE:
        return "CAST", shown_name, column, []
    if isinstance(node, exp.Cast) and node.this is column and node.to.this is exp.DType.BIGINT:
        return "UNIX_SECONDS", shown_name, column, []  # a timestamp as a number counts seconds
    tokens = _tokens(statement, node)
    function = statement.word(tokens[0])
    if isinstance(node, exp.Extract) and node.expression is column:
        field = node.this.name
        name = f"extract({field.lower()} FROM {shown_name})"
        return EXTRACTED.get(field.upper(), function), name, column, []
    if statement.word(tokens[0] + 1) != "(" or statement.word(tokens[-1]) != ")":
        return None
    arguments: list[str] = []
    shown: list[str] = []
    at = _tokens(statement, columns[0])[0]
    for piece in split_at_commas(statement, tokens[2:-1]):
        token = statement.tokens[piece[0]]
        if at in piece:
            shown.append(shown_name)
        elif token.token_type is TokenType.STRING and len(piece) == 1:
            arguments.append(token.text)
            shown.append(token.text)
        else:
            return None
    if function == "DATE_PART" and len(arguments) == 1:
        name = f"date_part({arguments[0]}, {shown_name})"
        return EXTRACTED.get(arguments[0].upper(), function), name, column, []
    if function in _WINDOWS:
        return function, function.lower(), column, arguments
    if function in ("UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP"):
        shown.append("yyyy-MM-dd HH:mm:ss")
    name = shown_name if function == "DATE" else f"{function.lower()}({', '.join(shown)})"
    return function, name, column, arguments


def _is_implied(node: exp.Expr) -> bool:
    """Whether a node is a conversion that sqlglot puts around an argument of the function above it."""
    return isinstance(node, exp.TimeStrToTime) or (
        isinstance(node, exp.TsOrDsToDate) and not node.args.get("safe")
    )


def split_at_commas(statement: Statement, tokens: range) -> list[range]:
    """The arguments of a call, given the tokens between its parentheses."""
    pieces, first, depth = list[range](), tokens.start, 0
    for index in tokens:
        depth += {"(": 1, ")": -1}.get(statement.word(index), 0)
        if depth == 0 and statement.tokens[index].token_type is TokenType.COMMA:
            pieces.append(range(first, index))
            first = index + 1
    return [piece for piece in (*pieces, range(first, tokens.stop)) if piece]


def find_argument(scope: Scope, ref: Ref) -> Argument:
    """The time column, with what is added to it, that a column of an occurrence is a function of."""
    time, function = scope.occurrence_of(ref).table.time, find_time_function(scope.column(ref))
    assert time is not None
    return _argument(scope, Ref(ref.occurrence, time), function.shift if function is not None else 0)


def _argument(scope: Scope, ref: Ref, shift: int = 0) -> Argument:
    """A column plus some microseconds, or the time column that it is computed from in the same way."""
    table, column = scope.occurrence_of(ref).table, scope.column(ref)
    slack, function = find_slack(scope.statement.time_zone), find_time_function(column)
    if function is not None and table.streaming and table.time is not None and column.derivation is not None:
        if function.unit == "microsecond" and not function.lag and column.type is TIMESTAMP:
            time = scope.column(Ref(ref.occurrence, table.time))
            return Argument(table.name, time, slack, True, shift + function.shift)
        is_plain = function.monotone and function.slide is None
        return Argument(table.name, column, slack, is_plain, shift, function)
    return Argument(table.name, column, slack, table.streaming and table.time == ref.column, shift)


# --- the ends of buckets -------------------------------------------------------------------------------


def add_bucket_ends(scope: Scope, columns: list[Ref]) -> None:
    """Derive, for each occurrence, the end of the bucket that the given columns of it form together."""
    for occurrence in scope.occurrences:
        made = [scope.column(ref) for ref in columns if ref.occurrence == occurrence.alias]
        functions = {c.name: f for c in made if (f := find_time_function(c)) is not None}
        closing = find_closing_function(functions.values())
        if closing is None or occurrence.table.time is None:
            continue
        ending = [c for c in made if closing.end is not None and functions.get(c.name) == closing]
        argument = _argument(scope, Ref(occurrence.alias, occurrence.table.time), closing.shift)
        scope.derive(occurrence.alias, make_end(argument, closing, ending[0] if ending else None))
