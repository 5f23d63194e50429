"""Reads window functions: ``function(…) OVER (…)``, named windows (WINDOW) and QUALIFY.

A select with window functions is a select over a table with their values as columns (``Windowed``).  In the
tree, each function is replaced by its column, so that the rest of the select is read as any other, and the
condition of QUALIFY takes the place of WHERE, which belongs to the rows below the functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError, one_line
from millpond.frontend.constants import read_constant
from millpond.frontend.expressions import find_aggregate_type, strip_parentheses
from millpond.frontend.intervals import read_interval
from millpond.frontend.joins import FromClause
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.row_expressions import find_obstacle, read_row_expression
from millpond.frontend.scope import Scope, list_names, read_name
from millpond.frontend.select_items import replace_alias
from millpond.frontend.spark_names import name_expression
from millpond.frontend.statement import AGGREGATES, Statement
from millpond.frontend.time_calls import add_bucket_ends
from millpond.frontend.time_counts import read_function_of_time
from millpond.query.expressions import TRUE, Condition, Literal, Ref
from millpond.query.model import (
    Column,
    Frame,
    FrameUnit,
    Occurrence,
    SortKey,
    Table,
    Windowed,
    WindowFunction,
)
from millpond.query.trees import rename_refs, renaming
from millpond.query.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    TIME_VALUE,
    Family,
    SqlType,
)
from millpond.query.window_functions import WINDOW_FUNCTIONS, FunctionKind

_NAMES: dict[type[exp.Expr], str] = {
    **{exp.RowNumber: "ROW_NUMBER", exp.Rank: "RANK", exp.DenseRank: "DENSE_RANK", exp.Ntile: "NTILE"},
    **{exp.PercentRank: "PERCENT_RANK", exp.CumeDist: "CUME_DIST", exp.Lag: "LAG", exp.Lead: "LEAD"},
    **{exp.FirstValue: "FIRST_VALUE", exp.LastValue: "LAST_VALUE", exp.NthValue: "NTH_VALUE"},
    **{exp.First: "FIRST_VALUE", exp.Last: "LAST_VALUE"},
    **{exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG", exp.Min: "MIN", exp.Max: "MAX"},
    **{exp.Median: "MEDIAN", exp.CountIf: "COUNT_IF", exp.LogicalAnd: "BOOL_AND", exp.LogicalOr: "BOOL_OR"},
    **{exp.Variance: "VAR_SAMP", exp.VariancePop: "VAR_POP", exp.Stddev: "STDDEV_SAMP"},
    **{exp.StddevSamp: "STDDEV_SAMP", exp.StddevPop: "STDDEV_POP"},
    **{exp.ArgMax: "MAX_BY", exp.ArgMin: "MIN_BY"},
}
_TYPES = {
    **dict.fromkeys(("ROW_NUMBER", "RANK", "DENSE_RANK", "NTILE"), INT),
    **dict.fromkeys(("PERCENT_RANK", "CUME_DIST"), DOUBLE),
    **dict.fromkeys(("VAR_SAMP", "VAR_POP", "STDDEV_SAMP", "STDDEV_POP"), DOUBLE),
    **dict.fromkeys(("BOOL_AND", "BOOL_OR"), BOOLEAN),
    "COUNT_IF": BIGINT,
}
_ROW = "CURRENT ROW"
_NUMERIC = ("SUM", "AVG", "MEDIAN", "VAR_SAMP", "VAR_POP", "STDDEV_SAMP", "STDDEV_POP")
_INTERVALS = "write INTERVAL 10 SECONDS; the units are microseconds up to weeks"


def list_window_functions(node: exp.Select) -> list[exp.Window]:
    """The window functions in the select list and in QUALIFY, without those of subqueries."""
    places = [*node.expressions, *filter(None, [node.args.get("qualify")])]
    return [
        each
        for place in places
        for each in place.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query))
        if isinstance(each, exp.Window)
    ]


def copy_select(statement: Statement, node: exp.Select) -> exp.Select:
    """A copy of a select whose nodes have the positions of the original, which may be read several times."""
    copied = statement.copy(node)
    assert isinstance(copied, exp.Select)
    copied.parent = node.parent
    return copied


def replace_aliases(scope: Scope, node: exp.Select) -> None:
    """Put select items in place of their aliases in QUALIFY."""
    qualify = node.args.get("qualify")
    if qualify is None:
        return
    aliases = {e.alias.lower(): e.this for e in node.expressions if isinstance(e, exp.Alias)}
    for column in [*qualify.find_all(exp.Column)]:
        if not column.find_ancestor(exp.Window):
            replace_alias(scope, column, aliases)


def has_group_aggregate(node: exp.Expr) -> bool:
    """Whether a node contains an aggregate over a group, and not over the frame of a window function."""
    return any(
        isinstance(each, AGGREGATES) and not isinstance(_skip_wrappers(each).parent, exp.Window)
        for each in node.walk(prune=lambda n: isinstance(n, exp.Query))
    )


def _skip_wrappers(node: exp.Expr) -> exp.Expr:
    while isinstance(node.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        node = node.parent
    return node


def read_window_functions(copied: exp.Select, clause: FromClause, where: Condition) -> FromClause:
    """FROM with the window functions of a select over one table as columns of it.

    ``copied`` is a copy of the select, in which functions are replaced by their columns and WHERE by QUALIFY.
    ``where`` is the condition on the rows below the functions.
    """
    return _OverReader(copied, clause).read(where)


@dataclass
class _OverReader:
    """Reads the window functions of one select, and replaces them in its tree."""

    node: exp.Select
    clause: FromClause
    functions: dict[str, WindowFunction] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        return self.clause.scope

    @property
    def statement(self) -> Statement:
        return self.clause.scope.statement

    def read(self, where: Condition) -> FromClause:
        (occurrence,) = self.clause.occurrences
        named = self._find_named_windows()
        for window in list_window_functions(self.node):
            function = self._read_function(window, named)
            self.functions.setdefault(function.name, function)
            refs = [Ref(occurrence.alias, column) for column in function.partition_by]
            add_bucket_ends(self.scope, refs)
            window.replace(self.scope.make_column(Ref(occurrence.alias, function.name), window))
        qualify = self.node.args.get("qualify")
        self.node.set("where", exp.Where(this=qualify.this) if qualify is not None else None)
        self.node.set("qualify", None)
        self.node.set("windows", None)
        self._mark_as_read()
        derived = tuple(self.scope.derived.get(occurrence.alias, {}).values())
        base = replace(occurrence.table, derived=derived)
        where = rename_refs(where, renaming(occurrence.alias, base.name))
        block = Windowed(base, tuple(self.functions.values()), where)
        made = Occurrence(occurrence.alias, make_windowed_table(occurrence.alias, block))
        scope = replace(self.scope, occurrences=(made,), sources=self.scope.visible)
        return replace(self.clause, occurrences=(made,), condition=TRUE, scope=scope)

    # --- the tree ----------------------------------------------------------------------------------------

    def _mark_as_read(self) -> None:
        """The words of OVER, WINDOW and QUALIFY, all of which have been read."""
        statement = self.statement
        for index in range(len(statement.tokens)):
            word = statement.word(index)
            if word == "OVER":
                first, last = statement.find_call_before(index), statement.find_group_after(index)
                statement.leaves.update(range(first, last + 1))
            elif word == "QUALIFY":
                statement.leaves.add(index)
            elif word == "WINDOW" and statement.word(index + 2) == "AS":
                last = statement.find_group_after(index + 2)
                while statement.word(last + 1) == "," and statement.word(last + 3) == "AS":
                    last = statement.find_group_after(last + 3)
                statement.leaves.update(range(index, last + 1))

    # --- windows -----------------------------------------------------------------------------------------

    def _find_named_windows(self) -> dict[str, exp.Window]:
        named: dict[str, exp.Window] = {}
        for each in self.node.args.get("windows") or ():
            name = read_name(self.statement, each.this)
            if name.lower() in named:
                raise SqlNameError(f"window {one_line(name)} is defined twice", self.statement.at(each))
            named[name.lower()] = each
        return named

    def _resolve(self, window: exp.Window, named: Mapping[str, exp.Window]) -> exp.Window:
        """The definition of the window that a function names, or its own."""
        seen: set[str] = set()
        while window.args.get("alias") is not None:
            alias = window.args["alias"]
            name = read_name(self.statement, alias)
            if any(window.args.get(key) for key in ("partition_by", "order", "spec")):
                message = f"window {one_line(name)} cannot be extended"
                raise SqlError(message, self.statement.at(alias), "define another window")
            if name.lower() not in named or name.lower() in seen:
                known = list_names(name, named) or "none"
                message = f"there is no window {one_line(name)}"
                raise SqlNameError(message, self.statement.at(alias), f"the named windows are {known}")
            seen.add(name.lower())
            window = named[name.lower()]
        return window

    def _read_function(self, window: exp.Window, named: Mapping[str, exp.Window]) -> WindowFunction:
        accept_only(self.statement, window, "this", "partition_by", "order", "spec", "alias", "over")
        spec = self._resolve(window, named)
        accept_only(self.statement, spec, "this", "partition_by", "order", "spec", "alias", "over")
        call = _Call.read(self, window)
        kind = WINDOW_FUNCTIONS[call.name].kind
        partition = tuple(dict.fromkeys(self.read_column(e)[0] for e in spec.args.get("partition_by") or ()))
        order = tuple(self._read_sort_key(each) for each in self._list_sort_keys(spec))
        if not order and kind is not FunctionKind.AGGREGATE and kind is not FunctionKind.VALUE:
            message = f"{call.name} needs ORDER BY in its window"
            raise SqlError(message, self.statement.at(window), "write OVER (… ORDER BY …)")
        frame = self._read_frame(spec, call.name, kind, order)
        text = f"{call.text} OVER ({_describe_window(spec, self.statement, call, frame)})"
        return WindowFunction(
            text,
            call.type,
            call.name,
            call.arguments,
            partition,
            order,
            frame,
            call.ignore_nulls,
            text=self.statement.slice_over(window),
        )

    def _list_sort_keys(self, spec: exp.Window) -> list[exp.Ordered]:
        order = spec.args.get("order")
        if order is None:
            return []
        accept_only(self.statement, order, "expressions")
        return list(order.expressions)

    def _read_sort_key(self, node: exp.Ordered) -> SortKey:
        accept_only(self.statement, node, "this", "desc", "nulls_first")
        column, _ = self.read_column(node.this)
        return SortKey(column, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))

    def read_column(self, node: exp.Expr) -> tuple[str, SqlType]:
        """The declared or derived column of the table that an expression is, and its type."""
        node = strip_parentheses(self.statement, node)
        inner = node.find(exp.AggFunc, exp.Window)
        if inner is not None:
            raise unsupported_error(self.statement, inner)
        bound = read_function_of_time(self.scope, node)
        if bound is None and isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            ref, type_ = self.scope.find_column(node)
            return ref.column, type_
        bound = bound or read_row_expression(self.scope, node)
        if bound is None or not isinstance(bound.expression, Ref):
            if read_constant(self.statement, node) is not None:
                message = f"the constant {self.statement.excerpt(node)} is not supported here"
                raise SqlError(message, self.statement.at(node), "name a column")
            raise unsupported_error(self.statement, find_obstacle(node))
        column = self.scope.column(bound.expression)
        if column.derivation is not None and column.derivation.repeated:
            message = "a sliding window is not supported in OVER"
            raise SqlError(message, self.statement.at(node))
        return column.name, column.type

    # --- frames ------------------------------------------------------------------------------------------

    def _read_frame(
        self, spec: exp.Window, function: str, kind: FunctionKind, order: tuple[SortKey, ...]
    ) -> Frame | None:
        written = spec.args.get("spec")
        if kind not in (FunctionKind.AGGREGATE, FunctionKind.VALUE):
            if written is not None:
                message = f"{function} has no frame"
                raise SqlError(message, self.statement.at(written), "leave out ROWS or RANGE")
            return None
        if written is None:
            return Frame(FrameUnit.RANGE, None, 0) if order else Frame(FrameUnit.ROWS, None, None)
        accept_only(self.statement, written, "kind", "start", "start_side", "end", "end_side")
        unit = str(written.args["kind"]).upper()
        if unit not in FrameUnit.__members__:
            raise SqlError(
                f"{unit} is not supported", self.statement.at(written), "the frames are ROWS and RANGE"
            )
        start = self._read_edge(written, "start", unit, order)
        end = self._read_edge(written, "end", unit, order) if written.args.get("end") else 0
        if (start is not None and end is not None and start > end) or (
            unit == "RANGE" and not order and (start, end) != (None, None)
        ):
            raise SqlError(
                "this frame has no rows", self.statement.at(written), "put its start before its end"
            )
        return Frame(FrameUnit[unit], start, end)

    def _read_edge(self, spec: exp.Expr, edge: str, unit: str, order: tuple[SortKey, ...]) -> int | None:
        """The distance of an edge from the current row; None if it is UNBOUNDED."""
        value, side = spec.args[edge], str(spec.args.get(f"{edge}_side") or "").upper()
        if isinstance(value, str) and value.upper() == _ROW:
            return 0
        if isinstance(value, str):
            if (edge == "start") is not (side == "PRECEDING"):
                message = f"a frame cannot {edge} at UNBOUNDED {side}"
                raise SqlError(message, self.statement.at(spec))
            return None
        sign = -1 if side == "PRECEDING" else 1
        return sign * self._read_distance(value, unit, order)

    def _read_distance(self, node: exp.Expr, unit: str, order: tuple[SortKey, ...]) -> int:
        place = self.statement.at(node)
        if unit == "ROWS":
            return self.read_count(node, 0)
        if len(order) != 1:
            raise SqlError("RANGE with a distance needs one ORDER BY column", place)
        occurrence = self.scope.occurrences[0]
        family = self.scope.column(Ref(occurrence.alias, order[0].column)).type.family
        if family is Family.TIME:
            length = read_interval(node)
            micros = length.fixed if length is not None else None
            if micros is None or micros < 0:
                raise SqlError(f"{one_line(node.sql('spark'), 40)} is not a duration", place, _INTERVALS)
            return micros
        if family is not Family.NUMBER:
            raise SqlTypeError("RANGE with a distance needs a number or a timestamp in ORDER BY", place)
        return self.read_count(node, 0)

    def read_count(self, node: exp.Expr, least: int) -> int:
        """A whole number that is written as a constant."""
        found = read_constant(self.statement, node)
        value = found.expression.value if found and isinstance(found.expression, Literal) else None
        if type(value) is not int or value < least:
            message = f"{self.statement.excerpt(node)} is not a whole number of at least {least}"
            raise SqlError(message, self.statement.at(node), "write a number")
        return value


@dataclass(frozen=True)
class _Call:
    """The call of a window function, before OVER; ``text`` is Spark's name for it."""

    name: str
    arguments: tuple[str | Literal, ...]
    type: SqlType
    ignore_nulls: bool
    text: str

    @classmethod
    def read(cls, reader: _OverReader, window: exp.Window) -> _Call:
        statement, call, ignore_nulls = reader.statement, window.this, False
        condition: exp.Expr | None = None
        while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            if isinstance(call, exp.Filter):
                condition = call.expression.this
            ignore_nulls |= isinstance(call, exp.IgnoreNulls)
            call = call.this
        name = _NAMES.get(type(call))
        if name is None:
            if isinstance(call, AGGREGATES):
                shown = statement.excerpt(call).partition("(")[0].strip().upper()
                message = f"{shown}(…) OVER is not supported"
                raise SqlError(message, statement.at(window), "it is an aggregate of groups: write GROUP BY")
            raise unsupported_error(statement, call)
        kind = WINDOW_FUNCTIONS[name].kind
        if ignore_nulls and kind not in (FunctionKind.OFFSET, FunctionKind.VALUE):
            raise SqlError(f"{name} has no IGNORE NULLS", statement.at(window))
        if condition is not None and kind is not FunctionKind.AGGREGATE:
            raise SqlError(f"{name} has no FILTER", statement.at(window))
        accept_only(statement, call, "this", "offset", "default", "expression", "big_int", "expressions")
        arguments = tuple(cls._read_arguments(reader, call, kind, condition))
        type_ = cls._find_type(reader, name, call, condition)
        shown = ", ".join(name_expression(statement, each) for each in call.iter_expressions())
        if name == "COUNT" and isinstance(call.this, exp.Star):
            shown = "1"
        if kind is FunctionKind.OFFSET:
            default = call.args.get("default")
            padded = [name_expression(statement, call.this), str(arguments_offset(arguments))]
            shown = ", ".join([*padded, name_expression(statement, default) if default else "NULL"])
        label = name if name in ("RANK", "DENSE_RANK", "PERCENT_RANK") else name.lower()
        text = f"{label}({shown})"
        if condition is not None:
            text += f" FILTER (WHERE {statement.slice(condition)})"
        return cls(name, arguments, type_, ignore_nulls, text)

    @staticmethod
    def _read_arguments(
        reader: _OverReader, call: exp.Expr, kind: FunctionKind, condition: exp.Expr | None
    ) -> Iterator[str | Literal]:
        argument = call.args.get("this")
        if isinstance(argument, exp.Distinct):
            message = f"{_NAMES[type(call)]}(DISTINCT …) OVER is not supported"
            raise SqlError(message, reader.statement.at(call))
        if kind is FunctionKind.SHARE and argument is not None:
            yield Literal(reader.read_count(argument, 1), INT)
        elif condition is not None:
            value = argument.copy() if isinstance(argument, exp.Expr) else exp.Literal.number(1)
            value = exp.Literal.number(1) if isinstance(value, exp.Star) else value
            chosen = exp.Case(ifs=[exp.If(this=condition.copy(), true=value)])
            for made, written in [
                (chosen, call),
                *zip(chosen.args["ifs"][0].this.walk(), condition.walk(), strict=True),
                *((each, call) for each in value.walk()),
            ]:
                reader.statement.place(made, written)
            yield reader.read_column(chosen)[0]
        elif argument is not None and not isinstance(argument, exp.Star):
            constant = read_constant(reader.statement, argument)
            if constant is not None and isinstance(constant.expression, Literal):
                yield constant.expression
            else:
                yield reader.read_column(argument)[0]
        if isinstance(call, exp.ArgMax | exp.ArgMin):
            if call.args.get("expression") is None:
                message = f"{_NAMES[type(call)]} needs two arguments"
                raise SqlError(message, reader.statement.at(call))
            yield reader.read_column(call.expression)[0]
        offset, default = call.args.get("offset"), call.args.get("default")
        if offset is not None:
            yield Literal(reader.read_count(offset, int(isinstance(call, exp.NthValue))), INT)
        elif kind is FunctionKind.OFFSET:
            yield Literal(1, INT)
        if default is not None:
            constant = read_constant(reader.statement, default)
            if constant is not None and isinstance(constant.expression, Literal):
                yield constant.expression
            else:
                yield reader.read_column(default)[0]

    @staticmethod
    def _find_type(reader: _OverReader, name: str, call: exp.Expr, condition: exp.Expr | None) -> SqlType:
        if name in _TYPES:
            return _TYPES[name]
        argument = call.args.get("this")
        if name == "COUNT" or argument is None:
            return BIGINT
        constant = read_constant(reader.statement, argument)
        type_ = constant.type if constant is not None else reader.read_column(argument)[1]
        if type_ is None:
            raise SqlTypeError(f"{name} of NULL has no type", reader.statement.at(call))
        if name in _NUMERIC and type_.family is not Family.NUMBER:
            message = f"{name} needs numbers, but {reader.statement.excerpt(argument)} is {type_}"
            raise SqlTypeError(message, reader.statement.at(call))
        found = find_aggregate_type(name, type_) if name in ("SUM", "AVG", "MEDIAN") else type_
        assert found is not None
        return TIME_VALUE if found.family is Family.TIME else found


