"""``python -m millpond.cli COMMAND …``."""

from __future__ import annotations

from millpond.cli.main import main_entry

main_entry()
