"""Finds minimal sets of changes that make a query bounded.

Changes of one kind are tried alone or, where there is one for each column, all at once; then changes of kinds
that go well together.  If such a set makes the query bounded, whatever can go is left out of it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from millpond.analysis.decide import decide
from millpond.analysis.explain import is_never_true
from millpond.analysis.repair.changes import Change, ConflictError, apply_edits, make_edits
from millpond.analysis.repair.model import RepairKind
from millpond.analysis.repair.subject import Subject
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.errors import MillpondError
from millpond.frontend.parse import parse_again

# Texts that are decided in one search.  A text takes 2 to 20 ms.
MAX_TRIALS = 200
# The most changes of one kind that are tried together, and the most that are tried alone.
_MAX_TOGETHER, _MAX_ALONE = 16, 12
# The most changes of each kind in a set of several kinds.
_MAX_MIXED = 8

_K = RepairKind
# Kinds with a change for each column: all of them are tried at once, because one alone rarely suffices.
_BY_COLUMN = (_K.CARDINALITY, _K.CHECK, _K.BOUND, _K.DROP_COLUMN)
# Kinds whose changes are tried together; those that are named last are left out first.
_MIXED = (
    (_K.WINDOW, _K.CARDINALITY),
    (_K.WINDOW, _K.WATERMARK),
    (_K.APPROXIMATE, _K.CARDINALITY),
    (_K.APPROXIMATE, _K.WINDOW),
    (_K.DISTINCT, _K.CARDINALITY),
    (_K.WINDOW, _K.WATERMARK, _K.CARDINALITY),
    (_K.DROP_COLUMN, _K.DISTINCT),
    (_K.RELATION, _K.CARDINALITY),
    (_K.WINDOW, _K.WATERMARK, _K.APPROXIMATE, _K.DISTINCT, _K.CARDINALITY, _K.CHECK),
)


# A changed text, and the tables that get a time column.
_Trial = tuple[str, frozenset[tuple[str, str]]]


class OutOfTrialsError(Exception):
    """As many texts as allowed have been decided; a set that is not minimised yet is not returned."""


class Trials:
    """Decides the text with sets of changes, each set once, up to a number of sets.

    A text without streams is no repair, unless it may be a ``batch`` query.
    """

    def __init__(self, subject: Subject, batch: bool = False, limit: int = MAX_TRIALS) -> None:
        self.subject, self.batch, self.left = subject, batch, limit
        self._known: dict[_Trial, Verdict | None] = {}
        self._errors: set[_Trial] = set()

    def decide(self, changes: Sequence[Change]) -> Verdict | None:
        """The verdict on the changed text if it is bounded and can have results; else None.

        Raises OutOfTrialsError after the last trial.
        """
        try:
            trial = self._make_trial(changes)
        except ConflictError:
            return None
        if trial not in self._known:
            if self.left <= 0:
                raise OutOfTrialsError
            self.left -= 1
            self._known[trial] = self._decide_trial(trial)
        return self._known[trial]

    def _make_trial(self, changes: Sequence[Change]) -> _Trial:
        text = apply_edits(self.subject.text, make_edits(changes, self.subject.text))
        return text, frozenset(each for change in changes for each in change.times)

    def is_readable(self, change: Change) -> bool:
        """Whether the text with a change can be read."""
        self.decide([change])
        return self._make_trial([change]) not in self._errors

    def _decide_trial(self, trial: _Trial) -> Verdict | None:
        text, times = trial
        script = self.subject.script
        timed = {name: replace(script.declared[name], time=time) for name, time in times}
        try:
            query = parse_again(replace(script, declared={**script.declared, **timed}), text)
            verdict = decide(query, prove=False)
        except MillpondError:
            self._errors.add(trial)
            return None
        is_repaired = verdict.outcome == BOUNDED and not is_never_true(verdict)
        return verdict if is_repaired and self._reads_stream(verdict) else None

    def _reads_stream(self, verdict: Verdict) -> bool:
        return self.batch or any(t.streaming for t in verdict.query.declared_tables.values())


def find_sets(trials: Trials, changes: Iterable[Change]) -> list[tuple[Change, ...]]:
    """Minimal sets of changes that make the query bounded, as far as the trials go."""
    found: list[tuple[Change, ...]] = []
    with contextlib.suppress(OutOfTrialsError):
        for each in _find_sets(trials, changes):
            found.append(each)
    return found


def _find_sets(trials: Trials, changes: Iterable[Change]) -> Iterator[tuple[Change, ...]]:
    kinds: dict[RepairKind, list[Change]] = {}
    for change in changes:
        kinds.setdefault(change.kind, []).append(change)
    enough: set[int] = set()  # changes that are enough alone
    solved: set[RepairKind] = set()
    for kind, members in kinds.items():
        find = _find_by_column if kind in _BY_COLUMN else _find_alone
        found = list(find(trials, sorted(members, key=lambda change: change.weight)))
        enough |= {id(change) for change, _ in found if change is not None}
        solved |= {kind} if found else set()
        yield from (minimal for _, minimal in found)
    for mixed in _MIXED:
        if not solved.issuperset(mixed):
            chosen = [[c for c in kinds.get(kind, ()) if id(c) not in enough] for kind in mixed]
            members = [change for each in chosen for change in each[:_MAX_MIXED]]
            together = _find_together(trials, members)
            if together:
                yield tuple(together)


_Found = tuple[Change | None, tuple[Change, ...]]


def _find_alone(trials: Trials, changes: Sequence[Change]) -> Iterator[_Found]:
    """The changes that are enough alone; if there is none, a set of several."""
    found = False
    for change in changes[:_MAX_ALONE]:
        if trials.decide([change]) is not None:
            found = True
            yield change, tuple(minimise(trials, [change]))
    together = [] if found else _find_together(trials, changes[:_MAX_TOGETHER])
    if together:
        yield None, tuple(together)


def _find_by_column(trials: Trials, changes: Sequence[Change]) -> Iterator[_Found]:
    """A set of changes that is enough; if it is a single one, the others that are enough alone as well."""
    fitting = _drop_conflicts(trials, changes[:_MAX_TOGETHER])
    for size in sorted({1, 2, 4, 8, len(fitting)}):
        if size > len(fitting) or trials.decide(fitting[:size]) is None:
            continue
        found = minimise(trials, fitting[:size])
        yield fitting[0] if size == 1 else None, tuple(found)
        for change in fitting[size : size + 2] if len(found) == 1 else ():
            if trials.decide([change]) is not None:
                yield change, tuple(minimise(trials, [change]))
        return


def _find_together(trials: Trials, changes: Sequence[Change]) -> list[Change]:
    """A minimal set of changes that fit together.

    Of alternatives, the last ones are tried as well, also if the text cannot be read with one of them alone.
    A stream must be left, so one of several relations is left out.
    """
    readable = [change for change in changes if change.kind in _BY_COLUMN or trials.is_readable(change)]
    sets = [_drop_conflicts(trials, readable), _drop_conflicts(trials, changes[::-1])[::-1]]
    relations = [change for change in changes if change.kind is _K.RELATION]
    if len(relations) > 1 and not trials.batch:
        sets = [[c for c in sets[0] if c is not left] for left in reversed(relations)]
    for each in sets:
        if each and trials.decide(each) is not None:
            return minimise(trials, each)
    return []


def _drop_conflicts(trials: Trials, changes: Sequence[Change]) -> list[Change]:
    """The changes that fit together."""
    kept: list[Change] = []
    for change in changes:
        try:
            make_edits([*kept, change], trials.subject.text)
        except ConflictError:
            continue
        kept.append(change)
    return kept


def minimise(trials: Trials, changes: Sequence[Change]) -> list[Change]:
    """A subset that is still enough, none of which can go, and each of which is as narrow as possible.

    Of the last ones is tried first whether they can go; and again after the others have become narrower.
    """
    kept = _narrow(trials, _leave_out(trials, list(changes)))
    kept = _leave_out(trials, kept)
    fitted = _fit_company(kept)
    return fitted if trials.decide(fitted) is not None else kept


def _fit_company(changes: Sequence[Change]) -> list[Change]:
    """The changes, with numbers that fit the number of changes of the same kind."""
    counts = Counter(change.kind for change in changes)
    return [
        each.in_company[min(counts[each.kind], len(each.in_company) + 1) - 2]
        if each.in_company and counts[each.kind] > 1
        else each
        for each in changes
    ]


def _leave_out(trials: Trials, changes: list[Change]) -> list[Change]:
    kept = changes
    for change in reversed(changes):
        without = [each for each in kept if each is not change]
        if without and trials.decide(without) is not None:
            kept = without
    return kept


def _narrow(trials: Trials, changes: list[Change]) -> list[Change]:
    kept = changes
    for index, change in enumerate(changes):
        for narrower in change.narrower:
            trial = [*kept[:index], narrower, *kept[index + 1 :]]
            if trials.decide(trial) is not None:
                kept = trial
                break
    return kept
