"""Verdicts in the formats of code review: GitHub's workflow commands, and SARIF 2.1.0."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import millpond
from millpond.analysis.verdict import BOUNDED, UNBOUNDED
from millpond.cli.command import flatten
from millpond.cli.files import STANDARD_INPUT, CheckedFile
from millpond.errors import Position

BAD_INPUT = "bad-input"
_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@dataclass(frozen=True)
class Finding:
    """What a reviewer should see of a query that is not bounded, or of a file that cannot be checked."""

    file: str
    rule: str
    level: str  # error or warning
    title: str
    message: str
    position: Position | None
    text: str = ""

    @property
    def fingerprint(self) -> str:
        """Identifies the query, wherever it stands in its file."""
        return hashlib.sha256(f"{self.rule}\n{flatten(self.text)}".encode()).hexdigest()[:32]


def list_findings(files: Iterable[CheckedFile]) -> Iterator[Finding]:
    """The first reason of each query that is not bounded, and the error of each bad file."""
    for file in files:
        if file.error is not None:
            error = file.error
            message = f"{error.message}; {error.remedy}" if error.remedy else error.message
            yield Finding(file.name, BAD_INPUT, "error", "cannot be checked", message, error.position)
        for verdict in file.verdicts:
            if verdict.outcome == BOUNDED:
                continue
            reason = verdict.reasons[0]
            message = f"{reason.predicate}: {reason.message}" if reason.predicate else reason.message
            level = "error" if verdict.outcome == UNBOUNDED else "warning"
            title = f"{verdict.outcome} memory" if verdict.outcome == UNBOUNDED else "memory undetermined"
            query = verdict.query
            yield Finding(file.name, reason.code, level, title, message, query.position, query.text)


def render_github(files: Iterable[CheckedFile]) -> str:
    """One workflow command per finding; GitHub shows it beside the line."""
    lines = []
    for found in list_findings(files):
        place = {"file": found.file} if found.file != STANDARD_INPUT else {}
        if found.position is not None:
            place |= {"line": str(found.position.line), "col": str(found.position.column)}
        place["title"] = f"millpond: {found.title}"
        fields = ",".join(f"{key}={_escape(value, ':,')}" for key, value in place.items())
        lines.append(f"::{found.level} {fields}::{_escape(flatten(found.message))}")
    return "\n".join(lines)


def _escape(text: str, more: str = "") -> str:
    """The text with the characters escaped that end a workflow command or a property of it."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def render_sarif(files: Sequence[CheckedFile]) -> dict[str, Any]:
    """A SARIF log with one run: a rule for each code, and a result for each finding."""
    findings = list(list_findings(files))
    rules = {found.rule: found.title for found in findings}
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "millpond",
                        "version": millpond.__version__,
                        "rules": [
                            {"id": rule, "shortDescription": {"text": title}} for rule, title in rules.items()
                        ],
                    }
                },
                "invocations": [{"executionSuccessful": all(file.error is None for file in files)}],
                "columnKind": "unicodeCodePoints",
                "results": [_build_result(found, list(rules)) for found in findings],
            }
        ],
    }


def _build_result(found: Finding, rules: list[str]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _make_uri(found.file)}}
    if found.position is not None:
        place["region"] = {"startLine": found.position.line, "startColumn": found.position.column}
    return {
        "ruleId": found.rule,
        "ruleIndex": rules.index(found.rule),
        "level": found.level,
        "message": {"text": f"{found.title}: {flatten(found.message)}"},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"query/v1": found.fingerprint},
    }


def _make_uri(file: str) -> str:
    """
    >>> _make_uri("models/top 10%.sql"), _make_uri("a:b.sql")
    ('models/top%2010%25.sql', 'a%3Ab.sql')
    """
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
