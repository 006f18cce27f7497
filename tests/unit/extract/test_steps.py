"""Rows of a step: every token of every sample once and in order, whatever the scheduler does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftkiln.errors import EngineError
from draftkiln.extract.steps import Bookkeeping, Span, within


def ids(index):
    return lambda: b"ids of %d" % index


def schedule(lengths, budget, *, reverse):
    """Steps of at most `budget` rows as lists of (index, start, count)."""
    done = dict.fromkeys(range(len(lengths)), 0)
    while any(done[index] < lengths[index] for index in done):
        left, step = budget, []
        for index, length in enumerate(lengths):
            count = min(left, length - done[index])
            if count:
                step.append((index, done[index], count))
                done[index] += count
                left -= count
        yield step[::-1] if reverse else step


def captured(steps, lengths, kept=None):
    """Positions kept of each sample, in order."""
    kept = kept or Bookkeeping()
    found = {index: [] for index in range(len(lengths))}
    for step in steps:
        at, account, rows = 0, [], []
        for index, start, count in step:
            account.append((Span(index, at, at + count, start, lengths[index], None), ids(index)))
            rows += [(index, position) for position in range(start, start + count)]
            at += count
        for span in kept.new_rows(account):
            assert (span.token_ids is not None) == (span.start == 0)
            for offset, (index, position) in enumerate(rows[span.first : span.last]):
                assert (index, position) == (span.index, span.start + offset)
                found[index].append(position)
    return found


@pytest.mark.parametrize("budget", [7, 128])
@pytest.mark.parametrize("lengths", [[1, 7, 8, 15, 16, 33], [127, 128, 129, 500]])
@pytest.mark.parametrize("reverse", [False, True])
def test_case_2_and_6_chunks_and_any_order_of_requests_give_each_sample_its_own_rows(budget, lengths, reverse):
    found = captured(schedule(lengths, budget, reverse=reverse), lengths)
    assert found == {index: list(range(length)) for index, length in enumerate(lengths)}


def test_a_preempted_request_that_begins_anew_is_kept_once():
    steps = [[(0, 0, 5)], [(0, 0, 3)], [(0, 3, 4)], [(0, 7, 3)]]
    assert captured(steps, [10]) == {0: list(range(10))}


def test_what_is_computed_after_the_prompt_is_left_out():
    assert captured([[(0, 0, 4), (1, 0, 2)]], [3, 2]) == {0: [0, 1, 2], 1: [0, 1]}


def test_case_5_rows_that_a_prefix_cache_left_out_are_an_error():
    with pytest.raises(EngineError, match="went on at token 64, states of 0 tokens") as caught:
        captured([[(0, 64, 16)]], [80])
    assert "prefix cache" in caught.value.why


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 50), st.integers(1, 30))
def test_blocks_of_any_size_hold_every_row_of_a_step_once(lengths, budget, rows):
    for step in schedule(lengths, budget, reverse=True):
        at, spans = 0, []
        for index, start, count in step:
            spans.append(Span(index, at, at + count, start, lengths[index], b"" if start == 0 else None))
            at += count
        parts = [part for begin in range(0, at, rows) for part in within(spans, begin, min(begin + rows, at))]
        assert [row for part in parts for row in range(part.first, part.last)] == list(range(at))
        assert all((part.token_ids is not None) == (part.start == 0) for part in parts)
        wanted = [(index, position) for index, start, count in step for position in range(start, start + count)]
        got = [(part.index, part.start + k) for part in parts for k in range(part.last - part.first)]
        assert got == wanted
