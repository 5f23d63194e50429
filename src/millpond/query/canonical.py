"""A canonical form of a query, from which fingerprints are made."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from millpond.query.model import Ref, Select, Table
from millpond.query.types import SqlType


def meaning_of(value: object, select: Select | None = None) -> object:
    """What equality compares of a query, with the types of its columns; of tables their names."""
    match value:
        case Table():
            return value.name
        case SqlType():
            return str(value)
        case Ref() if select is not None:
            return (str(value), str(select.type_of(value)))
        case tuple():
            return tuple(meaning_of(each, select) for each in value)
        case _ if is_dataclass(value):
            within = value if isinstance(value, Select) else select
            parts = (meaning_of(getattr(value, f.name), within) for f in fields(value) if f.compare)
            return (type(value).__name__, *parts)
    return value
