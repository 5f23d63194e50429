"""Generates an online auction: people who join, auctions that they open, and bids.

Of fifty events, one is a person, three are auctions and the others bids.  The events come in a burst on each
day, 10 ms apart, and arrive up to 4 seconds late.  Popular auctions and busy bidders have a large part of the
bids, and auctions are opened by people who joined recently.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

SECOND = 1_000_000
GAP = SECOND // 100
LATENESS = 4 * SECOND
FIRST_DAY = 20_000 * 86_400 * SECOND  # 2024-10-04
SHELVES = 1000
CATEGORIES = 10
_STATES = ("CT", "MA", "ME", "NH", "RI", "VT")
_CITIES = ("Augusta", "Concord", "Dover", "Keene", "Salem", "Stowe")
_CHANNELS = ("App", "Hall", "Phone", "Web", "partner-1", "partner-2", "partner-3")
_WORDS = np.array(["clock", "chair", "globe", "lamp", "mirror", "organ", "sketch", "teapot", "violin"])

Array = NDArray[Any]


def write_auction(folder: Path, events: int = 30_000, days: int = 3, files: int = 6, seed: int = 1) -> None:
    """Write the streams ``people``, ``auctions`` and ``bids`` and the relation ``shelves`` to Parquet files.

    The n-th files of the streams arrive together.
    """
    rng = np.random.default_rng(seed)
    number = np.arange(events)
    per_day = -(-events // days)
    day, place = number // per_day, number % per_day
    at = FIRST_DAY + day * 86_400 * SECOND + (6 + 5 * day) % 24 * 3_600 * SECOND + place * GAP
    at += rng.integers(0, GAP, events)
    order = np.argsort(at + rng.integers(0, LATENESS, events), kind="stable")
    kind = number % 50
    tables = {
        "people": (kind == 0, make_people),
        "auctions": ((kind >= 1) & (kind < 4), make_auctions),
        "bids": (kind >= 4, make_bids),
    }
    for name, (chosen, make) in tables.items():
        table = make(rng, number[chosen], at[chosen])
        row = np.cumsum(chosen) - 1
        for index, part in enumerate(np.array_split(order, files)):
            _write(folder / name, index, table.take(pa.array(row[part[chosen[part]]])))
    shelves = {"number": np.arange(SHELVES, dtype=np.int32), "label": [f"shelf {n}" for n in range(SHELVES)]}
    _write(folder / "shelves", 0, pa.table(shelves))


def make_people(rng: np.random.Generator, events: Array, at: Array) -> pa.Table:
    """One person for each event."""
    number = len(events)
    ids = np.arange(number)
    first = rng.choice(_WORDS, number)
    return pa.table(
        {
            "id": ids,
            "name": [f"{word.title()} {n}" for n, word in enumerate(first)],
            "email": [f"{word}{n}@example.org" for n, word in enumerate(first)],
            "city": rng.choice(_CITIES, number),
            "state": rng.choice(_STATES, number),
            "joined_at": _times(at),
        }
    )


def make_auctions(rng: np.random.Generator, events: Array, at: Array) -> pa.Table:
    """One auction for each event; it stays open for up to 20 seconds."""
    number = len(events)
    price = rng.integers(1, 10_000, number)
    return pa.table(
        {
            "id": np.arange(number),
            "item": rng.choice(_WORDS, number),
            "details": [" ".join(words) for words in rng.choice(_WORDS, (number, 4))],
            "first_price": price,
            "reserve": price * rng.integers(1, 5, number),
            "category": rng.integers(0, CATEGORIES, number).astype(np.int32),
            "seller": _recent(rng, events // 50 + 1, 10),
            "opened_at": _times(at),
            "closes_at": _times(at + rng.integers(SECOND, 20 * SECOND, number)),
        }
    )


def make_bids(rng: np.random.Generator, events: Array, at: Array) -> pa.Table:
    """One bid for each event, for one of the last auctions; every other one for the most popular auction."""
    number = len(events)
    opened = 3 * (events // 50) + 1
    auction = np.where(rng.random(number) < 0.5, opened // 100 * 100, _recent(rng, opened, 100))
    joined = events // 50 + 1
    bidder = np.where(rng.random(number) < 0.5, joined // 50 * 50, _recent(rng, joined, 500))
    channel = rng.choice(len(_CHANNELS), number)
    folders = rng.choice(_WORDS, (number, 3))
    source = np.where(channel == 4, "?lot=1&source=17", np.where(channel == 5, "?source=23&lot=2", "?lot=3"))
    return pa.table(
        {
            "auction": auction,
            "bidder": bidder,
            "price": (100 * 10 ** (rng.random(number) * 6)).astype(np.int64),
            "channel": np.array(_CHANNELS)[channel],
            "url": [
                f"https://auction.example/{'/'.join(path)}/lot.html{end}"
                for path, end in zip(folders, source, strict=True)
            ],
            "note": [" ".join(words) for words in rng.choice(_WORDS, (number, 3))],
            "made_at": _times(at),
        }
    )


def _recent(rng: np.random.Generator, count: Array, width: int) -> Array:
    """For each count, one of the last ``width`` numbers below it."""
    return count - 1 - (rng.random(len(count)) * np.minimum(count, width)).astype(np.int64)


def _times(at: Array) -> pa.Array:
    return pa.array(at).cast(pa.timestamp("us", "UTC"))


def _write(folder: Path, index: int, table: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{index:05}.parquet"
    pq.write_table(table, file)
    os.utime(file, (1_700_000_000 + index,) * 2)  # Spark reads files in the order of their times
