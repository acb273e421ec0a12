"""Pods that follow wishes with a lag: closes the loop when a load is replayed for which no pod counts were recorded."""

from __future__ import annotations

import msgspec


class PodModel(msgspec.Struct, frozen=True, kw_only=True):
    """lag_s: seconds from a wish to a ready pod; pods go at once. min_scale, max_scale: bounds on what is wished (max
    0: none). ready: pods ready now. coming: (second they become ready at, how many), oldest first.
    """

    lag_s: float
    min_scale: int = 0
    max_scale: int = 0
    ready: int = 0
    coming: tuple[tuple[float, int], ...] = ()

    def at(self, t: float) -> PodModel:
        """As of t: what was due has become ready."""
        due = sum(count for at, count in self.coming if at <= t)
        return msgspec.structs.replace(
            self, ready=self.ready + due, coming=tuple(one for one in self.coming if one[0] > t)
        )

    def wished(self, t: float, wish: int) -> PodModel:
        """After a wish at t, within the bounds. Of fewer, those that are still coming go first, the newest of them."""
        if 0 < self.max_scale < wish:
            wish = self.max_scale
        wish = max(wish, self.min_scale)
        surplus = self.ready + sum(count for _, count in self.coming) - wish
        if surplus < 0:
            return msgspec.structs.replace(self, coming=(*self.coming, (t + self.lag_s, -surplus)))
        coming = []
        for at, count in reversed(self.coming):
            gone = min(surplus, count)
            surplus -= gone
            if count > gone:
                coming.append((at, count - gone))
        return msgspec.structs.replace(self, ready=self.ready - surplus, coming=tuple(reversed(coming)))
