"""The canonical form of a query: equal for two queries if and only if their state has the same meaning.

The fingerprints of state layouts and of checkpoints are made from it, so a change of this form makes the
checkpoints of earlier versions unreadable.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from millpond.query.expressions import Ref
from millpond.query.model import Select, Subquery, Table
from millpond.query.types import SqlType

# Fields that queries did not have when the form was fixed; left out where they are empty.
_LATER = frozenset({"session", "joins", "exists", "projection", "filter", "others"})


def canonical_text(value: object) -> str:
    """The canonical form of a query, or of a part of one, as text to be hashed.

    It holds the names of tables and the types of the columns used; spelling and positions in the SQL text
    are left out.
    """
    return repr(_canonical_form(value, None))


def _canonical_form(value: object, select: Select | None) -> object:
    """What equality compares; a table is its name, and a column of a select has its type with it."""
    match value:
        case Table(block=Subquery(query=query)):
            return (value.name, _canonical_form(query, None))
        case Table():
            return value.name
        case SqlType():
            return str(value)
        case Ref() if select is not None:
            return (str(value), str(select.type_of(value)))
        case tuple():
            return tuple(_canonical_form(each, select) for each in value)
        case _ if is_dataclass(value):
            within = value if isinstance(value, Select) else select
            compared = ((f.name, getattr(value, f.name)) for f in fields(value) if f.compare)
            parts = (_canonical_form(each, within) for name, each in compared if each or name not in _LATER)
            return (type(value).__name__, *parts)
    return value
