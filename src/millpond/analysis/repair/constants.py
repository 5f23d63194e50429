"""The constants of bounds: what a sample of the stream shows, or else placeholders with a name.

A placeholder is valid SQL, so that the changed text can be decided; a comment beside it, or its own text,
says which value is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from millpond.query.expressions import Literal
from millpond.query.model import Column, Query, Table
from millpond.query.trace import list_conditions
from millpond.query.trees import walk
from millpond.query.types import Domain, Family

if TYPE_CHECKING:
    import pyarrow as pa

Sample = Mapping[str, "pa.Table"]

# The placeholders for the number of values of one column, of each of two, and of each of more.
_CARDINALITIES = (1_000_000, 1_000, 100)
# A column with at most so many values in a sample, each of them several times, is bounded by listing them.
MAX_LISTED = 12
_LEAST_REPEATS = 4
# What a sample shows is multiplied by this for a number that has to hold for the whole stream.
_MARGIN = 10


@dataclass(frozen=True)
class ValueBound:
    """Conditions on a column, with ``{}`` for its name: the whole bound, and those that say half of it.

    ``origin`` says where its constants are from.
    """

    condition: str
    halves: tuple[str, ...] = ()
    origin: str = "the values are placeholders"


def find_bound(query: Query, table: Table, column: Column, sample: Sample) -> ValueBound | None:
    """A bound on the values of a column; None if constants of its type cannot bound it."""
    rows = sample.get(table.name)
    seen = [] if rows is None else [v for v in rows.column(column.name).unique().to_pylist() if v is not None]
    if seen and rows is not None:
        found = _bound_seen(column, seen, rows.num_rows)
        if found is not None:
            return found
    kind, name = column.type, _name_placeholder(column)
    if kind.family is Family.NUMBER and kind.domain is Domain.DISCRETE:
        low, high = _find_range(query)
        return _make_range(str(low), str(high), f"least_{name}", f"greatest_{name}")
    if kind.family is Family.NUMBER:
        listed = f"{{}} IN (0 /* {name}_1 */, 1 /* {name}_2 */)"
        return ValueBound(listed)
    if kind.family is Family.DATE:
        return _make_range("DATE '2000-01-01'", "DATE '2099-12-31'", f"first_{name}", f"last_{name}")
    if kind.family is Family.STRING:
        return ValueBound(f"{{}} IN ('{name}_1', '{name}_2')")
    return None


def find_cardinalities(table: Table, column: Column, sample: Sample) -> list[tuple[int, str]]:
    """The number of values to declare for a column, and where it is from.

    Without a sample, also those to declare if it is one of two columns, or of more.
    """
    rows = sample.get(table.name)
    if rows is None or not rows.num_rows:
        return [(number, f"{number:,} is a placeholder") for number in _CARDINALITIES]
    seen = len(rows.column(column.name).unique())
    number = 10 ** len(str(seen * _MARGIN - 1))
    return [(number, f"{rows.num_rows:,} sample rows have {seen:,} values")]


def _bound_seen(column: Column, seen: list[Any], rows: int) -> ValueBound | None:
    """The bound that a sample suggests."""
    origin = f"as in {rows:,} sample rows"
    family, is_discrete = column.type.family, column.type.domain is Domain.DISCRETE
    if is_discrete and family in (Family.NUMBER, Family.DATE):
        low, high = (_render(value) for value in (min(seen), max(seen)))
        halves = (f"{{}} >= {low}", f"{{}} <= {high}")
        return ValueBound(f"{{}} BETWEEN {low} AND {high}", halves, origin)
    if family is Family.STRING and len(seen) <= MAX_LISTED and rows >= _LEAST_REPEATS * len(seen):
        listed = ", ".join(sorted(map(_render, seen)))
        return ValueBound(f"{{}} IN ({_escape(listed)})", (), origin)
    return None


def _make_range(low: str, high: str, least: str, greatest: str) -> ValueBound:
    low, high = f"{low} /* {least} */", f"{high} /* {greatest} */"
    halves = (f"{{}} >= {low}", f"{{}} <= {high}")
    return ValueBound(f"{{}} BETWEEN {low} AND {high}", halves)


def _find_range(query: Query) -> tuple[int, int]:
    """A range of whole numbers around all constants of a query."""
    conditions = [condition for _, condition in list_conditions(query)]
    conditions += [check for table in query.declared_tables.values() for check in table.checks]
    literals = (node.value for each in conditions for node in walk(each) if isinstance(node, Literal))
    numbers = (v for v in literals if isinstance(v, int | float | Decimal) and not isinstance(v, bool))
    values = [int(number) for number in numbers if -(10**17) < number < 10**17]
    high = 10 ** max(3, len(str(max([0, *values])))) - 1
    low = min([0, *values])
    return (low if low == 0 else -(10 ** max(3, len(str(-low))))), high


def _name_placeholder(column: Column) -> str:
    return column.name if column.name.isidentifier() else "value"


def _escape(text: str) -> str:
    """The text for ``str.format``."""
    return text.replace("{", "{{").replace("}", "}}")


def _render(value: Any) -> str:
    """A value of a sample as a constant of SQL."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, date) and not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    return str(value)
