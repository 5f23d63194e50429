"""The streams of the tour: random, but the same in every run; and their answers, computed directly."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_SEED = 2026
_IMPRESSIONS_PER_CLICK = 1_000
_FIRST = 8  # the first batch is so many times smaller
_OVERCHARGED = 2  # one batch of so many has a click that costs more than a bid
_MIDNIGHT = datetime(2026, 3, 2)
_DAY = 24 * 60  # minutes
_HOUR = 60


def make_clicks(ads: int, impressions: int) -> Iterator[dict[str, pa.Table]]:
    """Endless batches of so many impressions, and clicks on them, by the name of the stream.

    The first batch is smaller, for queries to warm up.
    """
    rng = np.random.default_rng(_SEED)
    for batch in count():
        shown_now = impressions // _FIRST if batch == 0 else impressions
        clicks = max(shown_now // _IMPRESSIONS_PER_CLICK, 1)
        cost = rng.integers(10, 100, clicks)
        if batch % _OVERCHARGED == 0:
            cost[0] = 150
        shown, clicked = (rng.integers(1, ads + 1, rows) for rows in (shown_now, clicks))
        yield {
            "impressions": _make_table(ad=shown, bid=rng.integers(100, 200, shown_now)),
            "clicks": _make_table(ad=clicked, cost=cost),
        }


def _make_table(**columns: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
    return pa.table({name: values.astype(np.int32) for name, values in columns.items()})


@dataclass(frozen=True)
class Shop:
    """A day of orders and payments, in the order of time; ``overdue`` are the orders not paid in an hour."""

    orders: list[dict[str, Any]]
    payments: list[dict[str, Any]]
    overdue: frozenset[int]

    @property
    def rows(self) -> int:
        return len(self.orders) + len(self.payments)

    @property
    def paid(self) -> int:
        """How many pairs of an order and its payment there are."""
        return len(self.payments)


def make_shop(orders: int, unpaid: int) -> Shop:
    """A day with so many orders.  ``unpaid`` of them are paid late or never, the others within the hour."""
    rng = np.random.default_rng(_SEED)
    ordered = np.sort(rng.uniform(0, _DAY, orders))
    delay = np.minimum(rng.exponential(8, orders) + 0.5, _HOUR - 1)
    forgotten = rng.choice(orders, unpaid, replace=False)
    delay[forgotten] = rng.uniform(2 * _HOUR, 6 * _HOUR, unpaid)
    delay[forgotten[::2]] = np.inf
    paid = ordered + delay
    placed = [
        {"id": i + 1, "amount": int(amount), "at": _format_time(minute)}
        for i, (minute, amount) in enumerate(zip(ordered, rng.integers(5, 200, orders), strict=True))
    ]
    settled = [
        {"order_id": int(i) + 1, "at": _format_time(paid[i])}
        for i in np.argsort(paid)
        if np.isfinite(paid[i])
    ]
    return Shop(placed, settled, frozenset(int(i) + 1 for i in forgotten))


def write_sample(folder: Path, ads: int, impressions: int) -> None:
    """Write the first batch of both streams as Parquet."""
    for name, table in next(make_clicks(ads, impressions)).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name / "first.parquet")


def write_shop(shop: Shop, folder: Path, files: int) -> None:
    """Write both streams as JSON: so many files, each of which covers the same time of both streams.

    The files are a second apart, because Spark reads files of the same millisecond in any order.
    """
    first = time.time() - files
    last = max(row["at"] for rows in (shop.orders, shop.payments) for row in rows)
    for name, rows in (("orders", shop.orders), ("payments", shop.payments)):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        ends = [_format_time(_DAY * number / files) for number in range(1, files)] + [last]
        start = 0
        for number, end in enumerate(ends):
            stop = next((i for i in range(start, len(rows)) if rows[i]["at"] > end), len(rows))
            lines = "".join(json.dumps(row) + "\n" for row in rows[start:stop])
            file = place / f"{number:02}.json"
            file.write_text(lines, encoding="utf-8")
            os.utime(file, (first + number,) * 2)
            start = stop


def _format_time(minute: float) -> str:
    return str((_MIDNIGHT + timedelta(minutes=float(minute))).replace(microsecond=0))
