"""Functions of one row that Spark has and sqlglot does not know, or not with the types of their values.

Functions that neither sqlglot nor this list has might be aggregates, or make several rows; they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from sqlglot import exp, maybe_parse
from sqlglot.dialects.spark import Spark

from millpond.frontend.intervals import find_moment_type, read_interval
from millpond.frontend.number_types import (
    find_common_type,
    find_computed_type,
    find_literal_type,
    find_rounded_type,
)
from millpond.frontend.schemas import read_schema, write_json_structure
from millpond.frontend.time_fields import write_field_in_duckdb

_LIKE_ARGUMENT = "the type of the first argument"
_NESTED = "an array, a map or a struct, or depending on one"
_BY_TYPE = {
    "STRING": "bin btrim conv format_number make_valid_utf8 mask overlay printf quote schema_of_json to_csv "
    "to_varchar try_parse_url try_url_decode try_validate_utf8 url_decode url_encode validate_utf8 "
    "xpath_string",
    "INT": "cardinality date_part datepart find_in_set hash json_array_length octet_length weekday xpath_int",
    "SMALLINT": "xpath_short",
    "BIGINT": "crc32 monotonically_increasing_id xpath_long xxhash64",
    "FLOAT": "xpath_float",
    "BINARY": "aes_decrypt aes_encrypt hmac try_aes_decrypt try_to_binary",
    "ARRAY<ARRAY<STRING>>": "sentences",
    "ARRAY<STRING>": "xpath",
    "DOUBLE": "expm1 hypot jaro_winkler_similarity log1p xpath_double xpath_number",
    "BOOLEAN": "arrays_overlap between forall is_valid_utf8 isnotnull isnull luhn_check regexp xpath_boolean",
    "DATE": "make_date try_to_date",
    "TIMESTAMP": "make_timestamp_ltz now timestamp_micros timestamp_millis timestamp_seconds "
    "to_timestamp_ltz try_make_timestamp try_make_timestamp_ltz try_to_timestamp",
    "INTERVAL": "make_dt_interval make_ym_interval",
    _LIKE_ARGUMENT: "array_union bround map_concat map_filter nullifzero pmod positive shiftrightunsigned "
    "try_mod zeroifnull",
    _NESTED: "array_repeat from_csv from_xml get map_entries map_values map_zip_with transform_keys "
    "transform_values zip_with",
}
# The types of functions that sqlglot reads, but does not know the type of.
_UNTYPED: dict[type[exp.Expr], str] = {
    **dict.fromkeys((exp.ParseUrl, exp.SubstringIndex, exp.SplitPart, exp.RegexpSubstr), "STRING"),
    **dict.fromkeys((exp.Decode, exp.Elt, exp.Uuid), "STRING"),
    **dict.fromkeys((exp.RegexpCount, exp.RegexpInstr, exp.BitwiseCount), "INT"),
    **dict.fromkeys((exp.RegexpExtractAll, exp.JSONKeys), "ARRAY<STRING>"),
    **dict.fromkeys((exp.WidthBucket, exp.ArrayPosition), "BIGINT"),
    exp.DateTrunc: "DATE",  # trunc; date_trunc is another node
    **dict.fromkeys((exp.Rint, exp.Csc), "DOUBLE"),
    exp.TimestampFromParts: "TIMESTAMP",
    **dict.fromkeys((exp.MapContainsKey, exp.EqualNull), "BOOLEAN"),
    exp.FromTimeZone: "TIMESTAMP",
}
# Functions of an array whose value has the type of the array.
_OF_ARRAYS = (exp.ArrayRemove, exp.ArrayAppend, exp.ArrayPrepend, exp.ArrayInsert)
_SAFE: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.SafeAdd: exp.Add,
    exp.SafeSubtract: exp.Sub,
    exp.SafeMultiply: exp.Mul,
}
_TIMESTAMPS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_TYPES = {name: type_ for type_, names in _BY_TYPE.items() for name in names.split()}
# The functions of users, with the types of their values, in the text that is being read.
_user_functions: ContextVar[Mapping[str, str]] = ContextVar("user_functions", default=MappingProxyType({}))
# What DuckDB computes instead of a function of users: some value that follows from the arguments.
_STAND_INS = {
    "BOOLEAN": "{} % 2 = 0",
    "DATE": "DATE '2000-01-01' + CAST({} % 100000 AS INT)",
    "TIMESTAMP": "make_timestamp(CAST({} % 1000000000000000 AS BIGINT))",
    "STRING": "CAST({} AS VARCHAR)",
}


@contextmanager
def declare_functions(types: Mapping[str, str]) -> Iterator[None]:
    """Inside, calls of these functions are known to be computed from one row, by name and type of value.

    Nothing else is known of them.
    """
    token = _user_functions.set({name.lower(): type_.upper() for name, type_ in types.items()})
    try:
        yield
    finally:
        _user_functions.reset(token)


def is_known_function(name: str) -> bool:
    """Whether a function is one of Spark's that can be read."""
    return name.upper() in Spark.Parser.FUNCTIONS or name.lower() in _TYPES


