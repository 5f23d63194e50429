"""Every function of a timestamp that the language has, and random timestamps to apply them to."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

# The calls that give one value for each row.
CALLS = (
    *(
        f"date_trunc('{unit}', ts)"
        for unit in ("year", "quarter", "MM", "week", "day", "hour", "minute", "second", "millisecond")
    ),
    *(f"trunc(ts, '{unit}')" for unit in ("year", "quarter", "month", "week")),
    *("CAST(ts AS DATE)", "to_date(ts)", "date(ts)", "ts::date"),
    *("year(ts)", "quarter(ts)", "month(ts)", "day(ts)", "dayofmonth(ts)", "dayofyear(ts)"),
    *("hour(ts)", "minute(ts)", "second(ts)", "dayofweek(ts)", "weekday(ts)", "weekofyear(ts)"),
    *("extract(year FROM ts)", "extract(week FROM ts)", "extract(doy FROM ts)", "date_part('dow', ts)"),
    *("unix_timestamp(ts)", "unix_seconds(ts)", "unix_millis(ts)", "unix_micros(ts)"),
    *(
        f"date_format(ts, '{pattern}')"
        for pattern in (
            *("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH", "HH:mm", "yy M d H m s", "EEE", "EEEE d MMMM yyyy"),
            *("DDD yyyy", "hh a", "h a", "MMM", "yyyy-MM-dd\\'T\\'HH:mm:ss.SSS", "SSSSSS", "100% yyyy"),
        )
    ),
    "window(ts, '10 minutes').start",
    "window(ts, '10 minutes').end",
)
WINDOWS = ("'7 seconds'", "'90 minutes'", "'1 day', '1 day', '3 hours'", "'1 week'")
SLIDING = ("'10 minutes', '5 minutes'", "'10 minutes', '4 minutes', '90 seconds'", "'3 days', '1 day'")


def random_timestamps(rng: random.Random, count: int) -> list[datetime]:
    """Timestamps from 1900 to 2100, many of them at the ends of units or near a change of the clock."""
    edges = [
        datetime(2024, 3, 31, 1),
        datetime(2024, 10, 27, 1),
        datetime(1945, 5, 24),
        datetime(1969, 12, 31),
    ]
    edges += [
        datetime(2024, 4, 6, 15),
        datetime(2024, 10, 5, 15, 30),
        datetime(2020, 12, 28),
        datetime(1970, 1, 1),
    ]
    out = []
    for _ in range(count):
        start = rng.choice(edges)
        if rng.random() < 0.5:
            start = datetime(rng.randint(1900, 2100), rng.randint(1, 12), 1)
        step = rng.choice(
            (timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=10), timedelta(hours=1))
        )
        out.append(start + rng.randint(-3, 200) * step)
    return out
