"""How much a query may keep, if it is not bounded."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.policies.registry import PolicyChoice


@dataclass(frozen=True)
class Budget:
    """How many tuples may be kept, and who chooses them."""

    memory: int
    choice: PolicyChoice

    @classmethod
    def of(cls, verdict: Verdict, memory: int | None, policy: str | PolicyChoice | None) -> Budget | None:
        """The budget of a query; None for one that needs none."""
        if verdict.outcome == BOUNDED or memory is None:
            return None
        return cls(memory, policy if isinstance(policy, PolicyChoice) else PolicyChoice(policy or "auto"))
