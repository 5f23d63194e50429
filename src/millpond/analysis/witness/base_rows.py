"""The rows from which witnesses of whole queries start: one of each table, such that there is an answer."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice, product
from typing import Any

from millpond.analysis.witness.effort import evaluate_limited
from millpond.analysis.witness.realise import make_number
from millpond.query.evaluate import Row
from millpond.query.expressions import Literal
from millpond.query.model import Column, Query, Table
from millpond.query.trace import Source, list_conditions, list_derivations
from millpond.query.trees import walk
from millpond.query.types import Family
from millpond.runtime.query_sql import World

FIRST = datetime(2000, 1, 1)
# The time between two rows: longer than a calendar year, unless the witness is very large.
STEP = timedelta(days=400)
SPAN = timedelta(days=6_000 * 365)
_FAR = datetime(9000, 1, 1)
_MOST_CANDIDATES = 60
_MOST_BASES = 4
# Pairs of rows that differ are tried with so many first rows, and so many second ones for each.
_MOST_CHANGED = 12
_MOST_CHANGES = 24
_CHANGES = (1_000, -1_000, 1, -1)


def shift_value(column: Column, value: Any, by: int) -> Any:
    """The value that comes ``by`` steps after another one; strings are ordered by their last part."""
    if by == 0 or value is None:
        return value
    match column.type.family:
        case Family.NUMBER:
            return value + Decimal(by) if isinstance(value, Decimal) else value + by
        case Family.STRING:
            return f"{value}{1_000_000 + by}" if by > 0 else f"{value}!{1_000_000 + by}"
        case Family.DATE:
            return value + timedelta(days=by)
        case Family.TIME:
            return value + timedelta(seconds=by)
        case _:
            return value


def find_base_rows(
    query: Query, tables: Mapping[str, Table], equal: Sequence[set[Source]]
) -> list[dict[str, Row]]:
    """Some choices of a row of each table such that the query has an answer."""
    choices = _list_choices(query, tables)
    rng = random.Random(0)
    candidates: list[dict[str, Row]] = []
    for number in range(_MOST_CANDIDATES):
        picked: dict[Source, Any] = {}
        for name, table in tables.items():
            for column in table.columns:
                values = choices.get(column.type.family, [None])  # nested values are left out
                value = values[number % len(values)] if number < _MOST_CANDIDATES / 4 else rng.choice(values)
                same = next((each for each in equal if (name, column.name) in each), {(name, column.name)})
                known = next((picked[each] for each in same if each in picked), value)
                is_time = column.name == table.time
                picked[name, column.name] = FIRST if is_time else _convert(column, known)
        candidate: dict[str, Row] = {
            n: {c.name: picked[n, c.name] for c in t.columns} for n, t in tables.items()
        }
        if candidate not in candidates:
            candidates.append(candidate)
    seconds = timedelta(seconds=1)
    pairs = list(product(candidates, ((1, seconds), (3, seconds), (3, STEP))))
    answers = evaluate_limited(
        query, [{}, *(_repeat_rows(tables, rows, *spacing) for rows, spacing in pairs)]
    )
    found: list[dict[str, Row]] = []
    for (rows, _), answer in zip(pairs, answers[1:], strict=True):
        if answer != answers[0] and rows not in found:
            found.append(rows)
    return found[:_MOST_BASES]


def find_changed_rows(
    query: Query, tables: Mapping[str, Table], stream: str, changed: Sequence[str], with_null: bool
) -> list[tuple[dict[str, Row], Row]]:
    """Rows of each table, and other values of ``changed`` columns of a later row of a stream.

    The query has an answer for the two rows of the stream, in this order.  ``with_null``: try NULL first.
    """
    choices, table = _list_choices(query, tables), tables[stream]
    columns = [column for column in table.columns if column.name in changed]
    pairs: list[tuple[dict[str, Row], Row]] = []
    for number in range(_MOST_CHANGED):
        rows: dict[str, Row] = {
            name: {c.name: _choose(c, choices, number) for c in each.columns} for name, each in tables.items()
        }
        changes = product(*(_list_changes(c, rows[stream], choices, with_null) for c in columns))
        for values in islice(changes, _MOST_CHANGES):
            pairs.append((rows, {c.name: value for c, value in zip(columns, values, strict=True)}))
    worlds: list[World] = []
    for first, later in pairs:
        last = {**first[stream], **later, **({table.time: FIRST + STEP} if table.time else {})}
        world = _repeat_rows(tables, first, 1, STEP)
        worlds.append({**world, stream: [*world[stream], last]})
    empty, *answers = evaluate_limited(query, [{}, *worlds])
    found = [pair for pair, answer in zip(pairs, answers, strict=True) if answer != empty]
    return found[:_MOST_BASES]


def _choose(column: Column, choices: Mapping[Family, Sequence[Any]], number: int) -> Any:
    values = choices.get(column.type.family, [None])
    return _convert(column, values[number % len(values)])


def _list_changes(
    column: Column, row: Row, choices: Mapping[Family, Sequence[Any]], with_null: bool
) -> list[Any]:
    """Other values of a column than that of a row: far higher, far lower, and those of the query."""
    value = row[column.name]
    shifted = [shift_value(column, value, by) for by in _CHANGES]
    listed = [_convert(column, each) for each in choices.get(column.type.family, [])]
    null = [None] if with_null and column.nullable else []
    return [each for each in dict.fromkeys([*null, *shifted, *listed]) if each != value] or [value]


def _repeat_rows(tables: Mapping[str, Table], rows: Mapping[str, Row], copies: int, step: timedelta) -> World:
    """So many copies of each row, a step of time apart; one of a row of a relation."""
    world = {}
    for name, table in tables.items():
        times = [FIRST + step * i for i in range(copies if table.streaming else 1)]
        world[name] = [{**rows[name], **({table.time: time} if table.time else {})} for time in times]
    return world


def _list_choices(query: Query, tables: Mapping[str, Table]) -> dict[Family, list[Any]]:
    """Values to try for columns of each type: simple ones, and those around the constants of the query."""
    numbers, strings, days, times = [1], ["a"], [date(2000, 1, 1)], [_FAR]
    flags = [True, False]
    conditions = [condition for _, condition in list_conditions(query)]
    conditions += [check for table in tables.values() for check in table.checks]
    for text in list_derivations(query):
        strings += [each.strip("%_") for each in re.findall(r"'([^']*)'", text)]
        numbers += [int(each) + d for each in re.findall(r"\b[0-9]{1,9}\b", text) for d in (0, 1, -1)]
    for condition in conditions:
        for node in walk(condition):
            if not isinstance(node, Literal) or node.value is None or isinstance(node.value, timedelta):
                continue
            match node.value:
                case bool():
                    pass
                case str():
                    strings.append(node.value)
                case datetime():
                    times += [node.value, node.value + timedelta(days=1), node.value - timedelta(days=1)]
                case date():
                    days += [node.value + timedelta(days=d) for d in (0, 1, -1)]
                case _:
                    numbers += [int(node.value) + d for d in (0, 1, -1)]
    return {
        Family.NUMBER: list(dict.fromkeys(numbers)),
        Family.STRING: list(dict.fromkeys(strings)),
        Family.BOOLEAN: flags,
        Family.DATE: list(dict.fromkeys(days)),
        Family.TIME: list(dict.fromkeys(times)),
    }


def _convert(column: Column, value: Any) -> Any:
    """The value in the type of a column; a text that is no number is 1."""
    if isinstance(value, str) and column.type.family is Family.NUMBER:
        value = int(value) if value.isdecimal() and value.isascii() else 1
    return make_number(value, column.type) if column.type.family is Family.NUMBER else value
