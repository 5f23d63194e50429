"""Chooses sample values of columns by what a query computes from them and compares them with.

A column that is read as JSON gets documents with all fields that the query reads; one that is searched for a
pattern gets strings that match it; one that is cut at a separator, strings that contain it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice, product
from typing import Any

from millpond.analysis.witness.sample_texts import match_like, match_regex, match_time
from millpond.analysis.witness.samples import (
    DIGITS,
    Constant,
    Document,
    Elements,
    Fields,
    Number,
    Parts,
    Sample,
    TimeText,
    TimeValue,
    Token,
)
from millpond.frontend.schemas import Structure, read_structure
from millpond.query.expressions import Comparison, Literal
from millpond.query.model import Column, Query, Subquery, Table, Windowed
from millpond.query.trace import Source, list_blocks, list_conditions, list_selects, trace_column
from millpond.query.trees import refs, walk
from millpond.query.types import BIGINT, Family, SqlType, find_type

# The most samples of a column, and the most values of each field of a document.
_MOST_SAMPLES = 36
_MOST_FIELDS = 6
_MOST_OF_FIELD = 4
# Days between moments: their hours, days and, in a second try, months and years differ.
_DAYS = (1, 400)
_DAY = 86_400
_UNITS = {"MILLI": 1_000, "MICRO": 1_000_000}  # of a second, in which numbers count the time
_NUMBERS = re.compile(r"(?<![\w.'])\d{1,9}\b")
_STRINGS = re.compile(r"'((?:[^'\\]|\\.|'')*)'")
_TIME_FUNCTION = re.compile(r"TIMESTAMP|UNIXTIME|DATE|EPOCH")
_OF_TEXT = r"(?:TO_TIMESTAMP|TO_DATE|UNIX_TIMESTAMP|TO_UNIX_TIMESTAMP|TRY_TO_TIMESTAMP)\((?:TRIM\()?`{}`\)?"
_AS_TIME = r"CAST\(`{}` AS (?:TIMESTAMP|DATE)\b"
_AS_NUMBER = r"CAST\((?:TRIM\()?`{}`\)? AS (?:TINY|SMALL|BIG)?(?:INT|LONG|FLOAT|DOUBLE|DECIMAL)"
_PART = r"SPLIT\(`{}`, '([^']+)'\)\[(\d+)\]"
_MOST_PARTS = 30
# A text that equals the number 1 in a document.
_ONE = "1"
_PLAIN_TIME = "%Y-%m-%d %H:%M:%S"
_REGEX_CALL = re.compile(r"(?:RLIKE |REGEXP_\w+\(.*?, )$|REGEXP_LIKE\(.*?, $")
_LIKE_CALL = re.compile(r"\bI?LIKE $")


class SampleChoices:
    """The samples of each declared column, for one query."""

    def __init__(self, query: Query) -> None:
        self._texts: dict[Source, list[str]] = {}
        self._values: dict[Source, list[Any]] = {}
        for table in list_tables(query):
            for column in table.derived:
                if column.derivation is not None:
                    for source in find_sources(table, column.name):
                        self._texts.setdefault(source, []).append(column.derivation.sql)
        for select, condition in list_conditions(query):
            for node in walk(condition):
                if not isinstance(node, Comparison) or select is None:
                    continue
                literals = [s.value for s in (node.left, node.right) if isinstance(s, Literal)]
                for ref in refs(node):
                    for source in find_sources(select.occurrence(ref.occurrence).table, ref.column):
                        self._values.setdefault(source, []).extend(v for v in literals if v is not None)

    def list_samples(self, table: Table, column: Column) -> list[Sample]:
        """Some samples of a column, those that vary with the key first."""
        source = table.name, column.name
        texts = list(dict.fromkeys(self._texts.get(source, [])))
        values = list(dict.fromkeys(self._values.get(source, [])))
        for check in table.checks:
            literals = [n.value for n in walk(check) if isinstance(n, Literal)]
            values += literals if any(ref.column == column.name for ref in refs(check)) else []
        found = list(islice(_propose(column, texts, values), _MOST_SAMPLES))
        return sorted(found, key=lambda sample: not sample.varies) or [Constant(None)]


def list_tables(query: Query) -> Iterator[Table]:
    """The tables that the selects and the window functions of a query and its blocks read."""
    for select in list_selects(query):
        yield from (occurrence.table for occurrence in select.every_occurrence)
    yield from (block.base for block in list_blocks(query))


def find_sources(table: Table, name: str) -> set[Source]:
    """The declared columns that a column shows, or is computed from, as far as they can be traced."""
    column = next((c for c in table.all_columns if c.name == name), None)
    if column is not None and column.derivation is not None and column.derivation.arguments:
        return {source for each in column.derivation.arguments for source in find_sources(table, each)}
    block = table.block
    if isinstance(block, Windowed) and any(c.name == name for c in block.base.all_columns):
        return find_sources(block.base, name)
    if isinstance(block, Subquery) and name in block.query.columns:
        number = block.query.columns.index(name)
        return {
            source
            for select in block.query.selects
            for ref in refs(select.items[number].expression)
            for source in find_sources(select.occurrence(ref.occurrence).table, ref.column)
        }
    source = trace_column(table, name)
    return set() if source is None else {source}


def _propose(column: Column, texts: Sequence[str], values: Sequence[Any]) -> Iterator[Sample]:
    match column.type.family:
        case Family.NUMBER:
            yield from _propose_numbers(column.type, texts, values)
        case Family.STRING:
            yield from _propose_strings(column.name, texts, values)
        case Family.BOOLEAN:
            yield from (Constant(True), Constant(False))
        case Family.DATE | Family.TIME as family:
            yield from _propose_moments(family is Family.DATE, values)
        case Family.NESTED:
            structure = read_structure(column.type.name)
            if structure is not None:
                yield from _propose_nested(structure, _list_map_keys(column.name, texts), values)


def _propose_numbers(type_: SqlType, texts: Sequence[str], values: Sequence[Any]) -> Iterator[Sample]:
    """Numbers near constants; where they count the time, also some that are days apart."""
    starts = [1, *(int(v) + d for v in values if _is_number(v) for d in (0, 1, -1))]
    starts += [int(each) + d for text in texts for each in _NUMBERS.findall(text) for d in (0, 1)]
    if any(_TIME_FUNCTION.search(text) for text in texts):
        unit = next((n for name, n in _UNITS.items() if any(name in text for text in texts)), 1)
        yield from (Number(days * _DAY * unit, type_, days * _DAY * unit) for days in _DAYS)
    yield from (Number(start, type_) for start in dict.fromkeys(starts))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _propose_moments(is_date: bool, values: Sequence[Any]) -> Iterator[Sample]:
    for days in _DAYS:
        yield TimeValue(is_date, days)
    for value in values:
        if isinstance(value, date):
            start = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
            yield from (TimeValue(is_date, 1, start.replace(tzinfo=None) + timedelta(days=d)) for d in (0, 1))
            yield TimeValue(is_date, 0, start.replace(tzinfo=None) - timedelta(days=1))


# --- strings -------------------------------------------------------------------------------------------


def _propose_strings(name: str, texts: Sequence[str], values: Sequence[Any]) -> Iterator[Sample]:
    strings = [value for value in values if isinstance(value, str)]
    structures = _list_documents(name, texts)
    times = list(_propose_times(name, texts))
    if structures:  # DuckDB reads only JSON as JSON, and only times as times
        yield from map(Document, _propose_nested(_merge(structures), (), values))
    elif times:
        yield from times
    else:
        if any(re.search(_AS_NUMBER.format(re.escape(name)), text) for text in texts):
            yield Parts((Number(1, BIGINT, has_level=False),))
        yield from _propose_delimited(name, texts, values)
        yield from _propose_texts(texts, values)
        yield from map(Constant, [*strings, _ONE])


def _propose_delimited(name: str, texts: Sequence[str], values: Sequence[Any]) -> Iterator[Sample]:
    """Strings with as many parts as expressions read of them; in most, one part varies with the key."""
    found = [each for text in texts for each in re.findall(_PART.format(re.escape(name)), text)]
    parts = {int(number) for _, number in found}
    if not found or max(parts) < 2 or max(parts) > _MOST_PARTS:
        return
    between = Constant(found[0][0].replace("\\", ""))
    choices = [
        _list_leaf_samples("JSON", values)[:_MOST_OF_FIELD] if i in parts else [Constant(_ONE)]
        for i in range(max(parts) + 1)
    ]
    for own in (*sorted(parts), None):
        for chosen in islice(product(*choices), _MOST_OF_FIELD**2):
            filled = [Token() if i == own else each for i, each in enumerate(chosen)]
            yield Parts(tuple(each for part in filled for each in (part, between))[:-1])


def _propose_texts(texts: Sequence[str], values: Sequence[Any]) -> Iterator[Sample]:
    """Strings of letters or digits, and with the constants of the expressions between them."""
    token, digits = Token(), Token(DIGITS)
    plain: list[Sample] = [token, digits]
    strings = [Constant(v) for v in values if isinstance(v, str) and v]
    numbers = [Constant(str(int(v) + d)) for v in values if _is_number(v) for d in (0, 1)]
    for text in texts:
        for found in _STRINGS.finditer(text):
            constant, before = found[1].replace("''", "'"), text[: found.start()]
            if _LIKE_CALL.search(before):
                yield match_like(constant)
            elif _REGEX_CALL.search(before):
                yield from _propose_matching(constant.replace("\\\\", "\\"), numbers)
            elif constant:
                part = Constant(constant)
                yield Parts((token, part, token, part, token))
                yield from (Parts((each, part, token)) for each in (*strings, *numbers))
                yield from (Parts((token, part, each)) for each in (*strings, *numbers))
                plain += [Parts((part, token)), Parts((token, part))]
    yield from plain
    yield from (Parts((each, token)) for each in strings)


def _propose_matching(pattern: str, numbers: Iterable[Sample]) -> Iterator[Sample]:
    """Strings that match a regular expression, also with certain numbers in them."""
    sample = match_regex(pattern)
    if sample is None:
        return
    yield sample
    yield Parts((sample, Token()))
    yield Parts((Token(), sample))
    if isinstance(sample, Parts):
        for i, part in enumerate(sample.parts):
            if part == Token(DIGITS):
                for number in numbers:
                    replaced = (*sample.parts[:i], number, *sample.parts[i + 1 :])
                    yield from (Parts(replaced), Parts((*replaced, Constant(" "), Token())))


def _propose_times(name: str, texts: Sequence[str]) -> Iterator[Sample]:
    """Times as text, in the formats in which expressions read a column."""
    for text in texts:
        for found in re.finditer(_OF_TEXT.format(re.escape(name)) + r"(?:, '((?:[^'\\]|\\.)*)')?\)", text):
            for days in _DAYS:
                plain = TimeText(TimeValue(days=days), _PLAIN_TIME)
                sample = match_time(found[1].replace("\\", ""), days) if found[1] else plain
                if sample is not None:
                    yield sample
        if re.search(_AS_TIME.format(re.escape(name)), text):
            yield from (TimeText(TimeValue(days=days), _PLAIN_TIME) for days in _DAYS)


# --- nested values -------------------------------------------------------------------------------------

_UNKNOWN = Structure("JSON")


def _list_documents(name: str, texts: Sequence[str]) -> list[Structure]:
    """The structures of the JSON documents that expressions read from a column."""
    out = []
    for text in texts:
        for path in re.findall(rf"GET_JSON_OBJECT\(`{re.escape(name)}`, '\$([^']*)'\)", text):
            out.append(_build_path(re.findall(r"\.?(\w+)|\['([^']*)'\]|(\[)", path.replace("[*]", "[0]"))))
        for schema in re.findall(rf"FROM_JSON\(`{re.escape(name)}`, '([^']*)'\)", text):
            structure = read_structure(schema)
            out += [structure] if structure is not None else []
    return out


def _build_path(steps: Sequence[tuple[str, str, str]]) -> Structure:
    """The structure that has a value at a path; ``[`` is followed by the number of an element."""
    found = _UNKNOWN
    names = [plain or quoted or bracket for plain, quoted, bracket in steps]
    for i in range(len(names) - 1, -1, -1):
        if names[i] == "[":
            found = Structure("ARRAY", element=found)
        elif i == 0 or names[i - 1] != "[":
            found = Structure("STRUCT", fields={names[i]: found})
    return found


def _merge(structures: Sequence[Structure]) -> Structure:
    """One structure with the fields of all of them."""
    structs = [each.fields for each in structures if each.fields is not None]
    if not structs:
        return next((each for each in structures if each.element is not None), structures[0])
    names = dict.fromkeys(name for fields in structs for name in fields)
    merged = {name: _merge([f[name] for f in structs if name in f]) for name in names}
    return Structure("STRUCT", fields=merged)


def _list_map_keys(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    found = [key for text in texts for key in re.findall(rf"`{re.escape(name)}`\['([^']*)'\]", text)]
    return tuple(dict.fromkeys(found)) or ("a",)


def _propose_nested(structure: Structure, keys: Sequence[str], values: Sequence[Any]) -> Iterator[Sample]:
    """Values of a structure; in most, one field varies with the key."""
    if structure.name == "MAP" and structure.element is not None:
        structure = Structure("STRUCT", fields=dict.fromkeys(keys, structure.element))
    leaves = list(_list_leaves(structure))[:_MOST_FIELDS]
    choices = {path: _list_leaf_samples(name, values)[:_MOST_OF_FIELD] for path, name in leaves}
    tried = [
        product(*([_vary_leaf(name)] if path == own else choices[path] for path, name in leaves))
        for own in (*choices, None)
    ]
    for each in zip(*(islice(samples, _MOST_SAMPLES) for samples in map(_cycle, tried)), strict=True):
        for samples in each:
            if samples is not None:
                chosen = dict(zip((path for path, _ in leaves), samples, strict=True))
                yield _build_sample(structure, (), chosen)


def _cycle(found: Iterable[Any]) -> Iterator[Any]:
    """The elements, then None for ever."""
    yield from found
    while True:
        yield None


def _list_leaves(structure: Structure, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths of the plain values of a structure, with their types."""
    if structure.fields is not None:
        for name, inner in structure.fields.items():
            yield from _list_leaves(inner, (*path, name))
    elif structure.element is not None:
        yield from _list_leaves(structure.element, (*path, "[]"))
    else:
        yield path, structure.name


def _find_leaf_type(name: str) -> SqlType | None:
    return BIGINT if name == "JSON" else find_type(name)


def _vary_leaf(name: str) -> Sample:
    type_ = _find_leaf_type(name)
    if type_ is not None and type_.family is Family.NUMBER:
        return Number(1, type_, has_level=False)
    return Token()


def _list_leaf_samples(name: str, values: Sequence[Any]) -> list[Sample]:
    """Samples of a field that does not vary with the key."""
    type_ = _find_leaf_type(name)
    numbers = [int(v) + d for v in values if _is_number(v) for d in (1, 0, -1)]
    strings: list[Sample] = [Constant(v) for v in dict.fromkeys(values) if isinstance(v, str)]
    if name == "JSON":
        return [*strings, *(Number(v, BIGINT, 0) for v in dict.fromkeys([*numbers, 1]))]
    if type_ is not None and type_.family is Family.NUMBER:
        return [Number(v, type_, 0) for v in dict.fromkeys([*numbers, 1])]
    if type_ is not None and type_.family is Family.BOOLEAN:
        return [Constant(True), Constant(False)]
    if type_ is not None and type_.family in (Family.DATE, Family.TIME):
        return [Constant("2000-01-01")]
    return [*strings, Constant("a")]


def _build_sample(
    structure: Structure, path: tuple[str, ...], chosen: Mapping[tuple[str, ...], Sample]
) -> Sample:
    if structure.fields is not None:
        inner = {n: _build_sample(each, (*path, n), chosen) for n, each in structure.fields.items()}
        return Fields(inner)
    if structure.element is not None:
        return Elements(_build_sample(structure.element, (*path, "[]"), chosen))
    return chosen.get(path, Constant(None))
