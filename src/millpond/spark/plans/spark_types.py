"""Types of Spark, as texts: of expressions, of the fields of structs, and which casts keep all values."""

from __future__ import annotations

import re

from millpond.frontend.spark_names import quote_name
from millpond.spark.plans.nodes import PlanExpression, UnsupportedPlanError

TIMES = ("timestamp", "timestamp_ntz", "timestamp_ltz")
# The digits of whole numbers.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
NUMBERS = (*_DIGITS, "float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
# Expressions with the value of their only child.
TRANSPARENT_VALUES = {
    *("Alias", "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"),
    *("PromotePrecision", "TempResolvedColumn", "UpCast", "CommonExpressionDef", "CheckOverflow"),
}
_TYPE_ARITHMETIC = {
    "Add",
    "Subtract",
    "Multiply",
    "Remainder",
    "UnaryMinus",
    "Abs",
    "Coalesce",
    "Greatest",
    "Least",
}


def infer_type(node: PlanExpression) -> str | None:
    """The type of an expression, where its form shows it."""
    if node.kind in ("TimestampAddInterval", "TimeAdd", "DatetimeSub"):
        return "timestamp"
    if node.type is not None:
        return node.type
    if node.kind in _TYPE_ARITHMETIC or node.kind in TRANSPARENT_VALUES:
        types = {infer_type(child) for child in node.children}
        return types.pop() if len(types) == 1 else None
    if node.kind in ("Year", "Month", "DayOfMonth", "Hour", "Minute", "Second", "Length", "Size"):
        return "int"
    if node.kind in ("Upper", "Lower", "Concat", "Substring", "StringTrim", "DateFormatClass"):
        return "string"
    if node.kind == "AggregateExpression":
        return "bigint" if node.children[0].kind == "Count" else None
    return None


def keeps_values(given: str | None, wanted: str) -> bool:
    """Whether a cast leaves every value as it is.

    >>> keeps_values("int", "bigint"), keeps_values("bigint", "int"), keeps_values("int", "string")
    (True, False, False)
    >>> keeps_values("int", "decimal(12,2)"), keeps_values("decimal(10,2)", "decimal(10,0)")
    (True, False)
    """
    if given is None:
        return False
    if given == wanted or (given in TIMES and wanted in TIMES):
        return True
    if given in _DIGITS and wanted in _DIGITS:
        return _DIGITS[given] <= _DIGITS[wanted]
    if given in _DIGITS or given.startswith("decimal"):
        return wanted in ("double", "float") or _fits(given, wanted)
    return (given, wanted) == ("float", "double")


def find_field(type_: str | None, ordinal: object, name: str | None) -> tuple[str, str]:
    """The name and the type of the n-th field of a struct; ``name`` is its name, if it is known.

    >>> find_field("struct<a:int,b:string>", 1, None)
    ('b', 'string')
    """
    if type_ is not None and type_.startswith("struct<") and isinstance(ordinal, int):
        found, _, field_type = _split(type_[len("struct<") : -1])[ordinal].partition(":")
        return name or found, field_type
    if name is None:
        raise UnsupportedPlanError("a field without a name")
    return name, "string"


def render_fields(fields: str) -> list[str]:
    """Fields of a struct type as columns of a schema: ``a:int`` is ``a INT``."""
    pairs = (each.partition(":") for each in _split(fields))
    return [f"{quote_name(name)} {type_.upper()}" for name, _, type_ in pairs]


def _split(text: str) -> list[str]:
    """The parts between commas that are not inside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _fits(given: str, wanted: str) -> bool:
    """Whether a DECIMAL has all digits of another one, or of whole numbers."""
    sizes = [_DECIMAL.fullmatch(each) for each in (given, wanted)]
    if sizes[1] is None:
        return False
    precision, scale = int(sizes[1][1]), int(sizes[1][2])
    whole, fraction = _DIGITS.get(given, 0), 0
    if sizes[0] is not None:
        whole, fraction = int(sizes[0][1]) - int(sizes[0][2]), int(sizes[0][2])
    return precision - scale >= whole and scale >= fraction
