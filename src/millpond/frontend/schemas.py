"""The structure of nested types, as schemas of ``from_json`` and declarations of columns describe them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError


@dataclass(frozen=True)
class Structure:
    """A type: a struct has ``fields``, an array an ``element``, a map values like its ``element``."""

    name: str
    fields: Mapping[str, Structure] | None = None
    element: Structure | None = None


def read_structure(text: str) -> Structure | None:
    """The structure of a type or a schema of ``from_json``; None if it cannot be read.

    >>> read_structure("id INT, tags ARRAY<STRING>").fields["tags"].element.name
    'STRING'
    """
    type_ = read_schema(text)
    return None if type_ is None else _build_structure(type_)


def _build_structure(type_: exp.DataType) -> Structure:
    name, inner = type_.sql("spark"), type_.expressions
    if type_.this is exp.DType.STRUCT:
        fields = {each.name: _build_structure(each.args["kind"]) for each in inner}
        return Structure("STRUCT", fields=fields)
    if type_.this in (exp.DType.ARRAY, exp.DType.MAP) and inner:
        return Structure(type_.this.name, element=_build_structure(inner[-1]))
    return Structure(name.upper())


def read_schema(text: str) -> exp.DataType | None:
    """The type that a schema of ``from_json`` describes: ``id INT, name STRING`` or ``ARRAY<INT>``."""
    struct = f"STRUCT<{text}>"
    is_column = re.match(r"\s*(\w+|`[^`]*`)\s+\w", text)  # name INT
    for written in (struct, text) if is_column else (text, struct):
        try:
            type_ = exp.DataType.build(written, dialect="spark")
        except SqlglotError:
            continue
        if type_.this is not exp.DType.USERDEFINED:
            return type_
    return None


def write_json_structure(type_: exp.DataType) -> str:
    """A type as DuckDB's ``from_json`` asks for it.

    >>> write_json_structure(read_schema("id INT, tags ARRAY<STRING>"))
    '{"id": "INT", "tags": ["TEXT"]}'
    """
    return json.dumps(_list_json_structure(type_))


def _list_json_structure(type_: exp.DataType) -> object:
    if type_.this is exp.DType.STRUCT:
        return {each.name: _list_json_structure(each.args["kind"]) for each in type_.expressions}
    if type_.this is exp.DType.ARRAY and type_.expressions:
        return [_list_json_structure(type_.expressions[0])]
    return type_.sql("duckdb")
