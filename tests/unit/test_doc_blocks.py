"""Every code block of the documentation is run by something, or says why not.

``tests/support/doc_blocks.py`` lists the kinds of blocks.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from mkdocs.utils.yaml import yaml_load

import millpond
from docs.hooks import outside_pages
from millpond.cli import main as cli
from tests.support.doc_blocks import PAGES, ROOT, Block, find_blocks, find_runner, read_blocks, read_examples

Captured = pytest.CaptureFixture[str]
BLOCKS = [block for page in PAGES for block in read_blocks(page)]


def test_a_block_that_nothing_runs_says_why() -> None:
    silent = [str(block) for block in BLOCKS if not block.excuse and find_runner(block) is None]
    assert not silent, "nothing runs these; if so, write <!-- not run: REASON --> above:\n" + "\n".join(
        silent
    )
    idle = [str(block) for block in BLOCKS if block.excuse and find_runner(block)]
    assert not idle, "these are run:\n" + "\n".join(idle)


@pytest.mark.parametrize(
    "text, runner",
    [
        ("```python\n>>> 1\n1\n```", "doctest"),
        ("```python\nprint(1)\n```", None),
        ("```sql\nSELECT 1\n```", "check"),
        ("```console\n$ millpond check x.sql\n```", "commands"),
        ("```bash\nmillpond run x.sql\n```", None),
        ("```json\n{}\n```", None),
        ("```\nx\n```", None),
    ],
)
def test_what_runs_a_block(text: str, runner: str | None) -> None:
    (block,) = find_blocks(ROOT / "README.md", text)
    assert find_runner(block) == runner


def test_an_excuse_belongs_to_the_next_block() -> None:
    marked = "<!-- not run: needs {} -->\n```bash\nx\n```\n\n"
    text = marked.format("a cluster") + "```bash\ny\n```\n" + marked.format("Kafka")
    found = find_blocks(ROOT / "README.md", text)
    assert [block.excuse for block in found] == ["needs a cluster", None, "needs Kafka"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_indented_code(page: Path) -> None:
    """It has no language, so nobody knows what it is."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(
        r"(?<!\n)\n\n( {4}\S.*)", re.sub(r"^!!!.*\n(    .*\n|\n)*", "", prose, flags=re.MULTILINE)
    )
    assert not found


# --- blocks that need no Spark ---------------------------------------------------------------------


def is_shown(block: Block) -> bool:
    """Whether a console block of the page, which is run, is about the file."""
    others = (each.text for each in read_blocks(block.page) if each.language == "console")
    return block.file is not None and any(block.file in text for text in others)


SQL = [block for block in BLOCKS if block.language == "sql" and not is_shown(block)]


@pytest.mark.parametrize("block", SQL, ids=str)
def test_sql_can_be_checked(block: Block) -> None:
    tables = re.findall(r"CREATE STREAMING TABLE (\w+)", block.text)
    query = "" if re.search(r"^\s*(SELECT|WITH)", block.text, re.MULTILINE) else f"SELECT 1 FROM {tables[0]}"
    verdict = millpond.check(f"{block.text}\n{query}")
    assert verdict


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.language == "console" for block in read_blocks(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_console_blocks_show_what_commands_print(
    page: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands run in a folder with the files of the page so far; ``> FILE`` works as in a shell."""
    monkeypatch.chdir(tmp_path)
    code = 0
    for block in read_blocks(page):
        if file := block.file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(block.text, encoding="utf-8")
        if block.language != "console":
            continue
        for step in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            if command == "echo $?":
                assert shown == f"{code}\n"
                continue
            program, *arguments = shlex.split(command)
            assert program == "millpond"
            target = arguments.pop() if ">" in arguments else None
            code = cli.main([word for word in arguments if word != ">"])
            out, err = capsys.readouterr()
            if target:
                Path(target).write_text(out, encoding="utf-8")
                out = ""
            assert out + err == shown, command


# --- commands and files that are shown only --------------------------------------------------------


def list_commands(block: Block) -> list[list[str]]:
    """The arguments of the calls of millpond in a block, after any settings, up to a pipe or redirection."""
    text = block.text if block.language in ("bash", "yaml") else ""
    calls = re.findall(
        r"^(?:.*?[|&] |\s*- run: |[A-Z_]+='[^']*' )?(?:millpond|\./run) (.*)$", text, re.MULTILINE
    )
    words = (shlex.split(re.sub(r"\s[|>&].*", "", call), comments=True) for call in calls)
    return [call for call in words if call[0] not in ("test", "help", "--help")]


@pytest.mark.parametrize("block", [block for block in BLOCKS if list_commands(block)], ids=str)
def test_commands_have_the_arguments_that_are_shown(block: Block) -> None:
    for arguments in list_commands(block):
        cli.make_parser().parse_args(arguments)


def test_commands_are_found() -> None:
    text = "```bash\nPATH='x' millpond check a.sql > b\ndbt | millpond check -\n./run demo # tour\n```"
    (block,) = find_blocks(ROOT / "README.md", text)
    assert list_commands(block) == [["check", "a.sql"], ["check", "-"], ["demo"]]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "yaml"], ids=str)
def test_yaml_can_be_parsed(block: Block) -> None:
    assert yaml_load(block.text)


def test_examples_that_run_are_found() -> None:
    """Those of the tutorials and of time; ``tests/spark/test_doc_examples.py`` runs them."""
    assert len(read_examples()) >= 6
    assert {example.page.stem for example in read_examples()} >= {"clicks", "orders", "sensors", "time"}


def test_pages_outside_of_the_docs_exist() -> None:
    assert all((ROOT / path).exists() for path in outside_pages.PAGES)
