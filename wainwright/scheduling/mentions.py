"""Which label keys and values the pods of a solve name: only those tell options apart."""

from __future__ import annotations

from collections.abc import Iterable

from wainwright.scheduling.requirements import Requirement


class Mentions:
    """Keys and values named by selectors, affinities and topology constraints."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] = {}

    @classmethod
    def of(cls, terms: Iterable[Iterable[Requirement]]) -> Mentions:
        """What these alternatives of requirements name."""
        mentions = cls()
        for term in terms:
            mentions.add(term)
        return mentions

    def add_key(self, key: str) -> None:
        self._values.setdefault(key, set())

    def add(self, requirements: Iterable[Requirement]) -> None:
        """Every value listed, and for a bound the numbers at its edges."""
        for each in requirements:
            values = self._values.setdefault(each.key, set())
            values |= each.values
            for bound in (each.gte, each.lte):
                if bound is not None:
                    values.add(str(bound))

    def covers(self, other: Mentions) -> bool:
        """Is everything named in `other` named here too?"""
        return all(key in self._values and values <= self._values[key] for key, values in other._values.items())

    def update(self, other: Mentions) -> None:
        for key, values in other._values.items():
            self._values.setdefault(key, set()).update(values)

    def values(self, key: str) -> set[str]:
        return self._values.get(key, set())

    def __contains__(self, key: str) -> bool:
        return key in self._values
