"""The colours of pictures, charts and pages, for light and dark: those of the card and a few more."""

from __future__ import annotations

from millpond.analysis.card import (
    DARK,
    DARK_OUTCOMES,
    LIGHT,
    LIGHT_OUTCOMES,
    colour_outcomes,
    declare_colours,
)

# Beyond the card: the shade of bounded columns, lines between columns, and the colours of highlighted SQL.
_MORE_LIGHT = {
    "shade": "#d3e8fb",
    "edge": "#57606a",
    "keyword": "#0550ae",
    "string": "#0a5d3a",
    "number": "#8a3ffc",
    "comment": "#59636e",
    "mark": "#ffe2e0",
    "added": "#d8f5df",
    "good": "#1a7f37",
    "ours": "#0969da",
    "spark": "#b35900",
    "grid": "#e4e8ec",
    "page": "#f6f8fa",
    "focus": "#0969da",
}
_MORE_DARK = {
    "shade": "#16304f",
    "edge": "#9aa4af",
    "keyword": "#79c0ff",
    "string": "#7ee787",
    "number": "#d2a8ff",
    "comment": "#9198a1",
    "mark": "#5b1f22",
    "added": "#12391f",
    "good": "#3fb950",
    "ours": "#58a6ff",
    "spark": "#f0a35e",
    "grid": "#262c36",
    "page": "#0d1117",
    "focus": "#58a6ff",
}
LIGHT_COLOURS = {**LIGHT, **_MORE_LIGHT}
DARK_COLOURS = {**DARK, **_MORE_DARK}
_PICTURE = ("text", "dim", "line", "back", "code", "shade", "edge")


def _fall_back(colours: dict[str, str], outcomes: dict[str, str]) -> str:
    """The picture's colours: those of the page, if it has them, else these."""
    own = "".join(f"--pic-{name}:var(--mp-{name},{colours[name]});" for name in _PICTURE)
    accents = "".join(
        f".mp-picture.mp-{outcome}{{--pic-accent:var(--mp-accent,{colour})}}"
        for outcome, colour in outcomes.items()
    )
    return f".mp-picture{{{own}}}{accents}"


PICTURE_COLOURS = (
    _fall_back(LIGHT_COLOURS, LIGHT_OUTCOMES)
    + f"@media (prefers-color-scheme:dark){{{_fall_back(DARK_COLOURS, DARK_OUTCOMES)}}}"
)
# Of a whole page: the reader's theme, unless ``data-theme`` on its root says which one.
PAGE_COLOURS = (
    f":root{{color-scheme:light;{declare_colours(LIGHT_COLOURS)}}}{colour_outcomes(LIGHT_OUTCOMES)}"
    f"@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{declare_colours(DARK_COLOURS)}}}"
    f"{colour_outcomes(DARK_OUTCOMES)}}}"
    f":root[data-theme=light]{{color-scheme:light;{declare_colours(LIGHT_COLOURS)}}}"
    f"{colour_outcomes(LIGHT_OUTCOMES, '[data-theme=light] ')}"
    f":root[data-theme=dark]{{color-scheme:dark;{declare_colours(DARK_COLOURS)}}}"
    f"{colour_outcomes(DARK_OUTCOMES, '[data-theme=dark] ')}"
)
