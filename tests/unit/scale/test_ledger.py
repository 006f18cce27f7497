"""The ledger under any order of hand-outs, deliveries, deaths and late deliveries: each sample once, none forgotten."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from draftkiln.scale.ledger import Ledger
from draftkiln.scale.ranges import Ranges

COUNT, MOST = 60, 7
REPLICAS = st.sampled_from(["a", "b", "c", "d"])


class Hands(RuleBasedStateMachine):
    """What each replica was given is remembered apart from the ledger, also after its death."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(Ranges([range(COUNT)]), MOST)
        self.given = {name: set() for name in "abcd"}
        self.late = set()
        self.taken = []

    @rule(replica=REPLICAS, replicas=st.integers(1, 4))
    def ask(self, replica, replicas):
        part = self.ledger.hand_out(replica, replicas)
        assert len(part) <= MOST
        assert not set(part) & set(self.taken)
        assert not set(part) & self.given[replica]
        self.given[replica] |= set(part)
        held_by = [name for name in "abcd" if set(part) & self.given[name]]
        assert len(held_by) <= 1 or not self.ledger.pending

    @rule(replica=REPLICAS, data=st.data())
    def deliver(self, replica, data):
        if self.given[replica]:
            index = data.draw(st.sampled_from(sorted(self.given[replica])))
            assert self.ledger.accept(index) == (index not in self.taken)
            self.taken.append(index) if index not in self.taken else None
            self.given[replica].discard(index)
            for name in "abcd":
                if index in self.given[name]:
                    self.late.add(index)
                    self.given[name].discard(index)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def deliver_late(self, data):
        index = data.draw(st.sampled_from(sorted(self.late)))
        assert self.ledger.accept(index) == (index not in self.taken)
        if index not in self.taken:
            self.taken.append(index)
            for name in "abcd":
                self.given[name].discard(index)

    @rule(replica=REPLICAS)
    def die(self, replica):
        gone = self.given[replica]
        others = set().union(*(self.given[name] for name in "abcd" if name != replica))
        assert self.ledger.release(replica) == len(gone - others)
        self.late |= gone
        self.given[replica] = set()

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def find_bad(self, data):
        index = data.draw(st.sampled_from(self.taken))
        self.taken.remove(index)
        self.ledger.give_back(index)

    @invariant()
    def everything_is_somewhere_exactly_once(self):
        held = set().union(*self.given.values())
        assert len(self.taken) == len(set(self.taken))
        assert self.ledger.pending == COUNT - len(self.taken) - len(held)
        assert len(self.ledger.unfinished) == COUNT - len(self.taken)
        for name in "abcd":
            assert self.ledger.held(name) == len(self.given[name])
        for index in held:
            assert sum(index in given for given in self.given.values()) <= 2


TestHands = Hands.TestCase
TestHands.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def test_ranges_get_shorter_towards_the_end():
    ledger = Ledger(Ranges([range(1000)]), most=100)
    sizes = []
    while ledger.pending:
        sizes.append(len(ledger.hand_out(f"r{len(sizes) % 4}", 4)))
    assert sizes[0] == 100
    assert sizes[-1] == 1
    assert sizes == sorted(sizes, reverse=True)


def test_an_idle_replica_gets_the_later_half_of_what_the_slowest_has_and_the_first_delivery_counts():
    ledger = Ledger(Ranges([range(16)]), most=16)
    slow = ledger.hand_out("slow", 1)
    assert list(slow) == list(range(8))
    while ledger.pending:
        ledger.hand_out("fast", 1)
    assert not ledger.hand_out("fast", 2)
    for index in range(8, 16):
        assert ledger.accept(index)
    assert ledger.hand_out("fast", 2) == range(4, 8)
    assert not ledger.hand_out("third", 3) or ledger.held("third")
    assert ledger.accept(7)
    assert not ledger.accept(7)
    assert ledger.release("fast") == 0
    assert ledger.release("slow") + ledger.release("third") == 7
    assert ledger.pending == len(ledger.unfinished) == 7
