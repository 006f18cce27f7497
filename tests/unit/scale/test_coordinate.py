"""Several replicas without Ray: real child processes with stub engines under the real loop."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "extract"))

import stub_extraction as stub
from local_replicas import LocalReplicas, Run, start

from draftkiln.errors import EngineError, ProblemsError, StackError, StorageError, SystemMissingError
from draftkiln.extract import manifest, samples

pytestmark = pytest.mark.slow

COUNT = 120


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run", COUNT, stub)


@pytest.fixture
def begin(request, run):
    made = []

    def make(count, **told):
        made.append(LocalReplicas(start(run.run, **told), count))
        return made[-1]

    yield make
    for replicas in made:
        replicas.close()


@pytest.mark.parametrize("count", [1, 3])
def test_what_comes_out_is_what_one_host_makes(run, begin, count):
    run.extract(begin(count))
    run.check()


def test_a_killed_engine_s_samples_are_handed_out_again_within_seconds(run, begin):
    replicas, killed = begin(2, pause=0.01), []

    def kill(_count):
        if not killed and (process := replicas.child(1)):
            os.kill(process, signal.SIGKILL)
            killed.append(time.monotonic())

    run.after = kill
    run.extract(replicas)
    run.check()
    assert killed
    assert any("by signal 9" in line and "handed out again" in line for line in run.told)


def test_a_replica_that_is_gone_without_a_word_loses_nothing_and_its_late_samples_are_not_taken_twice(run, begin):
    replicas, gone = begin(2, pause=0.01), []

    def lose(_count):
        if not gone:
            gone.append(next(name for name, (slot, _) in replicas.slots.items() if slot == 0))
            replicas.gone.append(gone[0])

    run.after = lose
    run.extract(replicas)
    run.check()
    assert any("is gone" in line for line in run.told)


def test_a_silent_replica_s_samples_go_to_others_and_it_may_come_back(run, begin):
    replicas, stopped = begin(2, pause=0.01), []
    exchange = None

    def freeze(_count):
        nonlocal exchange
        if not stopped:
            name, (_, actor) = next((name, one) for name, one in replicas.slots.items() if one[0] == 0)
            stopped.append(name)
            exchange = actor.exchange
            actor.exchange = lambda order: (time.sleep(1.0), exchange(order))[1]

    run.after = freeze
    run.extract(replicas, silent_seconds=0.7)
    run.check()
    assert any("is silent" in line for line in run.told)


def test_the_slow_are_not_waited_for(run, begin):
    replicas = begin(2, pause=0.004, slow=["0"], slower=2000)
    began = time.monotonic()
    run.extract(replicas, most=20)
    run.check()
    # One step of the slow one alone takes 8 s, and it was given several.
    assert time.monotonic() - began < 7 + COUNT * 0.1


def test_a_host_with_another_stack_is_refused_by_name_and_the_others_go_on(run, begin):
    replicas = begin(2, identity={"1": {"requirements": "r", "patched_tree": "another"}})
    run.extract(replicas)
    run.check()
    host = os.uname().nodename
    wanted = f"host {host} is refused: it runs on another stack: patched_tree: 't' wanted, 'another' there"
    assert any(wanted in line for line in run.told)


def test_where_every_host_is_refused_the_run_ends_with_the_reason(run, begin):
    with pytest.raises(ProblemsError) as caught:
        run.extract(begin(1, identity={"0": {"requirements": "x", "patched_tree": "t"}}))
    assert isinstance(caught.value.problems[0], StackError)
    assert "requirements: 'r' wanted, 'x' there" in str(caught.value)


def test_case_29_a_failure_that_comes_again_and_again_empties_the_slot_and_its_cause_is_told(run, begin):
    with pytest.raises(ProblemsError) as caught:
        run.extract(begin(1, fail=["0"]))
    assert isinstance(caught.value.problems[0], StorageError)
    assert "No space left on device" in str(caught.value)
    assert sum("handed out again" in line for line in run.told) == 3
    with pytest.raises(ProblemsError) as caught:
        run.extract(begin(1, die_at_start=["0"]))
    assert isinstance(caught.value.problems[0], EngineError)


def test_a_disk_without_room_gets_nothing_until_there_is_some(run, begin):
    replicas, reports = begin(1), []
    exchange = None

    def measured(order):
        reply = exchange(order)
        reports.append(reply.state)
        if reports.count("ready") < 4:
            reply.free_bytes = 4000
        return reply

    actor = next(iter(replicas.slots.values()))[1]
    exchange, actor.exchange = actor.exchange, measured
    run.extract(replicas)
    run.check()
    assert any("it gets no more until there is room" in line for line in run.told)


def test_a_run_without_room_or_without_hosts_ends_with_the_reason(run, begin):
    with pytest.raises(StorageError, match="no host had room"):
        run.extract(begin(1), reserve_bytes=1 << 60, idle_seconds=1.0)
    empty = begin(1)
    empty.poll = lambda _seconds: (time.sleep(0.05), [])[1]
    with pytest.raises(SystemMissingError, match="no replica came"):
        run.extract(empty, idle_seconds=0.3)


def test_asked_to_end_it_finishes_what_is_in_flight_and_the_next_start_goes_on(run, begin):
    end = threading.Event()
    run.after = lambda _count: end.set()
    run.extract(begin(2, pause=0.01), stopping=end.is_set)
    done = manifest.read(run.path).receipts
    assert 0 < len(done) < COUNT
    assert {file.name for file in run.folder.iterdir()} == {samples.name(index) for index in done}
    times = {index: (run.folder / samples.name(index)).stat().st_mtime_ns for index in done}
    run.after = lambda _count: None
    run.extract(begin(2))
    run.check()
    assert all((run.folder / samples.name(index)).stat().st_mtime_ns == then for index, then in times.items())


def test_a_file_that_is_not_what_its_receipt_says_is_made_again(run, begin):
    replicas, cut = begin(1), []
    actor = next(iter(replicas.slots.values()))[1]
    exchange = actor.exchange

    def damaged(order):
        reply = exchange(order)
        if reply.receipts and not cut:
            cut.append(reply.receipts[0].index)
            (actor._folder / samples.FOLDER / samples.name(cut[0])).write_bytes(b"x")
        return reply

    actor.exchange = damaged
    run.extract(replicas)
    run.check()
    assert run.wrong == set(cut)
    assert any(f"the file of sample {cut[0]} is not what its receipt says" in line for line in run.told)
