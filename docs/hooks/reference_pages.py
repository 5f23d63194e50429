"""Writes the parts of the reference that come from the code: commands, reasons, metrics, policies, the API.

A page contains ``<!-- generated: NAME -->``, a few words for those who read it without the site, and
``<!-- end -->``.  On the site, what the function of that name in ``GENERATED`` returns replaces them.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # MkDocs loads this file by its path

import millpond
from docs.hooks import reference_meanings as meanings
from millpond.analysis.over import OverCode
from millpond.analysis.reasons import _UNDETERMINED
from millpond.analysis.verdict import UndeterminedCode
from millpond.analysis.violations import ViolationCode
from millpond.cli.exits import ExitCode
from millpond.cli.main import COMMANDS, make_parser
from millpond.engines.lookup.declaration import OPTIONS as LOOKUP_OPTIONS
from millpond.frontend.catalog import _CARDINALITY, _PROPERTIES
from millpond.policies.registry import POLICIES, Use

_PART = re.compile(r"^<!-- generated: ([\w-]+) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by MkDocs for every page."""
    return expand(markdown)


def expand(markdown: str) -> str:
    """Return a page with its generated parts."""
    return _PART.sub(lambda found: GENERATED[found[1]](), markdown)


# --- tables ----------------------------------------------------------------------------------------


def format_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table.

    >>> print(format_table(("name", "meaning"), [("a|b", "one\\nline")]))
    | name | meaning |
    |---|---|
    | a\\|b | one line |
    """
    heads = list(heads)
    body = (" | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) for row in rows)
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {row} |" for row in body)])


def match_names(known: Iterable[str], described: Mapping[str, object], what: str) -> None:
    """Require that every name of the code has a meaning, and that there is no other meaning."""
    known = set(known)
    if missing := sorted(known - set(described)):
        raise LookupError(f"docs/hooks/reference_meanings.py does not describe {what}: {', '.join(missing)}")
    if stale := sorted(set(described) - known):
        raise LookupError(
            f"docs/hooks/reference_meanings.py describes {what} that is gone: {', '.join(stale)}"
        )


# --- commands --------------------------------------------------------------------------------------


def list_commands() -> str:
    parsers = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    rows = ((f"[`millpond {name}`](#millpond-{name})", command.help) for name, command in COMMANDS.items())
    parts = [format_table(("command", "what it does"), rows)]
    parts += (describe_command(name, parsers[name]) for name in COMMANDS)
    return "\n\n".join(parts)


def describe_command(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the section of a command: what it does, its arguments, calls to copy."""
    command = COMMANDS[name]
    actions = [action for action in parser._actions if "--help" not in action.option_strings]
    rows = ((describe_call(action), describe_action(action)) for action in actions)
    positional = " ".join(_metavar(action) for action in actions if not action.option_strings)
    parts = [
        f"## millpond {name}",
        command.help,
        f"```text\nmillpond {name} {positional} [OPTION …]\n```".replace("  ", " "),
    ]
    if actions:
        parts.append(format_table(("argument", "meaning"), rows))
    if command.examples:
        width = max(len(call) for call, _ in command.examples)
        lines = (f"millpond {call:<{width}}  # {meaning}" for call, meaning in command.examples)
        parts.append("```bash\n" + "\n".join(lines) + "\n```")
    return "\n\n".join(parts)


def describe_call(action: argparse.Action) -> str:
    """Return how an argument is written: `--memory N`."""
    value = "" if action.nargs == 0 else f" {_metavar(action)}"
    return ", ".join(f"`{name}{value}`" for name in action.option_strings) or f"`{_metavar(action)}`"


def describe_action(action: argparse.Action) -> str:
    text = (action.help or "") % vars(action)
    if action.choices and not all(str(choice) in text for choice in action.choices):
        text += ": " + ", ".join(f"`{choice}`" for choice in action.choices)
    text = re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", text)  # options are code
    text = text.replace("*", r"\*")
    return text + (" (required)" if action.required and action.option_strings else "")


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "VALUE" if action.choices and action.option_strings else action.dest.upper()


def list_exit_codes() -> str:
    match_names((code.name for code in ExitCode), meanings.EXIT_CODES, "the exit code")
    rows = ((f"{code.value}", meanings.EXIT_CODES[code.name]) for code in ExitCode)
    return format_table(("code", "meaning"), rows)


# --- reasons ---------------------------------------------------------------------------------------


