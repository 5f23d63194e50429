"""Renders expressions of an analysed plan as Spark SQL.

Operators are spelt here.  Any other expression is a call of the function that Spark's registry lists for its
class.  Casts that Spark's analyser inserts, and that keep every value, are left out: the comparisons of a
query are the same without them.  A function that only users know is declared as such, under its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.frontend.spark_functions import is_known_function
from millpond.frontend.spark_names import quote_name
from millpond.runtime.sql import Dialect
from millpond.spark.plans.nodes import PlanExpression, PlanNode, UnsupportedPlanError
from millpond.spark.plans.spark_types import (
    NUMBERS,
    TIMES,
    TRANSPARENT_VALUES,
    find_field,
    infer_type,
    keeps_values,
    render_fields,
)
from millpond.spark.plans.sql_text import Precedence, Sql, render_interval
from millpond.spark.plans.time_windows import find_window_time, read_interval


@dataclass(frozen=True)
class WindowColumn:
    """A time window as a column: its two fields, and the struct itself where the language has it."""

    start: Sql
    end: Sql
    whole: Sql | None = None


Definition = Sql | WindowColumn
TRUE = Sql("TRUE")
# The start of the time window of a group, which is never NULL.
WINDOW_STARTS = ("window.start", "session_window.start")

BINARY = {
    "Or": ("OR", Precedence.OR),
    "And": ("AND", Precedence.AND),
    "EqualTo": ("=", Precedence.COMPARISON),
    "EqualNullSafe": ("<=>", Precedence.COMPARISON),
    "LessThan": ("<", Precedence.COMPARISON),
    "LessThanOrEqual": ("<=", Precedence.COMPARISON),
    "GreaterThan": (">", Precedence.COMPARISON),
    "GreaterThanOrEqual": (">=", Precedence.COMPARISON),
    "Like": ("LIKE", Precedence.COMPARISON),
    "ILike": ("ILIKE", Precedence.COMPARISON),
    "RLike": ("RLIKE", Precedence.COMPARISON),
    "BitwiseOr": ("|", Precedence.BITS),
    "BitwiseAnd": ("&", Precedence.BITS),
    "BitwiseXor": ("^", Precedence.BITS),
    "Add": ("+", Precedence.SUM),
    "Subtract": ("-", Precedence.SUM),
    "SubtractTimestamps": ("-", Precedence.SUM),
    "Multiply": ("*", Precedence.PRODUCT),
    "Divide": ("/", Precedence.PRODUCT),
    "Remainder": ("%", Precedence.PRODUCT),
    "IntegralDivide": ("DIV", Precedence.PRODUCT),
}
_NEGATED = {
    "EqualTo": "<>",
    "LessThan": ">=",
    "LessThanOrEqual": ">",
    "GreaterThan": "<=",
    "GreaterThanOrEqual": "<",
    "Like": "NOT LIKE",
    "RLike": "NOT RLIKE",
}
# Values that do not follow from the row, with their types: they are as good as columns of the stream.
FRESH = {
    "Rand": "double",
    "Randn": "double",
    "Uuid": "string",
    "CurrentTimestamp": "timestamp",
    "CurrentBatchTimestamp": "timestamp",
    "Now": "timestamp",
    "LocalTimestamp": "timestamp",
    "CurrentDate": "date",
    "MonotonicallyIncreasingID": "bigint",
    "SparkPartitionID": "int",
    "InputFileName": "string",
}
_USER_FUNCTIONS = {
    "PythonUDF",
    "ScalaUDF",
    "PythonUDAF",
    "HiveSimpleUDF",
    "HiveGenericUDF",
    "UserDefinedPythonFunction",
}
_OF_STRUCTS = {"Max", "Min", "CollectList", "CollectSet", "First", "Last", "AnyValue"}
_DATE_PARTS = {"Year", "Quarter", "Month", "DayOfMonth", "DayOfWeek", "DayOfYear", "WeekOfYear", "WeekDay"}


@dataclass(frozen=True)
class PlanContext:
    """What the renderer asks of the query around an expression.

    ``declare_function`` declares a function of users by name and type.  ``make_fresh_column`` makes a column
    for a value that does not follow from the row.  ``render_subquery`` renders a plan inside an expression.
    ``make_parsed_column`` makes a column for a field, by name and type, of text that is parsed (JSON).
    """

    declare_function: Callable[[str, str], str]
    make_fresh_column: Callable[[str, str], Sql]
    render_subquery: Callable[[PlanNode, Mapping[int, Definition]], str]
    make_parsed_column: Callable[[str, str, str], Sql | None] = lambda name, type_, text: None


class ExpressionRenderer:
    """Renders expressions over columns that are defined by SQL text, by the IDs of the columns."""

    def __init__(self, columns: Mapping[int, Definition], around: PlanContext) -> None:
        self.columns = columns
        self.around = around

    def define(self, node: PlanExpression, type_: str | None = None) -> Definition:
        """The definition of a column that an expression computes; ``type_`` is its type, where known."""
        plain = node.children[0] if node.kind == "Alias" else node
        if plain.kind in ("AttributeReference", "OuterReference"):
            found = self.columns.get(plain.expr_id if plain.expr_id is not None else -1)
            if isinstance(found, WindowColumn):
                return found
        return self.render(plain, type_)

    def render(self, node: PlanExpression, type_: str | None = None) -> Sql:
        """The expression as SQL; ``type_`` is its type, if it is known from elsewhere."""
        if node.kind in TRANSPARENT_VALUES:
            return self.render(node.children[0], type_)
        if node.kind in BINARY:
            return self._render_binary(node)
        special = getattr(self, f"_render_{_to_snake_case(node.kind)}", None)
        if special is not None:
            found: Sql = special(node)
            return found
        if node.kind in FRESH:
            return self.around.make_fresh_column(_to_snake_case(node.kind), FRESH[node.kind])
        if node.kind in _USER_FUNCTIONS:
            return self._render_user_function(node)
        return self._render_call(node, type_)

    # --- columns and constants -------------------------------------------------------------------------

    def _render_attribute_reference(self, node: PlanExpression) -> Sql:
        found = self.columns.get(node.expr_id if node.expr_id is not None else -1)
        if found is None:
            raise UnsupportedPlanError(
                f"a reference to the column {node.name}, which no operator below makes,"
            )
        if isinstance(found, Sql):
            return found
        if found.whole is None:
            raise UnsupportedPlanError("a time window as a value")
        return found.whole

    def _render_outer_reference(self, node: PlanExpression) -> Sql:
        return self.render(node.fields["e"])

    def _render_literal(self, node: PlanExpression) -> Sql:
        value, type_ = node.value, node.type or ""
        if value is None:
            return Sql("NULL")
        if type_ == "boolean":
            return Sql(value.upper())
        if type_ in NUMBERS or type_.startswith("decimal"):
            return Sql(value, Precedence.SIGN if value.startswith("-") else Precedence.ATOM)
        if type_ in TIMES:
            return Sql(f"TIMESTAMP {Dialect.SPARK.string(value)}")
        if type_ == "date":
            return Sql(f"DATE {Dialect.SPARK.string(value)}")
        if type_.startswith("interval"):
            microseconds = read_interval(node)
            if microseconds is None:
                raise UnsupportedPlanError(f"the interval {value} of months")
            return Sql(render_interval(microseconds))
        if type_.startswith(("string", "char", "varchar")):
            return Sql(Dialect.SPARK.string(value))
        raise UnsupportedPlanError(f"a constant of type {type_}")

    def _render_get_struct_field(self, node: PlanExpression) -> Sql:
        (child,) = node.children
        found = self.columns.get(child.expr_id or 0) if child.kind == "AttributeReference" else None
        ordinal = node.fields.get("ordinal")
        if isinstance(found, WindowColumn):
            return found.end if ordinal == 1 else found.start
        name, type_ = find_field(child.type, ordinal, node.name)
        text = f"{self.render(child).within(Precedence.ATOM)}.{quote_name(name)}"
        parsed = self.around.make_parsed_column(name, type_, text) if text.startswith(_PARSERS) else None
        return parsed or Sql(text)

    def _render_get_array_item(self, node: PlanExpression) -> Sql:
        base, index = node.children
        found = self.render(base)
        if found.pivoted:
            return replace(found, pivoted=False)
        return Sql(f"{found.within(Precedence.ATOM)}[{self.render(index).text}]")

    _render_get_map_value = _render_get_array_item

    def _render_named_lambda_variable(self, node: PlanExpression) -> Sql:
        return Sql(quote_name(node.name or "x"))

    def _render_lambda_function(self, node: PlanExpression) -> Sql:
        body, *names = node.children
        shown = ", ".join(quote_name(each.name or "x") for each in names)
        return Sql(f"{f'({shown})' if len(names) > 1 else shown} -> {self.render(body).text}", Precedence.OR)

    # --- operators -------------------------------------------------------------------------------------

    def _render_binary(self, node: PlanExpression) -> Sql:
        operator, level = BINARY[node.kind]
        windows = [self._find_window(child) for child in node.children]
        if windows[0] is not None and windows[1] is not None:
            return Sql(f"{windows[0].start.text} {operator} {windows[1].start.text}", level)
        left, right = (self.render(child) for child in node.children)
        is_chain = level in (Precedence.OR, Precedence.AND)
        after = right.within(level if is_chain else Precedence(level + 1))
        before = left.within(Precedence(level + 1) if level is Precedence.COMPARISON else level)
        return Sql(f"{before} {operator} {after}", level)

    def _find_window(self, node: PlanExpression) -> WindowColumn | None:
        found = self.columns.get(node.expr_id or 0) if node.kind == "AttributeReference" else None
        return found if isinstance(found, WindowColumn) else None

    def _render_not(self, node: PlanExpression) -> Sql:
        (child,) = node.children
        if child.kind in _NEGATED and self._find_window(child.children[0]) is None:
            left, right = (self.render(each).within(Precedence.BITS) for each in child.children)
            return Sql(f"{left} {_NEGATED[child.kind]} {right}", Precedence.COMPARISON)
        if child.kind in ("In", "InSubquery"):
            return self._render_in(child, "NOT IN")
        if child.kind == "IsNull":
            return self._render_is_not_null(child)
        return Sql(f"NOT {self.render(child).within(Precedence.COMPARISON)}", Precedence.NOT)

    def _render_is_null(self, node: PlanExpression) -> Sql:
        return Sql(f"{self.render(node.children[0]).within(Precedence.BITS)} IS NULL", Precedence.COMPARISON)

    def _render_is_not_null(self, node: PlanExpression) -> Sql:
        if self._find_window(node.children[0]) is not None:
            return TRUE
        value = self.render(node.children[0])
        if value.text in WINDOW_STARTS:
            return TRUE
        return Sql(f"{value.within(Precedence.BITS)} IS NOT NULL", Precedence.COMPARISON)

    def _render_at_least_n_non_nulls(self, node: PlanExpression) -> Sql:
        if node.fields.get("n") != len(node.children):
            raise UnsupportedPlanError("dropna with a threshold")
        checks = [Sql(f"{self.render(each).within(Precedence.BITS)} IS NOT NULL") for each in node.children]
        return Sql(" AND ".join(each.text for each in checks) or "TRUE", Precedence.AND)

    def _render_in(self, node: PlanExpression, word: str = "IN") -> Sql:
        value, *others = node.children
        shown = self.render(value).within(Precedence.BITS)
        if node.kind == "InSubquery":
            query = self.around.render_subquery(others[-1].fields["plan"], self.columns)
            return Sql(f"{shown} {word} ({query})", Precedence.COMPARISON)
        return Sql(
            f"{shown} {word} ({', '.join(self.render(each).text for each in others)})", Precedence.COMPARISON
        )

    _render_in_subquery = _render_in

    def _render_in_set(self, node: PlanExpression) -> Sql:
        raise UnsupportedPlanError("a large IN list")

    def _render_exists(self, node: PlanExpression) -> Sql:
        return Sql(f"EXISTS ({self.around.render_subquery(node.fields['plan'], self.columns)})")

    def _render_scalar_subquery(self, node: PlanExpression) -> Sql:
        return Sql(f"({self.around.render_subquery(node.fields['plan'], self.columns)})")

    def _render_between(self, node: PlanExpression) -> Sql:
        value, low, high = (self.render(node.fields[key]) for key in ("input", "lower", "upper"))
        shown = [each.within(Precedence.BITS) for each in (value, low, high)]
        return Sql(f"{shown[0]} BETWEEN {shown[1]} AND {shown[2]}", Precedence.COMPARISON)

    def _render_case_when(self, node: PlanExpression) -> Sql:
        shown = [self.render(child).text for child in node.children]
        pairs = zip(shown[::2], shown[1::2], strict=False)
        cases = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
        default = f" ELSE {shown[-1]}" if len(shown) % 2 else ""
        return Sql(f"CASE {cases}{default} END")

    _render_if = _render_case_when

    def _render_unary_minus(self, node: PlanExpression) -> Sql:
        return Sql(f"-{self.render(node.children[0]).within(Precedence.ATOM)}", Precedence.SIGN)

    def _render_cast(self, node: PlanExpression) -> Sql:
        (child,) = node.children
        wanted, given = node.type or "", infer_type(child)
        if child.kind == "Literal" and child.value is not None and given == "string":
            if wanted in TIMES:
                return Sql(f"TIMESTAMP {Dialect.SPARK.string(child.value)}")
            if wanted == "date":
                return Sql(f"DATE {Dialect.SPARK.string(child.value)}")
        is_number = child.kind == "Literal" and given in NUMBERS and wanted.startswith(("decimal", *NUMBERS))
        if is_number or keeps_values(given, wanted):
            return self.render(child)
        if given in TIMES and wanted == "bigint":
            return Sql(f"unix_timestamp({self.render(child).text})")
        if wanted.startswith("interval"):
            raise UnsupportedPlanError(f"a cast to {wanted}")
        type_ = "timestamp" if wanted in TIMES else wanted
        return Sql(f"CAST({self.render(child).text} AS {type_.upper()})")

    def _render_timestamp_add_interval(self, node: PlanExpression) -> Sql:
        start, interval = node.children
        sign = "+"
        if interval.kind == "UnaryMinus":
            sign, interval = "-", interval.children[0]
        amount = self.render(interval).text
        if amount.startswith("INTERVAL '-"):
            sign, amount = ("-" if sign == "+" else "+"), amount.replace("'-", "'", 1)
        return Sql(f"{self.render(start).within(Precedence.SUM)} {sign} {amount}", Precedence.SUM)

    _render_time_add = _render_timestamp_add_interval

    def _render_datetime_sub(self, node: PlanExpression) -> Sql:
        return self.render(node.children[0])

    def _render_precise_timestamp_conversion(self, node: PlanExpression) -> Sql:
        window = find_window_time(node)
        found = self._find_window(window) if window is not None else None
        if found is None:
            raise UnsupportedPlanError("arithmetic on the microseconds of a timestamp")
        return found.start

    # --- calls -----------------------------------------------------------------------------------------

    def _render_aggregate_expression(self, node: PlanExpression) -> Sql:
        function, *conditions = node.children
        distinct = "DISTINCT " if node.fields.get("isDistinct") is True else ""
        if function.kind in _USER_FUNCTIONS:
            raise UnsupportedPlanError(f"the aggregate function {function.name} of users")
        if function.kind == "Count" and all(each.kind == "Literal" for each in function.children):
            call = "COUNT(*)"
        elif function.kind in _OF_STRUCTS and function.children[0].kind == "CreateNamedStruct":
            return self._render_struct_aggregate(function, f"{{}}({distinct}{{}})", conditions)
        else:
            arguments = ", ".join(self.render(each).text for each in _find_arguments(function))
            is_first = function.kind in ("First", "Last") and function.fields.get("ignoreNulls") is True
            name = (function.function or _to_snake_case(function.kind)).upper()
            call = f"{name}({distinct}{arguments}){' IGNORE NULLS' if is_first else ''}"
        if conditions:
            call += f" FILTER (WHERE {self.render(conditions[0]).text})"
        return Sql(call)

    def _render_struct_aggregate(
        self, function: PlanExpression, call: str, conditions: Sequence[PlanExpression]
    ) -> Sql:
        """The aggregates of the fields of a struct, which need as much memory as that of the struct.

        The largest struct has the largest first field, and the others of its row.
        """
        name = (function.function or _to_snake_case(function.kind)).upper()
        names, values = function.children[0].children[::2], function.children[0].children[1::2]
        texts = [self.render(each).text for each in values]
        calls = [call.format(name, each) for each in texts]
        if function.kind in ("Max", "Min"):
            calls[1:] = [f"{name}_BY({each}, {texts[0]})" for each in texts[1:]]
        if conditions:
            calls = [f"{each} FILTER (WHERE {self.render(conditions[0]).text})" for each in calls]
        shown = [Dialect.SPARK.string(each.value or "") for each in names]
        fields = (part for pair in zip(shown, calls, strict=True) for part in pair)
        return Sql(f"named_struct({', '.join(fields)})")

    def _render_window_expression(self, node: PlanExpression) -> Sql:
        function, spec = node.children
        call = self.render(function).text
        partition = [each for each in spec.children if each.kind not in ("SortOrder", *_FRAMES)]
        order = [each for each in spec.children if each.kind == "SortOrder"]
        frame = next((each for each in spec.children if each.kind == "SpecifiedWindowFrame"), None)
        parts = []
        if partition:
            parts.append(f"PARTITION BY {', '.join(self.render(each).text for each in partition)}")
        if order:
            parts.append(f"ORDER BY {', '.join(map(self.render_order, order))}")
        if frame is not None and function.kind == "AggregateExpression":
            kind = "ROWS" if frame.fields.get("frameType") == "RowFrame" else "RANGE"
            low, high = (self._render_frame_end(each) for each in frame.children)
            parts.append(f"{kind} BETWEEN {low} AND {high}")
        return Sql(f"{call} OVER ({' '.join(parts)})")

    def _render_frame_end(self, node: PlanExpression) -> str:
        if node.kind in _FRAME_ENDS:
            return _FRAME_ENDS[node.kind]
        is_before = node.kind == "UnaryMinus"
        value = self.render(node.children[0] if is_before else node).text
        if value.startswith("-"):
            is_before, value = not is_before, value[1:]
        return f"{value} {'PRECEDING' if is_before else 'FOLLOWING'}"

    def render_order(self, node: PlanExpression) -> str:
        """An item of ORDER BY."""
        is_down = node.fields.get("direction") == "Descending"
        nulls = node.fields.get("nullOrdering")
        usual = "NullsLast" if is_down else "NullsFirst"
        suffix = "" if nulls in (usual, None) else " NULLS FIRST" if is_down else " NULLS LAST"
        return f"{self.render(node.children[0]).text}{' DESC' if is_down else ''}{suffix}"

    def _render_json_to_structs(self, node: PlanExpression) -> Sql:
        schema = node.type or ""
        inner = schema[len("struct<") : -1] if schema.startswith("struct<") else None
        text = schema if inner is None else ", ".join(render_fields(inner))
        return Sql(f"from_json({self.render(node.children[0]).text}, {Dialect.SPARK.string(text)})")

    def _render_user_function(self, node: PlanExpression) -> Sql:
        name = node.fields.get("udfName") or node.name or "udf"
        declared = self.around.declare_function(str(name), node.type or "string")
        return Sql(f"{declared}({', '.join(self.render(each).text for each in node.children)})")

    def _render_call(self, node: PlanExpression, type_: str | None) -> Sql:
        name = node.function or _to_snake_case(node.kind)
        given = _find_arguments(node)
        arguments = [self.render(each).text for each in given if each.kind != "LambdaFunction"]
        if len(arguments) < len(given):
            name = f"{name}_by_function"
        if not is_known_function(name):
            if not arguments:
                raise UnsupportedPlanError(f"the function {name}")
            name = self.around.declare_function(name, type_ or node.type or "string")
        return Sql(f"{name}({', '.join(arguments)})")


_PARSERS = ("from_json(", "from_csv(", "from_xml(")
_FRAMES = ("SpecifiedWindowFrame", "UnspecifiedFrame")
_FRAME_ENDS = {
    "UnboundedPreceding": "UNBOUNDED PRECEDING",
    "UnboundedFollowing": "UNBOUNDED FOLLOWING",
    "CurrentRow": "CURRENT ROW",
}
# Arguments that Spark fills in, by position and value; they are left out.
_DEFAULTS = {
    "StringSplit": (2, "-1"),
    "UnixTimestamp": (1, "yyyy-MM-dd HH:mm:ss"),
    "ApproximatePercentile": (2, "10000"),
    "Substring": (2, "2147483647"),
}


def _find_arguments(node: PlanExpression) -> list[PlanExpression]:
    """The arguments of a call as written: Spark shows some functions as what they are replaced by."""
    arguments = list(node.children)
    if "replacement" in node.fields:
        arguments = []
        for value in node.fields.values():
            values = value if isinstance(value, tuple) else (value,)
            arguments += [each for each in values if isinstance(each, PlanExpression)]
    position, default = _DEFAULTS.get(node.kind, (len(arguments), ""))
    if position < len(arguments) and arguments[position].value == default:
        del arguments[position]
    if node.kind in _DATE_PARTS and arguments[0].kind == "Cast" and arguments[0].type == "date":
        arguments[0] = arguments[0].children[0]
    return arguments


def _to_snake_case(name: str) -> str:
    """
    >>> _to_snake_case("GetStructField"), _to_snake_case("RLike")
    ('get_struct_field', 'r_like')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
