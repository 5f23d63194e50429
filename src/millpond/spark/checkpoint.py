"""Which query and run a checkpoint and an output folder belong to.

A checkpoint holds the state of one query.  Continued with another query, Spark would mix the two or fail
with an obscure error.  So each folder contains a note: that of the checkpoint describes the query, and both
name the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from uuid import uuid4

from millpond.errors import MillpondError
from millpond.query.canonical import canonical_text
from millpond.query.model import Query, Table
from millpond.spark.files import Files
from millpond.spark.sink import REJECTED_FOLDER

# The format of the notes and of the state; incremented when an older checkpoint can no longer be read.
FORMAT = 2
CHECKPOINT_NOTE = "_millpond.json"
STATE_NOTE = "_state.json"
OUTPUT_NOTE = "_millpond"  # not *.json, because the rows are in such files
_VISIBLE = "[^_.]*"
_START_AGAIN = "to start again from the beginning of the input, give a new --checkpoint and a new --output"


class ReadableFiles(Protocol):
    """A file system whose files can be read: Hadoop's, or that of this machine."""

    def read(self, path: str) -> str | None: ...

    def list_names(self, folder: str, pattern: str = "*") -> list[str]: ...


@dataclass(frozen=True)
class EarlierRun:
    """The run that a checkpoint continues: its id, and the number of partitions of its state."""

    run: str
    partitions: int


@dataclass(frozen=True)
class KeptState:
    """The size of the state after a batch: entries, bytes, and rows that wait for the watermark."""

    batch: int
    entries: int
    bytes: int
    waiting: int


@dataclass(frozen=True)
class Resumption:
    """Where a run continues: after the last finished batch (None: before the first), with which state."""

    batch: int | None
    kept: KeptState | None

    def __str__(self) -> str:
        if self.batch is None:
            return "resuming a run that has finished no batch"
        if self.kept is None:
            return f"resuming after batch {self.batch}"
        entries = f"{self.kept.entries:,} {'entry' if self.kept.entries == 1 else 'entries'}"
        if self.kept.batch == self.batch:
            return f"resuming after batch {self.batch} with {entries}"
        return f"resuming after batch {self.batch}; there were {entries} after batch {self.kept.batch}"


