"""``millpond completion``: scripts for shells, made from the options of the commands.

The scripts hold all names, so completing a word starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millpond.cli.command import Command
from millpond.cli.exits import ExitCode
from millpond.policies.registry import Use, policy_names

# The kinds of values, by the placeholder in the help; others are not completed.
_FILES = ("FILE", "FILE.sql")
_FOLDERS = ("DIR",)


@dataclass(frozen=True)
class _Option:
    """An option, or an argument (without a name): its help, and the values to choose from."""

    name: str
    help: str
    takes_value: bool
    values: tuple[str, ...] = ()
    metavar: str = ""


@dataclass(frozen=True)
class _Completed:
    """A command with its options and its first argument."""

    name: str
    help: str
    options: tuple[_Option, ...]


def _list_commands() -> list[_Completed]:
    from millpond.cli.main import COMMANDS

    found = []
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=name)
        command.add_arguments(parser)
        found.append(_Completed(name, command.help, tuple(_list_options(parser))))
    return found


def _list_options(parser: argparse.ArgumentParser) -> Iterator[_Option]:
    for action in parser._actions:
        values = tuple(map(str, action.choices or ()))
        if "--policy" in action.option_strings:
            values = tuple(dict.fromkeys([*policy_names(Use.RUN), *policy_names(Use.LOOKUP)]))
        takes_value = action.nargs != 0
        help_ = (action.help or "").partition(";")[0] if action.help != argparse.SUPPRESS else ""
        for option in action.option_strings or [""]:
            yield _Option(option, help_, takes_value, values, str(action.metavar or ""))


# --- scripts -------------------------------------------------------------------------------------------


def _write_bash() -> str:
    cases = []
    for command in _list_commands():
        for option in command.options:
            if option.name and option.takes_value:
                cases.append(f"        {command.name}:{option.name}) {_complete_bash(option)} ;;")
        names = " ".join(option.name for option in command.options if option.name)
        cases.append(f"        {command.name}:*) if [[ $word == -* ]]; then {_words(names)}")
        argument = next((option for option in command.options if not option.name), None)
        cases.append(f"            else {_complete_bash(argument)}; fi ;;")
    commands = " ".join(command.name for command in _list_commands())
    return "\n".join(
        [
            "_millpond() {",
            "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}",
            "    COMPREPLY=()",
            "    if ((COMP_CWORD == 1)); then " + _words(f"{commands} --help --version") + "; return; fi",
            '    case "${COMP_WORDS[1]}:$before" in',
            *cases,
            "    esac",
            "}",
            "complete -o filenames -F _millpond millpond",
            "",
        ]
    )


def _words(names: str) -> str:
    return f"""COMPREPLY=($(compgen -W "{names}" -- "$word"))"""


def _complete_bash(option: _Option | None) -> str:
    if option is not None and option.values:
        return _words(" ".join(option.values))
    if option is not None and option.metavar in (*_FILES, *_FOLDERS):
        kind = "-d" if option.metavar in _FOLDERS else "-f"
        return f"""COMPREPLY=($(compgen {kind} -- "$word"))"""
    return ":"


def _write_zsh() -> str:
    lines = ["#compdef millpond", "", "_millpond() {", "  local -a commands=("]
    lines += [f"    {_quote(f'{c.name}:{_escape_zsh(c.help)}')}" for c in _list_commands()]
    lines += ["  )", "  if ((CURRENT == 2)); then", "    _describe command commands", "    return", "  fi"]
    lines += ["  local command=$words[2]", "  shift words; ((CURRENT--))", "  case $command in"]
    for command in _list_commands():
        specs = [_specify_zsh(option) for option in command.options]
        lines.append(f"    {command.name}) _arguments -s {' '.join(map(_quote, specs))} ;;")
    # The file is either autoloaded as the function itself, or sourced.
    call = 'if [[ $funcstack[1] == _millpond ]]; then _millpond "$@"; else compdef _millpond millpond; fi'
    return "\n".join([*lines, "  esac", "}", "", call, ""])


def _specify_zsh(option: _Option) -> str:
    values = f"({' '.join(option.values)})" if option.values else ""
    if not values:
        values = "_files -/" if option.metavar in _FOLDERS else "_files" if option.metavar in _FILES else " "
    if not option.name:
        return f"*:{option.metavar or 'argument'}:{values}"
    value = f":{option.metavar or 'value'}:{values}" if option.takes_value else ""
    return f"{option.name}[{_escape_zsh(option.help)}]{value}"


def _escape_zsh(text: str) -> str:
    for character in "\\[]:":
        text = text.replace(character, f"\\{character}")
    return text


def _write_fish() -> str:
    lines = ["complete -c millpond -f", "complete -c millpond -n __fish_use_subcommand -l help -l version"]
    for command in _list_commands():
        start = f"complete -c millpond -n __fish_use_subcommand -a {command.name}"
        lines.append(f"{start} -d {_quote(command.help)}")
        within = f"complete -c millpond -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            lines.append(f"{within} {_specify_fish(option)}".rstrip())
    return "\n".join([*lines, ""])


def _specify_fish(option: _Option) -> str:
    values = f"-a {_quote(' '.join(option.values))}" if option.values else ""
    if not option.name:
        return values or ("-F" if option.metavar in _FILES else "")
    name = f"-l {option.name[2:]}" if option.name.startswith("--") else f"-s {option.name[1:]}"
    if option.takes_value:
        name += " -r" if option.metavar in (*_FILES, *_FOLDERS) else " -x"
    if option.metavar in (*_FILES, *_FOLDERS):
        values = "-F"
    return f"{name} {values} -d {_quote(option.help)}"


def _quote(text: str) -> str:
    """The text in single quotes, for any of the shells.

    >>> print(_quote("an option's value"))
    'an option'\\''s value'
    """
    return "'" + text.replace("'", "'\\''") + "'"


_WRITERS: dict[str, Callable[[], str]] = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}


def write_completion(shell: str) -> str:
    """The script that completes the commands, options and values in a shell."""
    return _WRITERS[shell]()


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=tuple(_WRITERS), help="bash, zsh or fish")


def _run(arguments: argparse.Namespace) -> ExitCode:
    print(write_completion(arguments.shell), end="")
    return ExitCode.OK


COMPLETION = Command(
    "Print a script that completes commands, options and file names in a shell.",
    _add_arguments,
    _run,
    examples=(
        ("completion bash > ~/.local/share/bash-completion/completions/millpond", "for bash"),
        ('completion zsh > "${fpath[1]}/_millpond"', "for zsh"),
        ("completion fish > ~/.config/fish/completions/millpond.fish", "for fish"),
    ),
)
