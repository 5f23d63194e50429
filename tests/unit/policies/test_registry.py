"""The registry of policies: unique names, and every name is what its users accept."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millpond.engines.lookup.key_cache import create_key_cache
from millpond.errors import MillpondError
from millpond.policies.registry import POLICIES, PolicyChoice, PolicyKind, Use, policy_info, policy_names


def test_names_and_labels_are_unique() -> None:
    assert len({info.name for info in POLICIES}) == len({info.label for info in POLICIES}) == len(POLICIES)


def test_every_policy_is_offered_somewhere_and_described_in_a_line() -> None:
    for info in POLICIES:
        assert info.uses and 0 < len(info.description) < 80


def test_kinds_follow_from_the_uses() -> None:
    assert policy_info("life").kind is PolicyKind.JOINING
    assert policy_info("arc").kind is PolicyKind.CACHING
    assert policy_info("lru").kind is PolicyKind.BOTH


@pytest.mark.parametrize("name", policy_names(Use.RUN))
def test_joins_on_a_budget_accept_their_policies(name: str) -> None:
    assert PolicyChoice(name).name == name


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(MillpondError, match="there is no policy 'best'") as refused:
        PolicyChoice("best")
    assert "auto, heeb, prob" in str(refused.value.remedy)


@pytest.mark.parametrize("name", policy_names(Use.LOOKUP))
def test_lookups_accept_their_policies(name: str) -> None:
    assert create_key_cache(name, 3, numeric=True).rows == 0


def test_the_registry_imports_no_policy() -> None:
    """The command line reads it for its help text, and must start quickly."""
    code = "import sys, millpond.policies.registry; print('\\n'.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [name for name in found.stdout.split() if name.startswith(("millpond.policies.", "numba"))]
    assert modules == ["millpond.policies.registry"]
