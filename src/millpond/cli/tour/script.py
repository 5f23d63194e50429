"""The queries of the tour, and how much of each stream it reads."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.analysis.decide import decide
from millpond.analysis.verdict import Verdict
from millpond.frontend.parse import parse

CLICKS = """\
CREATE STREAMING TABLE impressions (
  ad INT, bid INT
) USING parquet OPTIONS (path 'impressions');
CREATE STREAMING TABLE clicks (
  ad INT, cost INT
) USING parquet OPTIONS (path 'clicks');

SELECT DISTINCT i.ad
FROM impressions i JOIN clicks c ON c.ad = i.ad
WHERE c.cost > i.bid;
"""
OVERDUE = """\
CREATE STREAMING TABLE orders (id INT, amount INT, at TIMESTAMP)
  USING json OPTIONS (path 'orders', maxFilesPerTrigger '1');
CREATE STREAMING TABLE payments (order_id INT, at TIMESTAMP)
  USING json OPTIONS (path 'payments', maxFilesPerTrigger '1');

SELECT o.id, o.amount, o.at FROM orders o WHERE NOT EXISTS (
  SELECT 1 FROM payments p WHERE p.order_id = o.id
  AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR);
"""
PAID = """\
CREATE STREAMING TABLE orders (id INT, amount INT)
  USING json OPTIONS (path 'orders', maxFilesPerTrigger '1');
CREATE STREAMING TABLE payments (order_id INT)
  USING json OPTIONS (path 'payments', maxFilesPerTrigger '1');

SELECT o.id, o.amount
FROM orders o JOIN payments p ON p.order_id = o.id;
"""
# The join of CLICKS for Spark itself, which refuses SELECT DISTINCT here; it drops duplicates instead.
SPARK_JOIN = "SELECT i.ad FROM impressions i JOIN clicks c ON c.ad = i.ad WHERE c.cost > i.bid"


@dataclass(frozen=True)
class Size:
    """How much the tour reads.

    The race takes batches of so many ``impressions`` of ``ads``.  It ends when it is decided, or after so
    many ``batches`` or ``seconds``.  On a terminal, ``reading`` is the number of seconds between two pages,
    in which Spark starts.  The shop has a day of ``orders``, of which so many are ``unpaid`` after an hour,
    in so many ``files``; ``memory`` is the budget of its join.  A tour without a shop has no orders.
    """

    ads: int
    impressions: int
    batches: int
    seconds: float
    reading: float
    orders: int = 0
    unpaid: int = 0
    files: int = 0
    memory: int = 0


FULL = Size(300, 60_000, 12, 60.0, 4.0, orders=20_000, unpaid=7, files=6, memory=100)
QUICK = Size(30, 35_000, 5, 12.0, 2.0)
# The race is decided when Spark keeps so many times as much.
GOAL = 1_000


def check_query(text: str) -> Verdict:
    """The verdict on a text with one query."""
    [query] = parse(text)
    return decide(query)


def select_of(text: str) -> str:
    """The query of a text, without the declarations.

    >>> select_of(PAID).splitlines()[0]
    'SELECT o.id, o.amount'
    """
    return text.rpartition("\n\n")[2].strip()
