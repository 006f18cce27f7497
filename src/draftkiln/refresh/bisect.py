"""Find the first engine build at which something breaks, asking as few builds as possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from draftkiln.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Answer:
    """What one build said; `good` is None where it could not be asked and is passed by."""

    build: str
    good: bool | None
    why: str = ""


@dataclass(frozen=True)
class Found:
    """The result: the last good build, the first bad one, those between that could not be asked, all answers."""

    good: str
    bad: str
    between: tuple[str, ...]
    answers: tuple[Answer, ...]

    @property
    def first_bad(self) -> Answer:
        """The answer of the first bad build."""
        return next(answer for answer in self.answers if answer.build == self.bad)


def span(known: Sequence[str], good: str, bad: str) -> list[str]:
    """The releases from `good` to `bad`, oldest first, without pre-releases between them.

    Raises:
        UsageError: one of them is not known, or `bad` is not later.
    """
    missing = [name for name in (good, bad) if name not in known]
    if missing:
        raise UsageError(f"no release {', '.join(missing)}", why=f"known: {', '.join(known)}", fix="name one of them")
    if Version(bad) <= Version(good):
        raise UsageError(f"--bad {bad} is not later than --good {good}", fix="exchange them")
    inside = [one for one in known if Version(good) <= Version(one) <= Version(bad)]
    return [one for one in inside if one in {good, bad} or not Version(one).is_prerelease]


def bisect(builds: Sequence[str], ask: Callable[[str], Answer]) -> Found:
    """Narrow down from the first (good) to the last (bad) of `builds`; both ends are asked first.

    A build that cannot be asked (gone, yanked) is passed by: its neighbours are asked, the nearest to the middle first.

    Raises:
        UsageError: the good end breaks or the bad end does not: there is nothing to be found between them.
    """
    answers = {builds[0]: ask(builds[0])}
    if answers[builds[0]].good is not True:
        raise UsageError(
            f"--good {builds[0]} is not good",
            why=answers[builds[0]].why or "it could not be asked",
            fix="go further back",
        )
    answers[builds[-1]] = ask(builds[-1])
    if answers[builds[-1]].good is not False:
        raise UsageError(
            f"--bad {builds[-1]} is not bad",
            why=answers[builds[-1]].why or "nothing breaks there",
            fix="name a later build, or look with --until numbers",
        )
    low, high = 0, len(builds) - 1
    while True:
        middle = (low + high) / 2
        open_ones = [place for place in range(low + 1, high) if builds[place] not in answers]
        if not open_ones:
            break
        place = min(open_ones, key=lambda one: (abs(one - middle), one))
        answer = answers[builds[place]] = ask(builds[place])
        if answer.good is True:
            low = place
        elif answer.good is False:
            high = place
    return Found(builds[low], builds[high], tuple(builds[low + 1 : high]), tuple(answers.values()))
