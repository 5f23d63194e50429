"""Millpond: can this continuous query run in bounded memory?"""

from millpond.analysis.check import check
from millpond.analysis.verdict import Kept, KeptColumn, Reason, State, Verdict
from millpond.errors import MillpondError, NotUnboundedError, SqlError, WitnessSizeError

__all__ = [
    "Kept",
    "KeptColumn",
    "MillpondError",
    "NotUnboundedError",
    "Reason",
    "SqlError",
    "State",
    "Verdict",
    "WitnessSizeError",
    "check",
]
__version__ = "0.1.0"
