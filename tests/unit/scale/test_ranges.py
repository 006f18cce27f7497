"""A set of indices kept as ranges behaves as a set."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from draftkiln.scale.ranges import Ranges

PARTS = st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 15)), max_size=30)


def made(parts):
    found, wanted = Ranges(), set()
    for adding, start, count in parts:
        (found.add if adding else found.discard)(start, start + count)
        wanted = wanted | set(range(start, start + count)) if adding else wanted - set(range(start, start + count))
    return found, wanted


def members(ranges):
    return {index for part in ranges for index in part}


@given(PARTS)
def test_it_is_the_set_that_a_set_would_be_in_as_few_ranges_as_can_be(parts):
    found, wanted = made(parts)
    assert members(found) == wanted
    assert len(found) == len(wanted)
    assert all((index in found) == (index in wanted) for index in range(-1, 80))
    listed = list(found)
    assert all(before.stop < after.start for before, after in itertools.pairwise(listed))


@given(PARTS, PARTS, st.integers(0, 70), st.integers(0, 70), st.integers(1, 9))
def test_parts_of_it(one, two, start, stop, most):
    first, second = made(one), made(two)
    assert members(first[0].without(second[0])) == first[1] - second[1]
    assert {index for part in first[0].within(start, stop) for index in part} == first[1] & set(range(start, stop))
    for part, end in ((first[0].first(most), min), (first[0].last(most), max)):
        assert len(part) <= most
        assert set(part) <= first[1]
        assert (end(part) == end(first[1])) if first[1] else not part


def test_a_million_in_a_row_are_one_range():
    found = Ranges([range(1_000_000)])
    for index in range(1000):
        found.discard(index, index + 1)
    assert list(found) == [range(1000, 1_000_000)]
    assert "x" not in found
