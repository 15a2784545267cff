"""What the rounds of a run with noised sums spend."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coterie.math.accounting import Accountant, Release, epsilon_of


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run spends.

    Args:
        each: the release of one round.
        delta: the guarantee is ``(epsilon, delta)``.
        accountant: that computes epsilon.
        before: releases before the first round, such as those of a cold start.
    """

    each: Release
    delta: float
    accountant: Accountant
    before: tuple[Release, ...] = ()

    def epsilon(self, rounds: int) -> float:
        """What so many rounds cost, with what was released before them."""
        spent = (*self.before, replace(self.each, count=rounds))
        return epsilon_of(spent, self.delta, self.accountant)
