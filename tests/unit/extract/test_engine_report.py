"""Replies of the ranks: exactly one reports, in plain values, and a failure keeps what, why and fix."""

import pytest

from draftkiln.errors import EngineError, StorageError
from draftkiln.extract.engine import report_of
from draftkiln.extract.manifest import Receipt

REPLY = {"receipts": [[3, 5, 100, "c", "t"]], "failure": None}


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("writes", [0, 1])
def test_case_71_the_one_rank_that_writes_is_heard(ranks, writes):
    replies = [None] * ranks
    replies[writes % ranks] = REPLY
    assert report_of(replies).receipts == [Receipt(3, 5, 100, "c", "t")]


@pytest.mark.parametrize("replies", [[None], [None, None], [REPLY, REPLY]])
def test_case_71_none_or_several_are_refused(replies):
    with pytest.raises(EngineError, match="exactly one must"):
        report_of(replies)


@pytest.mark.parametrize(("kind", "error"), [("storage", StorageError), ("engine", EngineError)])
def test_a_failure_of_the_worker_arrives_as_the_same_error(kind, error):
    found = report_of([{"receipts": [], "failure": [kind, "cannot write x", "No space left on device", "make room"]}])
    assert type(found.failure) is error
    assert str(found.failure) == "cannot write x\n  why: No space left on device\n  do:  make room"
