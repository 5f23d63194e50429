"""Scripts that complete words in shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from millpond.cli.completion import write_completion
from millpond.cli.main import COMMANDS

CASES = {
    "ch": "check",
    "run --m": "--metrics --master --memory",
    "run q.sql --policy l": "lru lfu",
    "check --format g": "github",
    "check qu": "query.sql",
    "run --output fo": "folder",
    "lab fig19": "fig19",
    "completion ": "bash zsh fish",
    "run --memory ": "",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_values_and_files(tmp_path: Path) -> None:
    (tmp_path / "query.sql").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "complete.bash").write_text(write_completion("bash"))
    calls = [
        f"COMP_WORDS=(millpond {line.rstrip()} {'' if line.strip() == line else chr(34) * 2})"
        for line in CASES
    ]
    steps = "; ".join(
        f"{c}; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _millpond; echo ${{COMPREPLY[*]}}" for c in calls
    )
    script = f"source complete.bash; {steps}"
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.stderr, ended.stdout.splitlines()) == ("", list(CASES.values()))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_command_and_option_is_in_the_script(shell: str) -> None:
    script = write_completion(shell)
    assert all(f"{name}" in script for name in COMMANDS)
    assert ("--memory[" if shell == "zsh" else "-l memory ") in script
    assert script.count("'") % 2 == 0