class Folders:
    """The checkpoint and the output folder of one run."""

    def __init__(self, files: ReadableFiles, checkpoint: str, output: str) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._output = output

    def check(
        self, query: Query, updates: bool = False, format: str = "json", is_settled: bool = True
    ) -> EarlierRun | None:
        """The run to continue, or None for a new run; MillpondError if the folders are of another query.

        Before Spark has settled the types of a query, some changes of it cannot be found.
        """
        text = self._files.read(f"{self._checkpoint}/{CHECKPOINT_NOTE}")
        if text is None:
            if self._files.list_names(self._checkpoint):
                raise MillpondError(f"{self._checkpoint} was not written by Millpond", remedy=_START_AGAIN)
            self._check_output(None)
            return None
        note = self._parse_note(text)
        if change := _describe_change(note, _describe(query), is_settled):
            raise MillpondError(
                f"the checkpoint {self._checkpoint} is of another query: {change}", remedy=_START_AGAIN
            )
        if note.get("updates", False) != updates:
            raise MillpondError(
                f"the checkpoint {self._checkpoint} is of a run {'without' if updates else 'with'} --updates",
                remedy=f"{'drop' if updates else 'give'} --updates; {_START_AGAIN}",
            )
        self._check_output(note["run"])
        self._check_format(format)
        return EarlierRun(note["run"], note["partitions"])

    def claim(
        self,
        files: Files,
        query: Query,
        partitions: int,
        continued: EarlierRun | None,
        updates: bool = False,
        unsettled: Query | None = None,
    ) -> None:
        """Write the notes into both folders; ``unsettled`` is the query before Spark settled its types."""
        run = continued.run if continued else uuid4().hex
        files.make_folder(self._output)
        if continued is None:
            note = {"format": FORMAT, "run": run, "partitions": partitions, **_describe(query)}
            note |= {"unsettled": _digest(unsettled or query)}
            note |= {"updates": True} if updates else {}
            files.create(f"{self._checkpoint}/{CHECKPOINT_NOTE}", json.dumps(note, indent=2) + "\n")
        if self._read_owner() != run:
            files.delete(f"{self._output}/{OUTPUT_NOTE}")
            files.create(f"{self._output}/{OUTPUT_NOTE}", json.dumps({"format": FORMAT, "run": run}) + "\n")

    def find_resumption(self) -> Resumption:
        """Where the run of the checkpoint continues."""
        names = self._files.list_names(f"{self._checkpoint}/commits", "[0-9]*")
        batch = max((int(name) for name in names if name.isdecimal()), default=None)
        text = self._files.read(f"{self._checkpoint}/{STATE_NOTE}")
        try:
            kept = KeptState(**json.loads(text)) if text is not None else None
        except (ValueError, TypeError):
            kept = None
        return Resumption(batch, kept)

    def save_state(self, files: Files, kept: KeptState) -> None:
        """Write the size of the state for the run that continues."""
        files.delete(f"{self._checkpoint}/{STATE_NOTE}")
        files.create(f"{self._checkpoint}/{STATE_NOTE}", json.dumps(asdict(kept)) + "\n")

    def _parse_note(self, text: str) -> dict[str, Any]:
        try:
            note = json.loads(text)
            version = int(note["format"])
            if version == FORMAT:
                note["run"], note["query"], note["tables"], int(note["partitions"])  # all that is used later
        except (ValueError, KeyError, TypeError):
            raise MillpondError(
                f"{self._checkpoint}/{CHECKPOINT_NOTE} is damaged", remedy=_START_AGAIN
            ) from None
        if version != FORMAT:
            raise MillpondError(
                f"the checkpoint {self._checkpoint} was written by another version of Millpond: "
                f"it has format {version}, and this version reads format {FORMAT}",
                remedy=f"continue it with the version that wrote it; {_START_AGAIN}",
            )
        return dict(note)

    def _read_owner(self) -> str | None:
        """The run that the output folder belongs to."""
        text = self._files.read(f"{self._output}/{OUTPUT_NOTE}")
        try:
            return str(json.loads(text)["run"]) if text is not None else None
        except (ValueError, KeyError, TypeError):
            return ""

    def _check_output(self, run: str | None) -> None:
        """Refuse an output folder that holds files, unless the run to continue wrote them."""
        owner = self._read_owner()
        if run is not None and owner == run:
            return
        if not self._files.list_names(self._output, _VISIBLE) and not self._files.list_names(
            f"{self._output}/{REJECTED_FOLDER}"
        ):
            return
        if owner is None:
            raise MillpondError(
                f"{self._output} holds files that Millpond did not write", remedy="give a new --output"
            )
        raise MillpondError(
            f"{self._output} holds the output of another run, which {self._checkpoint} does not continue",
            remedy=f"to continue that run, give its --checkpoint; {_START_AGAIN}",
        )

    def _check_format(self, format: str) -> None:
        """Refuse to write files of another format beside those of the run to continue."""
        for name in self._files.list_names(self._output, "part-*")[:1]:
            before = name.split(".")[1]
            if before != format:
                raise MillpondError(
                    f"{self._output} holds files in the format {before}",
                    remedy=f"continue with --format {before}; {_START_AGAIN}",
                )


# --- the description of a query ------------------------------------------------------------------------


def _describe(query: Query) -> dict[str, Any]:
    tables = {name: _describe_table(table) for name, table in sorted(query.declared_tables.items())}
    return {"text": " ".join(query.text.split()), "query": _digest(query), "tables": tables}


def _describe_table(table: Table) -> dict[str, Any]:
    """The declaration of a table without its source, which may change."""
    return {
        "kind": "stream" if table.streaming else "relation",
        "columns": [f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in table.columns],
        "checks": _digest(table.checks),
        "time": table.time,
        "watermark": table.properties.get("watermark"),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()


def _describe_change(old: Mapping[str, Any], new: Mapping[str, Any], is_settled: bool) -> str | None:
    """What has changed between two descriptions, in a few words; None if nothing has."""
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
    if is_settled:
        is_changed = old["query"] != new["query"]
    else:  # another version of Millpond may give other types to the expressions of the same text
        is_changed = old.get("unsettled", new["query"]) != new["query"] and old.get("text") != new["text"]
    return f"it was {old.get('text')}" if is_changed else None
