"""Which replica has which samples: handed out in ranges, taken back from the dead, doubled at the end, counted once.

Nothing here knows of Ray, files or time.
"""

from __future__ import annotations

from draftkiln.scale.ranges import Ranges

_SHARE = 2
"""The part of what is pending that a round of hand-outs takes: ranges get shorter towards the end."""


class Ledger:
    """The samples of an extraction that are not durable yet.

    Args:
        unfinished: indices to compute; taken over.
        most: samples of a range.

    Attributes:
        unfinished: that nobody has delivered.
        most: samples of a range.
    """

    def __init__(self, unfinished: Ranges, most: int) -> None:
        self.unfinished = unfinished
        self._pending = Ranges(unfinished)
        self._held: dict[str, Ranges] = {}
        self._doubled = Ranges()
        """Held by two replicas; no third one gets them."""
        self.most = most

    @property
    def pending(self) -> int:
        """Samples that no replica has."""
        return len(self._pending)

    def held(self, replica: str) -> int:
        """Samples that `replica` has and nobody has delivered."""
        return len(self._held.get(replica, ()))

    def hand_out(self, replica: str, replicas: int) -> range:
        """Samples for `replica` to compute; empty when there are none for it.

        Once none is pending, a replica that has nothing left gets the later half of what another still has, which that
        one would compute last: whoever is slow is not waited for.

        Args:
            replica: that asks.
            replicas: that are at work, itself included.
        """
        held = self._held.setdefault(replica, Ranges())
        count = min(self.most, -(-len(self._pending) // (_SHARE * max(replicas, 1))))
        part = self._pending.first(count)
        if not part and not held:
            part = self._double(replica)
        self._pending.discard(part.start, part.stop)
        held.add(part.start, part.stop)
        return part

    def _double(self, replica: str) -> range:
        others = (ranges for name, ranges in self._held.items() if name != replica)
        slow = max((ranges.without(self._doubled) for ranges in others), key=len, default=Ranges())
        part = slow.last(min(self.most, -(-len(slow) // 2)))
        self._doubled.add(part.start, part.stop)
        return part

    def accept(self, index: int) -> bool:
        """Whether a delivered sample is the first of its index; it is finished then, and no later one is taken."""
        if index not in self.unfinished:
            return False
        for ranges in (self.unfinished, self._pending, self._doubled, *self._held.values()):
            ranges.discard(index, index + 1)
        return True

    def give_back(self, index: int) -> None:
        """Have a sample that was accepted be computed once more: its file is not what its receipt says."""
        self.unfinished.add(index, index + 1)
        self._pending.add(index, index + 1)

    def release(self, replica: str) -> int:
        """Take back what `replica` has, because it is gone; number of samples that nobody else has."""
        before = len(self._pending)
        for part in self._held.pop(replica, ()):
            for shared in list(self._doubled.within(part.start, part.stop)):
                self._doubled.discard(shared.start, shared.stop)
            alone = Ranges([part])
            for ranges in self._held.values():
                alone = alone.without(ranges)
            for free in alone:
                self._pending.add(free.start, free.stop)
        return len(self._pending) - before
