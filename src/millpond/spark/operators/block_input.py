"""What an operator reads from the operator before it in a chain: rows, their progress, and other notes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.spark.operators.payloads import build_note_batch

_NOTE_FIELDS = ("entries", "bytes", "stream", "reason", "record")


@dataclass
class BlockInput:
    """Takes the rows of a block apart, batch by batch, and follows how far they are.

    A block emits its rows in order, except for those of one micro-batch; only its report tells which rows are
    still to come.  ``time`` is the column with the timestamp of a row, None if the order does not matter.
    """

    time: str | None
    _out: list[int] = field(default_factory=list)  # timestamps before which all rows are out
    _last: list[int] = field(default_factory=list)  # the latest timestamp of each batch
    has_ended: bool = False

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
        """The rows of a batch, and its notes in the form in which they pass through the shards."""
        kinds = batch.column(KIND)
        rows = batch.filter(pc.equal(kinds, int(RowKind.RESULT)))
        if rows.num_rows and self.time is not None:
            self._last.append(pc.max(rows.column(self.time)).as_py())
        notes = batch.filter(pc.not_equal(kinds, int(RowKind.RESULT)))
        fields = dict(zip(_NOTE_FIELDS, notes.column(NOTE).flatten(), strict=True))
        is_progress = pc.equal(notes.column(KIND), int(RowKind.PROGRESS))
        self._out += pc.filter(fields["entries"], is_progress).to_pylist()
        self.has_ended |= 1 in pc.filter(fields["bytes"], is_progress).to_pylist()
        others = pc.invert(is_progress)
        kept = {name: pc.filter(column, others) for name, column in fields.items()}
        kept["kind"] = pc.filter(notes.column(KIND), others)
        count = len(kept["kind"])
        return rows, [build_note_batch(kept, count)] if count else []

    @property
    def latest(self) -> int | None:
        """The timestamp before which all rows have come; None if the block has not reported one."""
        return max(self._out + (self._last if self.has_ended else []), default=None)
