"""Numbers of a command line that count something."""

import argparse

import pytest

from draftkiln.counts import positive


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "many", "\u0663"])
def test_what_counts_nothing_is_refused_by_its_words(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number above 0"):
        positive(text)
    assert positive("12") == 12
