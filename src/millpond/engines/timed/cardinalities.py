"""How many different values declared columns take: of each, the smallest hashes that were seen are kept.

Fewer hashes than the limit are all of them, so their number is exact (two values have the same hash with a
probability of 2**-64).  Otherwise the largest of the kept hashes tells how densely they lie: the number is
estimated with a standard error of 1.6 percent (Bar-Yossef et al., Counting distinct elements in a data
stream, 2002).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.runtime.codec import decode_tables, encode_tables

_LIMIT = 4096
_SCHEMAS = {"hashes": pa.schema([("stream", pa.string()), ("column", pa.string()), ("hash", pa.uint64())])}
# A stream and a column.
WatchedColumn = tuple[str, str]
Hashes = Mapping[WatchedColumn, np.ndarray[Any, np.dtype[np.uint64]]]


def merge_hashes(parts: Iterable[Hashes]) -> Hashes:
    """The smallest hashes of each column in all parts."""
    found: dict[WatchedColumn, list[Any]] = {}
    for part in parts:
        for column, hashes in part.items():
            found.setdefault(column, []).append(hashes)
    return {column: np.unique(np.concatenate(each))[:_LIMIT] for column, each in found.items()}


def take_hashes(column: WatchedColumn, hashes: pa.Array) -> Hashes:
    """The smallest of the 64-bit hashes of a column's values; NULL is no value."""
    signed = hashes.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return {column: np.unique(signed.view(np.uint64))[:_LIMIT]}


def estimate_values(hashes: Hashes) -> dict[WatchedColumn, int]:
    """The number of different values of each column."""
    return {column: _estimate(each) for column, each in hashes.items()}


def _estimate(hashes: np.ndarray[Any, np.dtype[np.uint64]]) -> int:
    if len(hashes) < _LIMIT:
        return len(hashes)
    return round((_LIMIT - 1) * 2.0**64 / max(float(hashes[-1]), 1.0))


def encode_hashes(hashes: Hashes, fingerprint: bytes) -> bytes:
    """The hashes as bytes, to be sent or stored."""
    tables = [
        pa.table([[stream] * len(each), [column] * len(each), each], schema=_SCHEMAS["hashes"])
        for (stream, column), each in hashes.items()
    ]
    whole = pa.concat_tables([_SCHEMAS["hashes"].empty_table(), *tables])
    return encode_tables({"hashes": whole}, _SCHEMAS, fingerprint, 0)


def decode_hashes(data: bytes, fingerprint: bytes) -> Hashes:
    """The hashes, from their bytes."""
    table = decode_tables(data, _SCHEMAS, fingerprint)[0].get("hashes")
    if table is None:
        return {}
    streams, columns = (table.column(name).to_numpy(zero_copy_only=False) for name in ("stream", "column"))
    hashes = table.column("hash").to_numpy()
    pairs = dict.fromkeys(zip(streams, columns, strict=True))
    return {pair: hashes[(streams == pair[0]) & (columns == pair[1])] for pair in pairs}
