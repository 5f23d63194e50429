"""SQL inside other text: templates of dbt, and notebooks.  Every position stays what it is in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from millpond.errors import SqlError

# dbt: names of tables in {{ ref('clicks') }} and {{ source('web', 'clicks') }}; {{ config(…) }} is no SQL.
_STRING = r"""(?:'[^'{}\n]*'|"[^"{}\n]*")"""
_TABLE = re.compile(
    rf"\{{\{{[-+]?\s*(?:ref|source)\(\s*(?:{_STRING}\s*,\s*)?(['\"])([A-Za-z_]\w*)\1"
    r"\s*(?:,\s*(?:v|version)\s*=\s*\d+\s*)?\)\s*[-+]?\}\}"
)
_NOT_SQL = re.compile(r"\{\{[-+]?\s*config\(.*?\)\s*[-+]?\}\}|\{#.*?#\}", re.DOTALL)
# Braces in a string of SQL are no template, unless a name or a statement of a template follows them.
_STATEMENT = r"\{%[-+]?\s*(?:if|elif|else|endif|for|endfor|set|endset|macro|endmacro|raw|do|call)\b"
_TEMPLATE = re.compile(
    rf"'(?:(?!\{{\{{[-+]?\s*\w|{_STATEMENT})(?:[^'\\]|\\.))*'|--[^\n]*|/\*.*?\*/|(?P<template>\{{\{{|\{{%)",
    re.DOTALL,
)
# Notebooks that are exported as SQL or Python divide their cells by this line; cells need no semicolon.
_CELL = re.compile(r"^--[ ]COMMAND[ ]-+[ \t]*$", re.MULTILINE)
_PYTHON_NOTEBOOK = re.compile(r"\A#[ ]Databricks[ ]notebook[ ]source[ \t]*$", re.MULTILINE)
_PYTHON_CELL = re.compile(r"^#[ ]COMMAND[ ]-+[ \t]*$")
_MAGIC = re.compile(r"#[ ]MAGIC(?:[ ]|$)")
# Jupyter: the lines of a cell are strings in a list.
_SOURCE = re.compile(r'\s*"source":\s*\[\s*')
_SOURCE_LINE = re.compile(r'\s*("(?:[^"\\]|\\.)*"),?\s*')
_SQL_MAGIC = re.compile(r"%{1,2}(?:spark)?sql\b[ \t]*")


def prepare_text(text: str) -> str:
    """The SQL of a file, with spaces in place of what is not SQL.

    Raises SqlError at the first template whose SQL only dbt knows.

    >>> prepare_text("SELECT a FROM {{ ref('clicks') }}")
    'SELECT a FROM clicks             '
    """
    if _PYTHON_NOTEBOOK.search(text):
        return _take_sql_cells(text)
    if text.lstrip().startswith("{") and '"nbformat"' in text:
        return _read_jupyter(text)
    return _divide_cells(_fill_templates(text))


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _fill_templates(text: str) -> str:
    def name(found: re.Match[str]) -> str:
        return found[2] + _blank(found[0])[len(found[2]) :]

    text = _NOT_SQL.sub(lambda found: _blank(found[0]), _TABLE.sub(name, text))
    for found in _TEMPLATE.finditer(text):
        if found["template"] is not None:
            from millpond.frontend.statement import position

            remedy = "compile the template first, and check the SQL that it gives"
            raise SqlError("a template is not SQL", position(text, found.start()), remedy)
    return text


def _divide_cells(text: str) -> str:
    """Put a semicolon between the cells of a notebook, where a statement does not end with one."""
    start = 0

    def divide(found: re.Match[str]) -> str:
        nonlocal start
        code = re.sub(r"--[^\n]*", "", text[start : found.start()]).rstrip()
        start = found.end()
        return f";{' ' * (len(found[0]) - 1)}" if code and not code.endswith(";") else found[0]

    return _CELL.sub(divide, text)


def _take_sql_cells(text: str) -> str:
    """The cells ``# MAGIC %sql`` of a notebook that is exported as Python."""
    lines: list[str] = []
    is_sql = False
    for line in text.split("\n"):
        if _PYTHON_CELL.match(line):
            lines.append(";" if is_sql else "")
            is_sql = False
            continue
        magic = _MAGIC.match(line)
        code = " " * magic.end() + line[magic.end() :] if magic else ""
        if found := _SQL_MAGIC.match(code.strip()):
            is_sql = True
            code = code.replace(found[0], " " * len(found[0]), 1)
        lines.append(code if is_sql else "")
    return "\n".join(lines)


def _read_jupyter(text: str) -> str:
    """The cells of a Jupyter notebook that start with ``%%sql``."""
    try:
        json.loads(text)
    except ValueError:
        raise SqlError("the notebook is damaged: it is not JSON") from None
    return "\n".join(_read_jupyter_lines(text))


def _read_jupyter_lines(text: str) -> Iterator[str]:
    is_source = is_sql = is_first = False
    for line in text.split("\n"):
        found = _SOURCE_LINE.fullmatch(line) if is_source else None
        if found is None:
            yield ";" if is_sql else ""
            is_sql, is_source = False, _SOURCE.fullmatch(line) is not None
            is_first = is_source
            continue
        code = " " * (found.start(1) + 1) + json.loads(found[1]).rstrip("\n")
        if is_first and (magic := _SQL_MAGIC.match(code.lstrip())):
            is_sql = True
            code = code.replace(magic[0], " " * len(magic[0]), 1)
        is_first = False
        yield code if is_sql else ""
