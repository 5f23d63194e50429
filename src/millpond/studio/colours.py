"""The style sheet that the page shares with reports: the colours of both themes, and of all sections."""

from __future__ import annotations

from functools import cache

from millpond.analysis.card import DARK_OUTCOMES, LIGHT_OUTCOMES
from millpond.report.sections import render_section_style


@cache
def render_style() -> str:
    """The style sheet; each outcome has its colour also by name, as ``--bounded``."""
    outcomes = "".join(
        f"--{outcome}:light-dark({light},{DARK_OUTCOMES[outcome]});"
        for outcome, light in LIGHT_OUTCOMES.items()
    )
    return f"{render_section_style()}:root{{{outcomes}}}"
