"""Which query a checkpoint and an output folder belong to.

A checkpoint holds the state of one query; continued with another, Spark would mix the two or fail deep
inside.  Both folders therefore carry a note: the checkpoint says what runs, and both say which run it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from millpond.errors import MillpondError
from millpond.query.canonical import canonical_text
from millpond.query.model import Query, Table
from millpond.spark.files import Files

FORMAT = 2
NOTE = "_millpond.json"
OWNER = "_millpond"  # in the output, where *.json are the rows
_VISIBLE = "[^_.]*"
_AFRESH = "to start afresh, give a new --checkpoint and a new --output"


@dataclass(frozen=True)
class Continued:
    """A run that is already there: its name, and into how many partitions its state is divided."""

    run: str
    partitions: int


class Folders:
    """The checkpoint and the output folder of one run."""

    def __init__(self, files: Files, checkpoint: str, output: str) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._output = output

    def check(self, query: Query) -> Continued | None:
        """The run to continue, None for a new one; MillpondError where the folders are not this query's."""
        text = self._files.read(f"{self._checkpoint}/{NOTE}")
        if text is None:
            if self._files.names(self._checkpoint):
                raise MillpondError(f"{self._checkpoint} is not a checkpoint of Millpond", remedy=_AFRESH)
            self._check_output(None)
            return None
        note = self._read(text)
        if changed := _change(note, _described(query)):
            raise MillpondError(
                f"the checkpoint {self._checkpoint} is of another query: {changed}", remedy=_AFRESH
            )
        self._check_output(note["run"])
        return Continued(note["run"], note["partitions"])

    def claim(self, query: Query, partitions: int, continued: Continued | None) -> None:
        """Note in both folders whose they are."""
        run = continued.run if continued else uuid4().hex
        self._files.make_folder(self._output)
        if continued is None:
            note = {"format": FORMAT, "run": run, "partitions": partitions, **_described(query)}
            self._files.create(f"{self._checkpoint}/{NOTE}", json.dumps(note, indent=2) + "\n")
        if self._owner() != run:
            self._files.delete(f"{self._output}/{OWNER}")
            self._files.create(f"{self._output}/{OWNER}", json.dumps({"format": FORMAT, "run": run}) + "\n")

    def _read(self, text: str) -> dict[str, Any]:
        try:
            note = json.loads(text)
            version = int(note["format"])
            if version == FORMAT:
                note["run"], note["query"], note["tables"], int(note["partitions"])  # what is read later
        except (ValueError, KeyError, TypeError):
            raise MillpondError(f"{self._checkpoint}/{NOTE} is damaged", remedy=_AFRESH) from None
        if version != FORMAT:
            raise MillpondError(
                f"the checkpoint {self._checkpoint} has format {version}, and this Millpond reads {FORMAT}",
                remedy=f"use the version that wrote it; {_AFRESH}",
            )
        return dict(note)

    def _owner(self) -> str | None:
        """The run that the output folder belongs to."""
        text = self._files.read(f"{self._output}/{OWNER}")
        try:
            return str(json.loads(text)["run"]) if text is not None else None
        except (ValueError, KeyError, TypeError):
            return ""

    def _check_output(self, run: str | None) -> None:
        """Files in the output folder must be of the run that goes on."""
        owner = self._owner()
        if run is not None and owner == run:
            return
        if not self._files.names(self._output, _VISIBLE) and not self._files.names(
            f"{self._output}/_rejected"
        ):
            return
        if owner is None:
            raise MillpondError(
                f"{self._output} holds files that no run of Millpond wrote", remedy="give a new --output"
            )
        raise MillpondError(
            f"{self._output} holds the output of another run, which {self._checkpoint} does not continue",
            remedy=f"to go on with it, give its --checkpoint; {_AFRESH}",
        )


# --- what a query is, apart from how it is written -----------------------------------------------------


def _described(query: Query) -> dict[str, Any]:
    tables = {name: _table(table) for name, table in sorted(query.tables.items())}
    return {"text": " ".join(query.text.split()), "query": _digest(query), "tables": tables}


def _table(table: Table) -> dict[str, Any]:
    """What a table's rows are.  Where they come from may change."""
    return {
        "kind": "stream" if table.streaming else "relation",
        "columns": [f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in table.columns],
        "checks": _digest(table.checks),
        "time": table.time,
        "watermark": table.properties.get("watermark"),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()


def _change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """What has changed, in a few words; None if nothing has."""
    for name, table in new["tables"].items():
        if name not in old["tables"]:
            continue
        before = old["tables"][name]
        if before.get("columns") != table["columns"]:
            return f"{name} had the columns {', '.join(before.get('columns', ()))}"
        if before.get("checks") != table["checks"]:
            return f"{name} had other CHECK constraints"
        if before != table:
            settings = (f"{key} {before.get(key)}" for key in ("kind", "time", "watermark"))
            return f"{name} was declared with {', '.join(settings)}"
    return f"it was {old.get('text')}" if old["query"] != new["query"] else None