def is_unknown_call(node: exp.Expr) -> bool:
    """Whether a node calls a function of which it is not known that it is one of a single row."""
    return isinstance(node, exp.Anonymous) and _find_type_name(node) is None


def to_duckdb(node: exp.Expr, times: Collection[str] = (), numbers: Collection[str] = ()) -> str:
    """DuckDB's spelling of an expression; ``times`` are the columns that are timestamps.

    ``numbers`` are those that are numbers: CAST(epoch AS TIMESTAMP) counts seconds.  Each function of users
    is another function of its arguments.
    """

    def change(each: exp.Expr) -> exp.Expr:
        length = read_interval(each) if isinstance(each, exp.Interval | exp.Func) else None
        if length is not None:
            parts = f"to_months({length.months}) + to_days({length.days}) + to_microseconds({length.micros})"
            return exp.Paren(this=maybe_parse(parts, dialect="duckdb"))
        if isinstance(each, exp.TimestampDiff | exp.DateDiff) and each.text("unit"):
            unit, moments = exp.Literal.string(each.text("unit").lower()), (each.expression, each.this)
            plain = [m.this if isinstance(m, exp.TsOrDsToDate) else m for m in moments]
            return exp.Anonymous(this="date_sub", expressions=[unit, *plain])  # complete units
        if (field := _find_field(each)) is not None:
            text = write_field_in_duckdb(field[0], field[1].transform(change).sql("duckdb"))
            return each if text is None else maybe_parse(text, dialect="duckdb")
        if isinstance(each, exp.Cast) and _is_epoch(each, times):
            seconds = exp.Anonymous(this="epoch", expressions=[each.this])
            is_double = each.to.this is exp.DType.DOUBLE
            return seconds if is_double else exp.Cast(this=exp.Floor(this=seconds), to=each.to)
        if isinstance(each, exp.Cast) and each.to.this in _TIMESTAMPS and _is_number(each.this, numbers):
            return exp.Anonymous(this="timestamp_seconds", expressions=[each.this])
        if isinstance(each, exp.FromJson):
            return _write_from_json(each)
        if isinstance(each.args.get("format"), exp.Literal) and "'" in each.text("format"):
            return _unquote_format(each)
        if isinstance(each, exp.StrToUnix) and _is_time(each.this, times):
            micros = f"epoch_us({each.this.sql('duckdb')})"
            text = f"(({micros} - {micros} % 1000000) // 1000000)"  # Spark truncates towards 1970
            return maybe_parse(text, dialect="duckdb")
        if not isinstance(each, exp.Anonymous) or each.name.lower() not in _user_functions.get():
            return each
        type_name = _user_functions.get()[each.name.lower()]
        arguments = ", ".join(argument.sql("duckdb") for argument in each.expressions)
        mixed = f"CAST(hash('{each.name}', {arguments}) % 1000000007 AS BIGINT)"
        text = _STAND_INS.get(type_name, "{}").format(mixed)
        return exp.Paren(this=maybe_parse(text, dialect="duckdb"))

    return str(node.transform(change).sql("duckdb"))


