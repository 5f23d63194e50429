"""Known findings: queries that were not bounded when a baseline was written do not fail a check."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from millpond.cli.command import flatten
from millpond.cli.files import CheckedFile
from millpond.errors import MillpondError, describe_os_error

_REMEDY = "write one with: millpond check --format json FILE.sql… > baseline.json"


def read_baseline(path: str) -> frozenset[tuple[str, str]]:
    """The outcome and the text of every query in the JSON output of an earlier ``check``."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        entries = found if isinstance(found, list) else [found]
        return frozenset((each["outcome"], flatten(each["query"])) for each in entries if "query" in each)
    except FileNotFoundError:
        raise MillpondError(f"there is no baseline {path}", remedy=_REMEDY) from None
    except OSError as error:
        raise MillpondError(f"the baseline {path} cannot be read: {describe_os_error(error)}") from None
    except (ValueError, KeyError, TypeError):
        raise MillpondError(f"{path} is not a baseline", remedy=_REMEDY) from None


def drop_known(files: Sequence[CheckedFile], known: Collection[tuple[str, str]]) -> list[CheckedFile]:
    """The files without the verdicts that the baseline has."""
    return [
        CheckedFile(
            file.name,
            tuple(v for v in file.verdicts if (v.outcome, flatten(v.query_text)) not in known),
            file.error,
        )
        for file in files
    ]
