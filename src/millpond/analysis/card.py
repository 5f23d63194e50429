"""Renders a verdict as a card in HTML: what a notebook shows.

The card is self-contained: no script, no font and nothing from another place.  It follows the light or dark
theme of the reader.  All text of the user's is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from millpond.analysis.explain import headline, list_kept, list_notes

if TYPE_CHECKING:
    from millpond.analysis.verdict import Reason, Verdict

# The colours of cards and reports, by what they are for; each is a custom property ``--mp-…`` of CSS.
LIGHT = {"back": "#fff", "text": "#1f2328", "dim": "#59636e", "line": "#d1d9e0", "code": "#f6f8fa"}
DARK = {"back": "#151b23", "text": "#e6edf3", "dim": "#9198a1", "line": "#3d444d", "code": "#0d1117"}
LIGHT_OUTCOMES = {"bounded": "#1a7f37", "unbounded": "#cf222e", "undetermined": "#9a6700"}
DARK_OUTCOMES = {"bounded": "#3fb950", "unbounded": "#ff7b72", "undetermined": "#d29922"}


def declare_colours(colours: Mapping[str, str]) -> str:
    """The colours as custom properties of CSS."""
    return ";".join(f"--mp-{name}:{colour}" for name, colour in colours.items())


def colour_outcomes(colours: Mapping[str, str], scope: str = "") -> str:
    """The accent colour of each outcome, inside the elements that ``scope`` selects."""
    return "".join(f"{scope}.mp-{outcome}{{--mp-accent:{colour}}}" for outcome, colour in colours.items())


_LIGHT, _DARK = declare_colours(LIGHT), declare_colours(DARK)
# Jupyter and VS Code say on an ancestor whether their theme is dark; elsewhere the browser knows.
_DARK_SCOPES = ("[data-jp-theme-light=false] ", ".vscode-dark ", "[data-theme=dark] ")
CARD_STYLE = (
    f".mp-card{{{_LIGHT};border:1px solid var(--mp-line);border-left:4px solid var(--mp-accent);"
    "border-radius:6px;padding:12px 16px;margin:8px 0;max-width:60em;background:var(--mp-back);"
    "color:var(--mp-text);font:14px/1.5 system-ui,sans-serif}"
    + colour_outcomes(LIGHT_OUTCOMES)
    + ".mp-card p{margin:6px 0}.mp-card ul{margin:6px 0;padding-left:20px}"
    ".mp-head b{color:var(--mp-accent)}.mp-dim{color:var(--mp-dim)}"
    ".mp-card code,.mp-card pre{font:13px/1.5 ui-monospace,monospace;background:var(--mp-code);"
    "color:inherit;border-radius:4px;padding:1px 4px}"
    ".mp-card pre{padding:8px 10px;white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0}"
    ".mp-card table{border-collapse:collapse;margin:8px 0;background:none}"
    ".mp-card th,.mp-card td{text-align:left;vertical-align:top;padding:3px 16px 3px 0;"
    "border-bottom:1px solid var(--mp-line);background:none}"
    ".mp-card .mp-number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".mp-card .mp-card{max-width:none}"
    f"@media (prefers-color-scheme:dark){{.mp-card{{{_DARK}}}{colour_outcomes(DARK_OUTCOMES)}}}"
    + "".join(f"{each}.mp-card{{{_DARK}}}{colour_outcomes(DARK_OUTCOMES, each)}" for each in _DARK_SCOPES)
    + f"[data-jp-theme-light=true] .mp-card{{{_LIGHT}}}"
    + colour_outcomes(LIGHT_OUTCOMES, "[data-jp-theme-light=true] ")
)


def render_card(verdict: Verdict, with_style: bool = True) -> str:
    """The card as an element of HTML; several cards on a page need the style (``CARD_STYLE``) once."""
    style = f"<style>{CARD_STYLE}</style>" if with_style else ""
    outcome, _, rest = headline(verdict).partition(":")
    parts = [
        f'<p class="mp-head"><b>{escape(outcome)}</b>:{escape(rest)}</p>',
        f"<pre>{escape(verdict.query_text.strip())}</pre>",
        _render_kept(verdict),
        _render_reasons(verdict.reasons),
        *(f'<p class="mp-dim">{escape(note)}</p>' for note in list_notes(verdict)),
        *(
            f"<details><summary>block {escape(name)}</summary>{render_card(block, False)}</details>"
            for name, block in verdict.blocks.items()
        ),
    ]
    return f'{style}<section class="mp-card mp-{verdict.outcome}">{"".join(parts)}</section>'


def _render_kept(verdict: Verdict) -> str:
    rows = list_kept(verdict)
    if not rows:
        return ""
    cells = (
        f'<tr><td>{escape(name)}</td><td class="mp-number">{escape(size)}</td><td>{escape(text)}</td></tr>'
        for name, size, text in rows
    )
    head = '<tr><th>stream</th><th class="mp-number">at most</th><th>what is kept</th></tr>'
    return f"<table>{head}{''.join(cells)}</table>"


def _render_reasons(reasons: tuple[Reason, ...]) -> str:
    items = []
    for reason in reasons:
        predicate = f"<code>{escape(reason.predicate)}</code> " if reason.predicate else ""
        items.append(
            f'<li>{predicate}{escape(reason.message)}. <span class="mp-dim">{escape(reason.code)}</span></li>'
        )
    return f"<ul>{''.join(items)}</ul>" if items else ""