def arguments_offset(arguments: tuple[str | Literal, ...]) -> int:
    """The offset among the arguments of LAG or LEAD."""
    offset = arguments[1]
    assert isinstance(offset, Literal) and isinstance(offset.value, int)
    return offset.value


def _describe_window(spec: exp.Window, statement: Statement, call: _Call, frame: Frame | None) -> str:
    """The definition of a window as Spark writes it in the names of columns."""
    words = []
    if spec.args.get("partition_by"):
        names = ", ".join(name_expression(statement, each) for each in spec.args["partition_by"])
        words.append(f"PARTITION BY {names}")
    keys = [
        f"{name_expression(statement, key.this)} {'DESC' if key.args.get('desc') else 'ASC'} "
        f"NULLS {'FIRST' if key.args.get('nulls_first') else 'LAST'}"
        for key in (spec.args["order"].expressions if spec.args.get("order") else ())
    ]
    if keys:
        words.append(f"ORDER BY {', '.join(keys)}")
    if call.name in ("LAG", "LEAD"):
        distance = arguments_offset(call.arguments) * (-1 if call.name == "LAG" else 1)
        words.append(f"ROWS BETWEEN {distance} FOLLOWING AND {distance} FOLLOWING")
    else:
        unit, start, end = (frame.unit.value, frame.start, frame.end) if frame else ("ROWS", None, 0)
        words.append(
            f"{unit} BETWEEN {_describe_edge(start, 'PRECEDING')} AND {_describe_edge(end, 'FOLLOWING')}"
        )
    return " ".join(words)


def _describe_edge(edge: int | None, unbounded: str) -> str:
    if edge is None:
        return f"UNBOUNDED {unbounded}"
    return _ROW if edge == 0 else f"{edge} FOLLOWING"


def make_windowed_table(alias: str, block: Windowed) -> Table:
    """The table of a block with window functions; equal blocks have equal names."""
    base = block.base
    digest = sha256(repr((base.name, block.functions, block.where)).encode()).hexdigest()[:6]
    values = tuple(Column(function.name, function.type) for function in block.functions)
    return Table(
        f"{alias} OVER #{digest}",
        base.columns + values,
        base.streaming,
        time=base.time,
        properties=base.properties,
        block=block,
    )
