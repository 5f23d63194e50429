"""How much longer than in UTC a stretch of local time can be."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

_FIXED = re.compile(r"(UTC|GMT|UT|Z)?([+-]\d{1,2}(:\d{2}){0,2})?")
# Offsets lie between -12:00 and +14:00; some of the nineteenth century reach a little further.
_WIDEST = timedelta(hours=32)
_YEARS = range(1840, 2101)


@cache
def find_slack(zone: str) -> int:
    """By how many microseconds a day, or any stretch of local time, can be longer than one in UTC at most.

    Its length is the local one plus the difference of the offsets from UTC at its ends.

    >>> find_slack("UTC"), find_slack("+05:30"), find_slack("Asia/Tokyo") < 2 * 3_600_000_000
    (0, 0, True)
    """
    if _FIXED.fullmatch(zone):
        return 0
    try:
        rules = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        return _WIDEST // timedelta(microseconds=1)
    day, offsets = datetime(_YEARS[0], 1, 1, tzinfo=UTC), set()
    while day.year < _YEARS[-1]:
        offsets.add(day.astimezone(rules).utcoffset())
        day += timedelta(days=1)
    known = [offset for offset in offsets if offset is not None]
    return (max(known) - min(known)) // timedelta(microseconds=1)
