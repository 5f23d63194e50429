"""Finds a template of witnesses for a query with blocks or window functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from millpond.analysis.witness.base_rows import find_base_rows
from millpond.analysis.witness.cross_templates import find_cross_template
from millpond.analysis.witness.model import WitnessTemplate
from millpond.analysis.witness.sampled_templates import find_sampled_template
from millpond.analysis.witness.templates import find_template
from millpond.analysis.witness.whole_queries import is_confirmed_in_large
from millpond.query.model import Query, Windowed
from millpond.query.trace import find_equal_columns, list_blocks, list_selects
from millpond.query.trees import is_aggregate
from millpond.runtime.row_queries import UncomputableError

# The latest answers: a query that is decided as a chain of blocks asks for each block several times.
_Question = tuple[Query, tuple[WitnessTemplate, ...]]
_latest: deque[tuple[_Question, WitnessTemplate | None]] = deque(maxlen=16)


def find_whole_template(query: Query, known: Iterable[WitnessTemplate | None] = ()) -> WitnessTemplate | None:
    """A template whose witnesses are confirmed on the whole query; None if none is found.

    ``known`` are templates of blocks that the query reads: what makes a block unbounded often makes the query
    unbounded, too.
    """
    asked = query, tuple(each for each in known if each is not None)
    for earlier, found in tuple(_latest):
        if earlier == asked:
            return found
    found = _find_template(*asked)
    if found is not None and _is_observed_on_the_way(query, found):
        found = _observe_answers(query, found)
    _latest.append((asked, found))
    return found


def _observe_answers(query: Query, template: WitnessTemplate) -> WitnessTemplate:
    """The template with whole answers observed, if it is confirmed so."""
    answers = template.observe_answers()
    try:
        return answers if is_confirmed_in_large(query, answers) else template
    except UncomputableError:
        return template


def _is_observed_on_the_way(query: Query, template: WitnessTemplate) -> bool:
    """Whether rows of a probe can hide what a later one shows: an answer that is revised shows it once."""
    is_revised = any(is_aggregate(select) for select in list_selects(query))
    witness = template.build(2)
    return is_revised and witness.compare == "emitted" and any(len(probe) > 1 for probe in witness.probes)


def _find_template(query: Query, known: tuple[WitnessTemplate, ...]) -> WitnessTemplate | None:
    found = _find_inherited(query, known)
    if found is not None:
        return found
    if any(isinstance(table.block, Windowed) for table in query.tables.values()):
        return find_template(query) or find_cross_template(query) or _find_sampled(query)
    has_functions = any(True for _ in list_blocks(query))
    found = find_cross_template(query) or (find_template(query) if has_functions else None)
    return found or _find_sampled(query)


def _find_sampled(query: Query) -> WitnessTemplate | None:
    try:
        return find_sampled_template(query)
    except UncomputableError:
        return None


def _find_inherited(query: Query, known: tuple[WitnessTemplate, ...]) -> WitnessTemplate | None:
    tables = query.declared_tables
    try:
        for template in known:
            base = {}
            if tables.keys() != template.tables.keys():
                base = next(iter(find_base_rows(query, tables, find_equal_columns(query))), {})
            if base or tables.keys() == template.tables.keys():
                widened = template.rebase(tables, base)
                if is_confirmed_in_large(query, widened):
                    return widened
    except UncomputableError:
        return None
    return None
