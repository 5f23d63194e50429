"""The repairs of a query, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millpond.analysis.reasons import join_words
from millpond.analysis.repair.budget import find_budget
from millpond.analysis.repair.changes import Change, apply_edits, make_edits
from millpond.analysis.repair.column_changes import (
    list_bounds,
    list_cardinalities,
    list_checks,
    list_relations,
)
from millpond.analysis.repair.constants import Sample
from millpond.analysis.repair.model import Meaning, Repair
from millpond.analysis.repair.rank import rank_sets
from millpond.analysis.repair.result_changes import (
    list_approximations,
    list_distinct,
    list_dropped,
    list_exists,
)
from millpond.analysis.repair.search import Trials, find_sets
from millpond.analysis.repair.subject import Subject, read_subject
from millpond.analysis.repair.window_changes import list_buckets, list_fixed_ends, list_windows
from millpond.analysis.verdict import BOUNDED, Verdict

# One function for each kind of change; those that help most often come first.
_LISTS = (
    *(list_approximations, list_windows, list_fixed_ends, list_buckets, list_cardinalities, list_checks),
    *(list_relations, list_distinct, list_exists, list_bounds, list_dropped),
)
# From the weakest to the strongest effect on the answer.
_MEANINGS = (Meaning.SAME, Meaning.FEWER, Meaning.APPROXIMATE, Meaning.CHANGED)


def find_repairs(
    verdict: Verdict, limit: int | None = None, sample: Sample | None = None, budgets: bool = True
) -> list[Repair]:
    """The smallest changes that make a query bounded, best first; none for a bounded query.

    ``sample`` has rows of streams, by name: the constants of bounds are taken from it.  The last repair is a
    budget, if the query runs on one and ``budgets`` are wanted.
    """
    if verdict.outcome == BOUNDED:
        return []
    subject = read_subject(verdict)
    if subject is None:
        return []
    trials = Trials(subject)
    changes = [change for each in _LISTS for change in each(subject, sample or {})]
    ranked = rank_sets(verdict, find_sets(trials, changes))
    if not ranked:  # at last, as a query over what is there when it starts
        trials = Trials(subject, batch=True)
        ranked = find_sets(trials, list_relations(subject, {}))
    repairs: dict[str, Repair] = {}
    for found in ranked:
        repair = _make_repair(subject, trials, found)
        repairs.setdefault(repair.sql, repair)
    budget = find_budget(verdict.query, subject.text, sample or {}) if budgets else None
    return [*repairs.values(), *([budget] if budget is not None else [])][:limit]


def _make_repair(subject: Subject, trials: Trials, changes: Sequence[Change]) -> Repair:
    edits = make_edits(changes, subject.text)
    meaning = max((change.meaning for change in changes), key=_MEANINGS.index)
    titles = _join_phrases((change.title, change.about) for change in changes)
    assumptions = _join_phrases((each.assumption, each.assumed) for each in changes if each.assumption)
    title = "; ".join(_note_once(titles))
    return Repair(
        changes[0].kind,
        title[0].upper() + title[1:],
        meaning,
        ", and ".join(assumptions) if meaning is Meaning.SAME else None,
        edits,
        apply_edits(subject.text, edits),
        trials.decide(changes),
    )


def _note_once(titles: Sequence[str]) -> list[str]:
    """The titles, of which only the last has a note in parentheses that several have."""
    notes = [title[title.rindex(" (") :] if title.endswith(")") else "" for title in titles]
    return [
        title.removesuffix(note) if note in notes[number + 1 :] else title
        for number, (title, note) in enumerate(zip(titles, notes, strict=True))
    ]


def _join_phrases(phrases: Iterable[tuple[str, str]]) -> list[str]:
    """Phrases with ``{}`` for what they are about; equal ones are one, about all of that."""
    grouped: dict[str, list[str]] = {}
    for phrase, about in phrases:
        grouped.setdefault(phrase, []).append(about)
    return [phrase.replace("{}", join_words(list(dict.fromkeys(each)))) for phrase, each in grouped.items()]
