"""The driver's loop: bounded, without barriers, and never a receipt that was not asked for."""

import itertools

import pytest

from draftkiln.errors import EngineError, StorageError
from draftkiln.extract import drive
from draftkiln.extract.manifest import Receipt


class Engine:
    """Finishes one sample a step; its sink tells what `receipt` makes of each."""

    def __init__(self, receipt=None, failure_after=None):
        self.queue, self.written, self.most, self.steps = [], [], 0, 0
        self.receipt = receipt or (lambda index, ids: Receipt(index, len(ids), 1, "c", drive.ids_checksum(ids)))
        self.failure_after = failure_after

    def add(self, index, token_ids):
        self.queue.append((index, token_ids))
        self.most = max(self.most, sum(len(ids) for _, ids in self.queue))

    def cancel(self, indices):
        self.cancelled = indices
        self.queue = [(index, ids) for index, ids in self.queue if index not in indices]

    def step(self):
        self.steps += 1
        index, ids = self.queue.pop(0)
        self.written.append(self.receipt(index, ids))
        return [index]

    def report(self):
        if self.failure_after is not None and self.steps >= self.failure_after:
            return drive.Report([], StorageError("cannot write x", why="No space left on device"))
        found, self.written = self.written, []
        return drive.Report([receipt for receipt in found if receipt])

    close = report


def prompts(count, tokens=10):
    return [(index, [index] * tokens) for index in range(count)]


@pytest.fixture(autouse=True)
def _ask_after_each_step(monkeypatch):
    monkeypatch.setattr(drive, "_REPORT_SECONDS", 0.0)


def test_the_queue_stays_full_and_bounded():
    engine, recorded = Engine(), []
    levels = []
    step = engine.step
    engine.step = lambda: (levels.append(len(engine.queue)), step())[1]
    drive.drive(engine, prompts(100), drive.Limits(55, 100, 15), recorded.extend)
    assert [receipt.index for receipt in recorded] == list(range(100))
    assert engine.most == 50
    assert set(levels[:95]) == {5}


def test_a_sample_above_the_limit_goes_alone():
    engine, recorded = Engine(), []
    drive.drive(engine, [(0, [1] * 5), (1, [1] * 500), (2, [1] * 5)], drive.Limits(55, 100, 15), recorded.extend)
    assert len(recorded) == 3
    assert engine.most == 500


def test_whole_blocks_of_the_cache_are_counted():
    assert drive.Limits(1000, 10, 100, block=16).cost(16) == 32
    assert drive.Limits(1000, 10, 100, block=16).cost(15) == 16


def test_case_29_a_failure_of_the_sink_ends_it_at_once():
    engine, recorded = Engine(failure_after=3), []
    with pytest.raises(StorageError) as caught:
        drive.drive(engine, prompts(100), drive.Limits(55, 100, 15), recorded.extend)
    assert "No space left" in caught.value.why
    assert engine.steps == 3
    assert len(recorded) == 2


@pytest.mark.parametrize(
    "receipt",
    [
        lambda index, ids: Receipt(index, len(ids) - (index == 4), 1, "c", drive.ids_checksum(ids)),
        lambda index, ids: Receipt(index, len(ids), 1, "c", drive.ids_checksum([*ids[:-1], 9] if index == 4 else ids)),
        lambda index, ids: Receipt(3 if index == 4 else index, len(ids), 1, "c", drive.ids_checksum(ids)),
    ],
    ids=["fewer rows", "other tokens", "another sample"],
)
def test_case_2_a_receipt_of_something_else_is_refused_and_not_recorded(receipt):
    recorded = []
    with pytest.raises(EngineError, match="sample [34]: the engine answered"):
        drive.drive(Engine(receipt), prompts(9), drive.Limits(55, 100, 15), recorded.extend)
    assert [receipt.index for receipt in recorded] == [0, 1, 2, 3]


def test_case_30_samples_that_were_never_written_are_an_error():
    engine = Engine(
        lambda index, ids: None if index == 7 else Receipt(index, len(ids), 1, "c", drive.ids_checksum(ids))
    )
    recorded = []
    with pytest.raises(EngineError, match="1 samples were computed but never written whole, the first is 7"):
        drive.drive(engine, prompts(9), drive.Limits(55, 100, 15), recorded.extend)
    assert len(recorded) == 8


def test_what_is_in_flight_is_finished_when_the_end_is_asked_for():
    engine, recorded = Engine(), []
    drive.drive(engine, prompts(100), drive.Limits(55, 100, 15), recorded.extend, lambda: engine.steps >= 10)
    # Two steps of 15 tokens may have begun: the three samples in them are finished, the rest is taken back.
    assert engine.cancelled == [13]
    assert [receipt.index for receipt in recorded] == list(range(13))


def test_prompts_that_come_later_are_waited_for_and_what_is_durable_is_recorded_meanwhile():
    engine, recorded, seen = Engine(), [], []

    def later():
        for index, ids in prompts(6):
            if index in {2, 5}:
                for _ in range(4):
                    yield None
                seen.append([receipt.index for receipt in recorded])
            yield index, ids

    drive.drive(engine, later(), drive.Limits(55, 100, 15), recorded.extend)
    assert [receipt.index for receipt in recorded] == list(range(6))
    assert seen[0] in ([0], [0, 1])
    assert seen[1]
    engine = Engine()
    drive.drive(engine, iter([None, None]), drive.Limits(55, 100, 15), recorded.extend)
    assert engine.steps == 0


def test_the_end_may_be_asked_for_while_no_prompt_has_come():
    asked = iter([False] * 6)
    drive.drive(Engine(), itertools.repeat(None), drive.Limits(55, 100, 15), [].extend, lambda: next(asked, True))
