"""Kills at any moment: nothing that was recorded is lost, nothing is doubled, nothing torn is taken for a sample.

`DRAFTKILN_KILLS=200` kills so often; the default suits CI.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stub_extraction as stub

from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, samples

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("DRAFTKILN_KILLS", "40"))
SAMPLES = 300
PROGRAM = [sys.executable, str(Path(stub.__file__))]


def start(run, *options, count=SAMPLES):
    return subprocess.Popen(
        [*PROGRAM, run, str(count), *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def worker_of(process):
    for line in process.stdout:
        if line.startswith("worker "):
            return int(line.split()[1])
    return None


def finish(run):
    """Let it end undisturbed and compare every file with what must be in it."""
    process = start(run)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = manifest.read(run / manifest.FILE)
    assert sorted(found.receipts) == list(range(SAMPLES))
    assert {file.name for file in (run / samples.FOLDER).iterdir()} == {samples.name(i) for i in range(SAMPLES)}
    for index, receipt in found.receipts.items():
        path = run / samples.FOLDER / samples.name(index)
        assert path.read_bytes() == stub.file_bytes(index)
        assert receipt.checksum == samples.checksum(path)


def recorded(run):
    """Samples that are recorded, with the time of their files."""
    path = run / manifest.FILE
    if not path.exists():
        return {}
    lines = path.read_bytes().split(b"\n")[1:-1]
    assert len(lines) == len(set(lines))
    folder = run / samples.FOLDER
    return {index: (folder / samples.name(index)).stat().st_mtime_ns for index in manifest.read(path).receipts}


def test_kills_from_outside_lose_double_and_corrupt_nothing(tmp_path):
    chance = random.Random(int(os.environ.get("DRAFTKILN_KILL_SEED", "5")))
    killed, run, number = 0, tmp_path / "0", 0
    before = {}
    while killed < KILLS:
        process = start(run)
        worker = worker_of(process)
        # Some before the sink has begun, most while it writes.
        time.sleep(chance.choice([0.0, chance.uniform(0, 0.05), chance.uniform(0, 0.4)]))
        victim = chance.choice([process.pid, worker, -process.pid])
        if victim is not None:
            try:
                os.killpg(-victim, signal.SIGKILL) if victim < 0 else os.kill(victim, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        process.communicate(timeout=60)
        after = recorded(run)
        assert before.items() <= after.items()
        before = after
        if process.returncode == 0:
            finish(run)
            number += 1
            run, before = tmp_path / str(number), {}
    finish(run)
    assert before.items() <= recorded(run).items()


@pytest.mark.parametrize("count", [1, 7, 40])
@pytest.mark.parametrize(
    ("victim", "at"), [("worker", "write"), ("worker", "rename"), ("worker", "fsync"), ("driver", "append")]
)
def test_a_kill_inside_a_write_a_rename_a_sync_or_an_append(tmp_path, victim, at, count):
    if at == "append" and count > 7:
        pytest.skip("there are not so many")
    process = start(tmp_path / "run", "--die", victim, "--at", at, "--count", count)
    _, errors = process.communicate(timeout=60)
    if victim == "driver":
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == ExitCode.ENGINE, errors
        assert "SIGKILL" in errors
        assert "Traceback" not in errors
    before = recorded(tmp_path / "run")
    finish(tmp_path / "run")
    assert before.items() <= recorded(tmp_path / "run").items()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_whole_group_finishes_what_is_in_flight(tmp_path, number, code):
    process = start(tmp_path / "run", count=5000)
    worker_of(process)
    while not recorded(tmp_path / "run"):
        time.sleep(0.02)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    done = recorded(tmp_path / "run")
    assert 0 < len(done) < 5000
    # Whole files and their receipts, nothing begun.
    assert {file.name for file in (tmp_path / "run" / samples.FOLDER).iterdir()} == {samples.name(i) for i in done}
