"""Sums that do not grow with the data say the same as the rows would."""

import statistics

from hypothesis import given
from hypothesis import strategies as st

from draftkiln.prepare.outcome import EXAMPLES, Outcome, Refusal, Sample


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30))
def test_lengths_are_those_of_the_samples(lengths):
    outcome = Outcome()
    for number, length in enumerate(lengths):
        outcome.add(Sample(f"d:{number}", list(range(length)), [1] * length))
    assert outcome.length_summary() == {
        "min": min(lengths),
        "median": statistics.median(lengths),
        "max": max(lengths),
    }
    assert (outcome.tokens, outcome.trained_tokens) == (sum(lengths), sum(lengths))
    assert outcome.trained[0] == len(lengths)


def test_a_row_of_several_samples_is_one_row():
    outcome = Outcome()
    outcome.add(Sample("d:1 part 1", [1, 2], [0, 1]), Sample("d:1 part 2", [3], [1]))
    assert (outcome.kept_rows, outcome.kept_samples, outcome.counts["split"]) == (1, 2, 1)
    assert outcome.trained == {2: 1, 3: 1}


def test_of_each_reason_the_first_rows_are_named_and_all_are_counted():
    outcome = Outcome()
    for number in range(EXAMPLES + 5):
        outcome.note(Refusal(f"d:{number}", "empty turn"))
    outcome.note(Refusal("d:99", "not JSON", "byte 3"))
    assert outcome.refused == {"empty turn": EXAMPLES + 5, "not JSON": 1}
    assert len(outcome.examples["empty turn"]) == EXAMPLES
    assert outcome.reasons() == (f"{EXAMPLES + 5} x empty turn, the first: d:0; 1 x not JSON, the first: d:99: byte 3")
    assert Outcome().length_summary() is None
