"""Imports go one way: every package of ``millpond`` imports only those that its layer allows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond

SOURCE = Path(millpond.__file__).parent
# Each package (or module) of millpond, and the packages below it that it may import.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "query": {"errors"},
    "frontend": {"errors", "query", "runtime"},
    "runtime": {"errors", "query"},
    "models": {"errors"},
    "policies": {"errors", "models"},
    "plan": {"errors", "query"},
    "analysis": {"errors", "query", "frontend", "plan", "runtime", "engines"},
    "engines": {"errors", "query", "plan", "runtime", "models", "policies"},
    "spark": {"errors", "query", "frontend", "plan", "analysis", "runtime", "engines", "models", "policies"},
    "lab": {"errors", "models", "policies"},
    "report": {"errors", "query", "frontend", "plan", "analysis", "runtime"},
    "studio": {"errors", "query", "frontend", "plan", "analysis", "runtime", "report"},
    "cli": {"errors", "query", "frontend", "analysis", "policies", "spark", "lab", "report", "studio"},
    "__init__": {"errors", "plan", "analysis", "policies", "engines", "spark"},
}
ENGINES = ("exact", "timed", "budgeted", "lookup")


def imported_modules(file: Path) -> Iterator[str]:
    """Every module of millpond that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert not node.level, f"{file}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.removeprefix("millpond.") for name in names if name.startswith("millpond."))


def layer_of(file: Path) -> str:
    """The package, or the top-level module, that a file belongs to."""
    return file.relative_to(SOURCE).with_suffix("").parts[0]


def broken_rules(file: Path) -> list[str]:
    """The imports of a file that its layer does not allow."""
    layer = layer_of(file)
    broken = []
    for module in imported_modules(file):
        package, *rest = module.split(".")
        if package != layer and package not in ALLOWED[layer]:
            broken.append(module)
        elif layer == package == "engines":
            mine = file.relative_to(SOURCE / "engines").parts[0]
            if mine in ENGINES and rest[0] != mine:
                broken.append(module)
    return broken


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_follow_the_order_of_layers(file: Path) -> None:
    assert not broken_rules(file)


def test_allowed_imports_have_no_cycle() -> None:
    """The table itself is an order: some package can always be removed that imports none of the rest."""
    left = dict(ALLOWED)
    while left:
        free = [name for name, below in left.items() if not below & left.keys()]
        assert free, f"cycle among {sorted(left)}"
        for name in free:
            del left[name]


def test_an_import_against_the_order_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a query module that imports the analysis, an engine that imports another."""
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    for path, text in (
        ("query/model.py", "from millpond.analysis.decide import decide"),
        ("engines/timed/compile.py", "def late():\n    from millpond.engines.exact import compile"),
        ("models/noise.py", "import millpond.query.model"),
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        assert broken_rules(file), path


def test_sqlglot_and_pyspark_stay_in_their_packages() -> None:
    homes = {"sqlglot": {"frontend"}, "pyspark": {"spark"}}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                found = {node.module.split(".")[0]}
            else:
                continue
            for library, packages in homes.items():
                if library in found and layer_of(file) not in packages:
                    is_annotation = layer_of(file) == "__init__" and library == "pyspark"
                    assert is_annotation, f"{file.relative_to(SOURCE)} imports {library}"


def test_the_architecture_page_has_the_same_table() -> None:
    page = (SOURCE.parents[1] / "docs" / "explained" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Layers")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    documented = {package.strip(" `"): set(re.findall(r"`(\w+)`", allowed)) for package, allowed in rows}
    assert documented == ALLOWED


def test_workers_import_only_what_they_run() -> None:
    """Every Python worker of Spark imports the operators; the front end and the analysis stay out."""
    script = (
        "import sys; from millpond.spark.operators import exact, over, timed; print(*sys.modules, sep='\\n')"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    unwanted = ("sqlglot", "scipy", "numba", "sqlalchemy", "millpond.frontend", "millpond.analysis")
    assert not set(unwanted) & set(found.split())