def list_reasons() -> str:
    """Every code, with what Millpond says about an example; fails if the example has another reason."""
    codes = [*ViolationCode, *OverCode, *UndeterminedCode]
    page = (Path(__file__).parents[1] / "reference" / "verdicts.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    rows = []
    for code in codes:
        heading = next((each for each in headings if code in re.split(r", | ", each)), None)
        if heading is None:
            raise LookupError(f"docs/reference/verdicts.md has no heading with the reason {code}")
        anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        outcome = "undetermined" if isinstance(code, UndeterminedCode) else "unbounded"
        rows.append((f"[`{code}`](#{anchor})", outcome, _word_reason(code)))
    return format_table(("code", "outcome", "what Millpond says, for an example"), rows)


def _word_reason(code: str) -> str:
    if code not in meanings.EXAMPLES:
        worded = {each.value: text for each, text in _UNDETERMINED.items()} | meanings.WITHOUT_EXAMPLE
        return worded[code]
    query = meanings.EXAMPLES[code]
    verdict = millpond.check(meanings.EXAMPLE_STREAMS + query)
    assert not isinstance(verdict, list)
    reason = next((each for each in verdict.reasons if each.code == code), None)
    if reason is None:
        raise LookupError(f"the example of {code} has the reasons {[each.code for each in verdict.reasons]}")
    return f"`{query}`: {_escape(reason.message)}"


def _escape(text: str) -> str:
    return re.sub(r"([*_<`])", r"\\\1", text)


# --- metrics, properties, options, policies --------------------------------------------------------


def list_metrics() -> str:
    from millpond.spark.metrics import BatchMetrics

    fields = dataclasses.fields(BatchMetrics)
    match_names((each.name for each in fields), meanings.METRICS, "the metric")
    kinds = {"int": "number", "float": "number", "str": "text"}
    rows = (
        (f"`{f.name}`", kinds.get(str(f.type).split(" ")[0], "object"), meanings.METRICS[f.name])
        for f in fields
    )
    return format_table(("field", "value", "meaning"), rows)


def list_properties() -> str:
    match_names((*_PROPERTIES, _CARDINALITY), meanings.PROPERTIES, "the table property")
    rows = ((f"`'{_show(name)}'`", *words) for name, words in meanings.PROPERTIES.items())
    return format_table(("property", "value, for example", "meaning", "without it"), rows)


def _show(name: str) -> str:
    return f"{name}COLUMN" if name.endswith(".") else name


def list_lookup_options() -> str:
    match_names(LOOKUP_OPTIONS, meanings.LOOKUP_OPTIONS, "the option of lookup relations")
    rows = ((f"`{name}`", meanings.LOOKUP_OPTIONS[name]) for name in LOOKUP_OPTIONS)
    return format_table(("option", "meaning"), rows)


def list_policies() -> str:
    rows = (
        (
            f"`{policy.name}`",
            policy.description + (" (uses a model)" if policy.needs_model else ""),
            ", ".join(f"`{use.value}`" for use in Use if use in policy.uses),
        )
        for policy in POLICIES
    )
    return format_table(("policy", "what it does", "offered by"), rows)


# --- the Python API --------------------------------------------------------------------------------


def list_api() -> str:
    names = sorted(millpond.__all__, key=lambda name: (not name.islower(), name.endswith("Error"), name))
    return "\n\n".join(part for name in names for part in describe_name(name, getattr(millpond, name)))


def describe_name(name: str, found: Callable[..., object]) -> Iterator[str]:
    """Yield the section of a public name: its signature, its docstring, and what a class has."""
    yield f"## millpond.{name}"
    if not inspect.isclass(found):
        yield f"```python\nmillpond.{name}{_sign(found)}\n```"
        yield convert_docstring(inspect.getdoc(found))
        return
    bases = [base.__name__ for base in found.__mro__[1:-1] if base.__module__ == "millpond.errors"]
    if bases:
        yield f"*An error: a `{bases[0]}`.*"
    yield convert_docstring(inspect.getdoc(found))
    if dataclasses.is_dataclass(found):
        public = [each for each in dataclasses.fields(found) if _is_public(each)]
        yield format_table(
            ("field", "type"), ((f"`{each.name}`", f"`{_show_type(each.type)}`") for each in public)
        )
    for key, member in vars(found).items():
        doc = inspect.getdoc(member)
        if key.startswith("_") or not doc or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        yield f"### {name}.{key}"
        if inspect.isfunction(member):
            yield f"```python\n{key}{_sign(member)}\n```"
        yield convert_docstring(doc)


def _is_public(field: dataclasses.Field[typing.Any]) -> bool:
    """Whether a field is meant for users: plans and sources of witnesses are internal."""
    return field.repr or field.name in ("blocks", "cause", "verdict")


def _show_type(kind: object) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _sign(found: Callable[..., object]) -> str:
    text = str(inspect.signature(found)).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations are texts
    if len(text) <= 70:
        return text
    inner, end = text[1:].rsplit(") -> ", 1)
    parts = re.split(r", (?![^\[]*\])", inner)
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f") -> {end}"


def convert_docstring(text: str | None) -> str:
    """Return a docstring as Markdown.

    >>> convert_docstring("Says ``so``.\\n\\n>>> 1 + 1\\n2")
    'Says `so`.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    marked = re.sub(r"``(.+?)``", r"`\1`", text or "")
    return re.sub(r"^(>>> .*?)(?=\n\n|\Z)", r"```pycon\n\1\n```", marked, flags=re.MULTILINE | re.DOTALL)


GENERATED: dict[str, Callable[[], str]] = {
    "commands": list_commands,
    "exit-codes": list_exit_codes,
    "reasons": list_reasons,
    "metrics": list_metrics,
    "properties": list_properties,
    "lookup-options": list_lookup_options,
    "policies": list_policies,
    "python": list_api,
}