def _is_number(node: exp.Expr, numbers: Collection[str]) -> bool:
    """Whether an expression is a number by its form; ``numbers`` are the columns that are numbers."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return node.name in numbers
    if isinstance(node, _ARITHMETIC):
        return _is_number(node.this, numbers) and _is_number(node.expression, numbers)
    if isinstance(node, exp.Cast):
        return node.to.this in exp.DataType.NUMERIC_TYPES
    return isinstance(node, exp.Literal) and not node.is_string


def _unquote_format(node: exp.Expr) -> exp.Expr:
    """A function of a time with a format, in which ``'T'`` is a plain T, as DuckDB writes it."""
    plain = re.sub("'([^']*)'", lambda found: found[1].replace("%z", "Z"), node.text("format"))
    changed = node.copy()
    changed.set("format", exp.Literal.string(plain))
    return changed


def _write_from_json(node: exp.FromJson) -> exp.Expr:
    """``from_json`` with the schema as DuckDB writes it; the node itself if it has no plain schema."""
    schema = read_schema(node.expression.name) if isinstance(node.expression, exp.Literal) else None
    if schema is None or node.args.get("options"):
        return node
    structure = exp.Literal.string(write_json_structure(schema))
    return exp.Anonymous(this="from_json", expressions=[node.this, structure])


def _find_field(node: exp.Expr) -> tuple[str, exp.Expr] | None:
    """The field of a time or a date that a node computes, and its argument."""
    if isinstance(node, exp.Extract):
        return node.this.name, node.expression
    if isinstance(node, exp.DayOfWeek):
        return "DAYOFWEEK", node.this
    if not isinstance(node, exp.Anonymous):
        return None
    match node.name.upper(), node.expressions:
        case "WEEKDAY", [argument]:
            return "WEEKDAY", argument
        case "DATE_PART" | "DATEPART", [exp.Literal() as field, argument]:
            return field.name, argument
    return None


def _is_epoch(node: exp.Cast, times: Collection[str]) -> bool:
    """Whether a node casts a timestamp to a number, which is in seconds in Spark."""
    return _is_time(node.this, times) and node.to.this in exp.DataType.NUMERIC_TYPES


def _is_time(node: exp.Expr, times: Collection[str]) -> bool:
    """Whether an expression is one of these columns, or chooses among them."""
    node = node.unnest()
    if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least):
        return all(_is_time(each, times) for each in (node.this, *node.expressions))
    return isinstance(node, exp.Column) and node.name in times


def _find_type_name(call: exp.Anonymous) -> str | None:
    name = call.name.lower()
    return _TYPES.get(name) or _user_functions.get().get(name)


def make_typable(node: exp.Expr) -> exp.Expr:
    """An expression of the same type, in which sqlglot knows the types of all calls that are known here."""
    return node.transform(_make_call_typable)


def _make_call_typable(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Anonymous):
        return _make_named_call_typable(node)
    if isinstance(node, exp.Literal) and (number := find_literal_type(node)) is not None:
        return _value_of(number)
    if type(node) in _UNTYPED:
        return _value_of(_UNTYPED[type(node)])
    if type(node) in _SAFE:
        operands = {key: make_typable(node.args[key]) for key in ("this", "expression")}
        return exp.Paren(this=_SAFE[type(node)](**operands))
    if isinstance(node, _OF_ARRAYS):
        return make_typable(node.this)
    if isinstance(node, exp.Reduce) and node.args.get("finish") is None:
        return make_typable(node.args["initial"])
    if isinstance(node, exp.FromJson) and isinstance(node.expression, exp.Literal):
        type_ = read_schema(node.expression.name)
        return _value_of(type_) if type_ is not None else node
    if isinstance(node, exp.DecodeCase):  # decode(x, key, value, …, default)
        values = [*node.expressions[2::2], *(node.expressions[-1:] if len(node.expressions) % 2 == 0 else ())]
        return _choose([make_typable(each) for each in values])
    if isinstance(node, exp.Nvl2) or (isinstance(node, exp.If) and not isinstance(node.parent, exp.Case)):
        return _choose([make_typable(node.args[key]) for key in ("true", "false") if node.args.get(key)])
    return node


def _make_named_call_typable(node: exp.Anonymous) -> exp.Expr:
    name, arguments = node.name.lower(), node.expressions
    type_name = _find_type_name(node) or _NESTED
    if type_name is _LIKE_ARGUMENT and arguments:
        return make_typable(arguments[0])
    match name, arguments:
        case "get", [array, _]:
            return exp.Bracket(this=make_typable(array), expressions=[exp.Literal.number(0)])
        case "array_repeat", [element, _]:
            return exp.Array(expressions=[make_typable(element)])
        case "from_csv", [_, exp.Literal() as schema, *_]:
            type_ = read_schema(schema.name)
            return _value_of(type_) if type_ is not None else node
    return node if type_name in (_LIKE_ARGUMENT, _NESTED, "INTERVAL") else _value_of(type_name)


def _choose(values: Sequence[exp.Expr]) -> exp.Expr:
    """A CASE with these values."""
    branches = [exp.If(this=exp.true(), true=value) for value in values]
    return exp.Case(ifs=branches)


def correct_types(node: exp.Expr) -> exp.Expr | None:
    """An expression of the right type where sqlglot is wrong, given one with sqlglot's types; None if it is
    right: for parts of arrays and maps, for numbers that are computed, chosen or
    rounded, and for dates and times that are shifted."""
    for each in reversed([*node.bfs()]):  # operands first
        found = _find_right_type(each)
        made = _value_of(found) if found is not None and found != each.type else _expand_transform(each)
        if made is not None:
            if each is node:
                return made
            each.replace(made)
            return node
    return None


def _expand_transform(node: exp.Expr) -> exp.Expr | None:
    """``transform(array, x -> f(x))`` as an array of f(x), where x has the type of the array's elements."""
    if not isinstance(node, exp.Transform) or not isinstance(node.expression, exp.Lambda):
        return None
    element = _find_parameter(node.this, exp.DType.ARRAY, 0)
    names = [each.name for each in node.expression.expressions]
    if element is None or not names:
        return None
    values = {names[0]: _value_of(element), **dict.fromkeys(names[1:], _value_of("INT"))}

    def fill(each: exp.Expr) -> exp.Expr:
        is_parameter = isinstance(each, exp.Column | exp.Identifier) and each.name in values
        return values[each.name].copy() if is_parameter else each

    return exp.Array(expressions=[node.expression.this.transform(fill)])


