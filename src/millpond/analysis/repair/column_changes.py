"""Changes that bound a column: in WHERE, as a CHECK, or by the number of its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from millpond.analysis.repair.changes import Addition, Change, add_condition, cut
from millpond.analysis.repair.constants import Sample, find_bound, find_cardinalities
from millpond.analysis.repair.model import Edit, Meaning, RepairKind
from millpond.analysis.repair.subject import Subject
from millpond.frontend.outline import TableOutline
from millpond.frontend.spark_names import quote_name


def list_bounds(subject: Subject, sample: Sample) -> Iterator[Change]:
    """Conditions in WHERE, one for each column of each entry of FROM."""
    reads = list(subject.list_reads())
    for weight, (table, column) in enumerate(subject.list_columns()):
        bound = find_bound(subject.query, table, column, sample)
        for select, source, read in reads:
            if read.name != table.name or bound is None:
                continue
            name = f"{source.alias}.{quote_name(column.name)}"
            title = f"read only rows with certain values of {{}} ({bound.origin})"
            change = Change(RepairKind.BOUND, title, name, Meaning.FEWER, weight=weight)
            whole, *halves = (
                replace(change, edits=edits, additions=additions)
                for condition in (bound.condition, *bound.halves)
                for edits, additions in [add_condition(select, condition.format(name))]
            )
            yield replace(whole, narrower=tuple(halves))


def list_checks(subject: Subject, sample: Sample) -> Iterator[Change]:
    """CHECKs of the declared tables, one for each column."""
    for weight, (table, column) in enumerate(subject.list_columns()):
        declaration = subject.declarations.get(table.name.lower())
        bound = find_bound(subject.query, table, column, sample)
        if declaration is None or bound is None:
            continue
        place = next(c.span.end for c in declaration.columns if c.name.lower() == column.name.lower())
        title = f"declare which values {{}} can have ({bound.origin})"
        change = Change(RepairKind.CHECK, title, f"{table.name}.{column.name}", Meaning.SAME, weight=weight)
        checks = [each.format(quote_name(column.name)) for each in (bound.condition, *bound.halves)]
        whole, *halves = (
            replace(
                change,
                assumption=f"every row of {table.name} has {{}}, or NULL",
                assumed=_strip_comments(check),
                additions=(Addition(place, " ", " ", f"CHECK ({check})"),),
            )
            for check in checks
        )
        yield replace(whole, narrower=tuple(halves))


def _strip_comments(condition: str) -> str:
    return re.sub(r" /\* \w+ \*/", "", condition)


def list_cardinalities(subject: Subject, sample: Sample) -> Iterator[Change]:
    """Declared numbers of values, one for each column."""
    for weight, (table, column) in enumerate(subject.list_columns()):
        declaration = subject.declarations.get(table.name.lower())
        if declaration is None or not column.name.isprintable() or set(column.name) & set("'\\"):
            continue
        name = f"{table.name}.{column.name}"
        alone, *in_company = (
            Change(
                RepairKind.CARDINALITY,
                f"declare the number of values of {{}} ({origin})",
                name,
                Meaning.SAME,
                f"there are at most {number:,} different values {{}}",
                f"of {name}",
                additions=(_add_property(declaration, f"'cardinality.{column.name}' = '{number}'"),),
                weight=weight,
            )
            for number, origin in find_cardinalities(table, column, sample)
        )
        yield replace(alone, in_company=tuple(in_company))


def _add_property(declaration: TableOutline, element: str) -> Addition:
    if declaration.properties is None:
        return Addition(declaration.span.end, " TBLPROPERTIES (", ", ", element, ")")
    return Addition(declaration.properties.end - 1, ", ", ", ", element)


def list_relations(subject: Subject, sample: Sample) -> Iterator[Change]:
    """Static tables instead of streams."""
    for table in subject.tables.values():
        declaration = subject.declarations.get(table.name.lower())
        if declaration is None or declaration.streaming is None:
            continue
        edits = [Edit(declaration.streaming.start, declaration.streaming.end, "")]
        if declaration.properties is not None:  # all of them are properties of streams
            edits.append(cut(subject.text, declaration.properties))
        yield Change(
            RepairKind.RELATION,
            "read {} once, when the query starts",
            table.name,
            Meaning.SAME,
            "all rows {} are there when the query starts",
            f"of {table.name}",
            edits=tuple(edits),
        )
