"""How much work a solve has done, and when it must end."""

from __future__ import annotations

from wainwright.scheduling.plan import SolveBudget


class BudgetSpent(Exception):
    """The solve has done as much as it may; what is decided by then stands."""


class Meter:
    """Counts work: candidates looked at. Raises BudgetSpent beyond the budget, or when the emergency stop is pulled."""

    def __init__(self, budget: SolveBudget) -> None:
        self.work = 0
        self.spent = False
        self.stopped = False
        self._limit = budget.work_units
        self._stop = budget.stop

    def spend(self, units: int) -> None:
        self.work += units
        if self.work > self._limit:
            self.spent = True
            raise BudgetSpent

    def check(self) -> None:
        """Ask the emergency stop; worth calling every few milliseconds."""
        if self._stop is not None and self._stop():
            self.spent = self.stopped = True
            raise BudgetSpent
