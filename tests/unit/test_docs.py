"""Every path, link, module and name that the docs mention exists.

Checked outside of fenced code: links between pages and their anchors, and what is in backticks: paths,
dotted names of ``millpond`` and other identifiers.  Commands (``python -m …``) are checked in code too.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
# Pages about the code: here a plain word in backticks is a name too, as `decide`.
ABOUT_CODE = {"architecture.md", "paper-map.md", "what-to-keep.md", "CONTRIBUTING.md"}
# Files and directories of a run, which belong to the user.
USERS = {"_rejected/", "out/", "data/"}
# Names that others define: PySpark, pytest; functions of SQL.
FOREIGN = {
    "campaign",
    "date_format",
    "date_trunc",
    "dropDuplicates",
    "dropDuplicatesWithinWatermark",
    "emit_final",
    "maxFilesPerTrigger",
    "mz_now()",
    "numRowsDroppedByWatermark",
    "numRowsTotal",
    "pytest",
    "session_window",
    "session_window.end",
    "session_window.start",
    "transformWithState",
    "withWatermark",
}

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.\-/*]+(\.(py|md|toml|lock|yml|yaml)|/)")
DOTTED = re.compile(r"(millpond(?:\.\w+)+)(\(.*\))?")
IDENTIFIER = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)(\(\))?")
COMMAND = re.compile(r"python -m ((?:tests|benchmarks)[\w.]*)|python ((?:tests|benchmarks)[\w./]*\.py)")


def problems(page: Path) -> list[str]:
    """Return what a page names that does not exist."""
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    found = [f"link to {target}" for target in LINK.findall(prose) if not link_exists(page, target)]
    for module, script in COMMAND.findall(text):
        if not (ROOT / (script or module.replace(".", "/") + ".py")).exists():
            found.append(f"command {module or script}")
    for line in prose.splitlines():
        is_table = line.startswith("|")
        for cell in line.split("|") if is_table else [line]:
            spans = [span for span in SPAN.findall(cell) if not is_placeholder(span)]
            paths = [span for span in spans if PATH.fullmatch(span)]
            found += [f"path {path}" for path in paths if path not in USERS and not locate(page, path)]
            # Names beside a path in a cell are defined in that file; before the first path, anywhere.
            files = [file for path in paths for file in locate(page, path)] if is_table else []
            start = spans.index(paths[0]) if paths else 0
            for place, span in enumerate(spans):
                is_known = span in paths or name_exists(page, span, files)
                if not is_known and not (place < start and name_exists(page, span, [])):
                    found.append(f"name {span} in: {cell.strip()}")
    return found


def is_placeholder(span: str) -> bool:
    """Whether a path has a part to be replaced, as in `engines/NAME/`."""
    return bool(PATH.fullmatch(span)) and any(Path(part).stem.isupper() for part in span.split("/"))


def link_exists(page: Path, target: str) -> bool:
    if target.startswith(("http://", "https://", "mailto:")):
        return True
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or anchor in anchors_of(file))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def locate(page: Path, path: str) -> list[Path]:
    """Return the files of a path from the root, the package or the page; or the only file of that name."""
    found = [file for place in (ROOT, SOURCE, page.parent) for file in sorted(place.glob(path))]
    named = [file for file in python_files() if file.name == path]
    return found or (named if len(named) == 1 else [])


def name_exists(page: Path, span: str, files: list[Path]) -> bool:
    """Whether a code span is not a name, or one that is defined: in the given files, if there are any."""
    if dotted := DOTTED.fullmatch(span):
        return resolves(dotted[1])
    match = IDENTIFIER.fullmatch(span)
    if match is None or span.isupper() or span.endswith("_") or span in FOREIGN:
        return True
    name = match[1]
    is_name = "_" in name.strip("_") or match[2] or re.fullmatch(r"[A-Z][a-z]\w*[A-Z.]\w*", name)
    python = [file for file in files if file.suffix == ".py"]
    if not is_name and not python and page.name not in ABOUT_CODE:
        return True
    if python:
        return any(name in defined_in(file) for file in python) or name in qualified_names()
    return name in all_names() or name in qualified_names() or name in all_strings()


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


@cache
def defined_in(file: Path) -> frozenset[str]:
    """Return what a module defines: functions, classes, constants, and members as ``Class.member``."""
    return frozenset(definitions(ast.parse(file.read_text(encoding="utf-8")).body, ""))


def definitions(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from definitions(node.body, f"{node.name}.")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id
        elif isinstance(node, ast.Assign):
            yield from (prefix + target.id for target in node.targets if isinstance(target, ast.Name))


@cache
def python_files() -> tuple[Path, ...]:
    return tuple(
        file for top in ("src", "tests", "benchmarks") for file in sorted((ROOT / top).rglob("*.py"))
    )


@cache
def all_names() -> frozenset[str]:
    """Return every defined name, the names of members alone, and every module and package."""
    names = {name for file in python_files() for name in defined_in(file)}
    members = {name.partition(".")[2] for name in names}
    modules = {part for file in python_files() for part in (file.stem, file.parent.name)}
    return frozenset(names | members | modules)


@cache
def qualified_names() -> frozenset[str]:
    """Return every defined name as ``module.name``."""
    return frozenset(f"{file.stem}.{name}" for file in python_files() for name in defined_in(file))


@cache
def all_strings() -> frozenset[str]:
    """Return the parameters of functions and the strings of the source: options, JSON keys, columns."""
    found: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    found = problems(page)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "see [there](docs/no-such-page.md)",
        "see [there](#no-such-heading)",
        "in `analysis/no_such_module.py`",
        "in `engines/nothing/`",
        "| x | `analysis/decide.py` `Closure` |",
        "`no_such_function` decides",
        "`NoSuchClass.method`",
        "call `millpond.no_such_function`",
        "    python -m tests.campaigns.nothing",
    ],
)
def test_a_wrong_name_is_found(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{text}\n")
    assert len(problems(page)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "see [above](#a-page), [the site](https://example.org)",
        "in `analysis/decide.py` and `tests/spark/`",
        "| x | `analysis/decide.py` `decide` |",
        "`millpond.check` and `millpond.analysis.decide.decide`",
        "`SELECT A FROM S WHERE B < 2`, `DISTINCT`, `A`, `late_rows`",
        "```\n`no_such_function`\n```",
    ],
)
def test_a_right_name_is_no_problem(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{text}\n")
    assert problems(page) == []
