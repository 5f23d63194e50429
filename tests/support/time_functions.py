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
# Functions of timestamps to which a length of time is added, of other functions, and of counts of time.
COMPOSED = (
    *("ts + INTERVAL 1 HOUR", "ts - INTERVAL '90' MINUTES", "INTERVAL 3 SECONDS + ts", "ts + INTERVAL 1 DAY"),
    *(
        "ts + INTERVAL '1 02:03:04.5' DAY TO SECOND",
        "ts - make_interval(0, 0, 0, 0, 5)",
        "ts + INTERVAL 1 MONTH",
    ),
    *("ts + INTERVAL '1' HOUR * 30", "ts + make_dt_interval(0, 1, 2)", "timestampadd(MINUTE, -7, ts)"),
    *("dateadd(DAY, 1, ts)", "timestampadd(MONTH, 1, ts)", "(ts + INTERVAL 1 HOUR) - INTERVAL 1 MINUTE"),
    *("date_trunc('hour', ts + INTERVAL 30 MINUTES)", "date_trunc('month', ts - INTERVAL 9 HOURS)"),
    *("CAST(ts + INTERVAL 9 HOURS AS DATE)", "year(ts + INTERVAL 9 HOURS)", "hour(ts - INTERVAL 5 HOURS)"),
    *("date_format(ts + INTERVAL 1 HOUR, 'yyyy-MM-dd HH')", "date_format(ts - INTERVAL 1 HOUR, 'HH:mm')"),
    *("unix_timestamp(ts + INTERVAL 1 HOUR)", "date_trunc('hour', ts) + INTERVAL 1 HOUR"),
    *("date_trunc('day', date_trunc('minute', ts))", "CAST(date_trunc('hour', ts) AS DATE)", "last_day(ts)"),
    *("date_format(date_trunc('hour', ts), 'yyyy HH')", "unix_millis(date_trunc('second', ts))"),
    *(
        "date_add(ts, 3)",
        "date_sub(ts, 1)",
        "date_add(CAST(ts AS DATE), 1)",
        "to_date(ts) + 1",
        "to_date(ts) - 2",
    ),
    *("floor(unix_timestamp(ts) / 300)", "ceil(unix_seconds(ts) / 60)", "round(unix_timestamp(ts) / 60)"),
    *(
        "CAST(unix_timestamp(ts) / 60 AS BIGINT)",
        "CAST(CAST(ts AS BIGINT) / 60 AS INT)",
        "unix_timestamp(ts) DIV 60",
    ),
    *(
        "floor(unix_seconds(ts) / 300) * 300",
        "unix_seconds(ts) - unix_seconds(ts) % 60",
        "unix_millis(ts) DIV 7000",
    ),
    *(
        "unix_timestamp(ts) - pmod(unix_timestamp(ts), 90)",
        "unix_seconds(ts) + 30",
        "(unix_seconds(ts) + 30) DIV 60",
    ),
    *("CAST(floor(unix_seconds(ts) / 300) * 300 AS TIMESTAMP)", "from_unixtime(unix_timestamp(ts))"),
    *("timestamp_seconds(unix_timestamp(ts) DIV 60 * 60)", "timestamp_millis(unix_millis(ts))"),
    *(
        "from_unixtime(unix_timestamp(ts), 'yyyy-MM-dd HH')",
        "from_unixtime(unix_seconds(ts) DIV 60 * 60, 'HH:mm')",
    ),
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