def _find_parameter(node: exp.Expr, kind: exp.DType, index: int) -> exp.DataType | None:
    """The type of the elements of an array, or of the keys (0) or values (1) of a map."""
    type_ = node.type
    if type_ is None or type_.this is not kind or len(type_.expressions) <= index:
        return None
    return type_.expressions[index] if isinstance(type_.expressions[index], exp.DataType) else None


def _find_right_type(node: exp.Expr) -> exp.DataType | None:
    """The type of a node by those of its operands, if it is one of the nodes that sqlglot can get wrong."""
    if isinstance(node, exp.Bracket):
        return _find_parameter(node.this, exp.DType.MAP, 1)
    if isinstance(node, exp.ArrayMax | exp.ArrayMin | exp.Flatten):
        return _find_parameter(node.this, exp.DType.ARRAY, 0)
    if isinstance(node, exp.MapKeys):
        return _make_array(_find_parameter(node.this, exp.DType.MAP, 0))
    if isinstance(node, exp.Anonymous) and node.name.lower() == "map_values":
        return _make_array(_find_parameter(node.expressions[0], exp.DType.MAP, 1))
    if isinstance(node, exp.Concat):
        first = node.expressions[0].type
        return first if first is not None and first.this is exp.DType.ARRAY else None
    if isinstance(node, exp.Round | exp.Ceil | exp.Floor):
        return find_rounded_type(node)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        return find_moment_type(node) or find_computed_type(node)
    if isinstance(node, exp.TimestampAdd | exp.TimestampTrunc):
        return find_moment_type(node)
    if isinstance(node, exp.Coalesce | exp.Case | exp.Greatest | exp.Least):
        return find_common_type(node)
    return None


def _make_array(element: exp.DataType | None) -> exp.DataType | None:
    if element is None:
        return None
    return exp.DataType(this=exp.DType.ARRAY, expressions=[element.copy()], nested=True)


def _value_of(type_: str | exp.DataType) -> exp.Expr:
    return exp.Paren(this=exp.cast(exp.null(), type_, dialect="spark"))
