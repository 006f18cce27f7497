"""Extraction on the real engine, ended at bad moments: a kill of driver or engine, SIGTERM; then resumed.

Steps are shorter than most pairs of samples, so samples are split over steps all the time. `DRAFTKILN_ENGINE_KILLS=10`
kills so often at random moments; the default suits CI.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, samples

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[3]
SAMPLES, TOKENS = 300, 128
KILLS = int(os.environ.get("DRAFTKILN_ENGINE_KILLS", "2"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kills")
    content = yaml.safe_load((ROOT / "recipes" / "tiny-cpu.yaml").read_text())
    content["name"] = "kills"
    content["target"]["source"] = {"make": "small", "seed": 17}
    content["data"] |= {"source": {"synthetic": SAMPLES, "seed": 1}, "max_tokens": TOKENS, "held_out": 16}
    content["extract"]["token_budget"] = 200
    file = folder / "kills.yaml"
    file.write_text(yaml.safe_dump(content))
    done = stage("prepare", file, folder / "run").communicate()
    assert (folder / "run" / "prepare" / "stage.json").exists(), done
    return file, folder / "run"


def stage(name, file, run, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "draftkiln", name, "--recipe", str(file), "--run", str(run), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        start_new_session=True,
    )


def recorded(run):
    """Index -> time of the file, of all samples with a receipt."""
    path, folder = run / "extract" / manifest.FILE, run / "extract" / samples.FOLDER
    if not path.exists():
        return {}
    return {index: (folder / samples.name(index)).stat().st_mtime_ns for index in manifest.read(path).receipts}


def lines(run):
    """Receipts as they were written; none may be there twice."""
    path = run / "extract" / manifest.FILE
    return path.read_bytes().split(b"\n")[1:-1] if path.exists() else []


def midway(process, run, before):
    """Wait until samples came that were not there before."""
    while len(recorded(run)) <= len(before):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def engine_of(process):
    """The engine's process: the child that holds the most memory."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return max(map(int, children), key=lambda pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]))


def test_kills_and_a_signal_lose_nothing_and_what_is_made_after_them_is_right(prepared):
    file, run = prepared
    before = {}

    process = stage("extract", file, run)
    midway(process, run, before)
    process.kill()
    process.communicate()
    after = recorded(run)
    assert 0 < len(after) < SAMPLES
    before = after

    process = stage("extract", file, run)
    midway(process, run, before)
    os.kill(engine_of(process), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.ENGINE, errors
    assert "Traceback" not in errors
    after = recorded(run)
    assert before.items() <= after.items()
    before = after

    process = stage("extract", file, run)
    midway(process, run, before)
    # As a shell does it: the whole group, the engine's processes included.
    os.killpg(process.pid, signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.TERMINATED, errors + output
    after = recorded(run)
    assert before.items() <= after.items()
    assert {path.name for path in (run / "extract" / samples.FOLDER).iterdir()} == {samples.name(i) for i in after}
    before = after

    process = stage("extract", file, run)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert f"{SAMPLES - len(before)} of {SAMPLES} samples to do" in output
    after = recorded(run)
    assert before.items() <= after.items()
    assert sorted(after) == list(range(SAMPLES))

    process = stage("validate", file, run)
    output, errors = process.communicate()
    assert process.returncode == 0, errors


def test_an_altered_sample_is_found_by_the_full_check_and_made_again(prepared):
    file, run = prepared
    if not (run / "extract" / "stage.json").exists():
        pytest.skip("extraction is not finished")
    path = run / "extract" / samples.FOLDER / samples.name(5)
    original = path.read_bytes()
    path.write_bytes(original[:-2] + bytes([original[-2] ^ 1, original[-1]]))
    process = stage("extract", file, run)
    output, _ = process.communicate()
    assert "done already" in output
    process = stage("extract", file, run, "--check-existing", "full")
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert f"1 of {SAMPLES} samples to do" in output
    found = manifest.read(run / "extract" / manifest.FILE).receipts[5]
    assert samples.checksum(path) == found.checksum
    assert not (run / "validate" / "stage.json").exists()


def fresh(prepared_run, run):
    """A run that is prepared and nothing more."""
    shutil.copytree(prepared_run / "prepare", run / "prepare")
    shutil.copy(prepared_run / "run.json", run)
    return run


def memory(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def descendants(pid):
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [found for child in children for found in (child, *descendants(child))]


def kill(process, victim):
    """End the driver, its engine, the worker that holds the model, or all; none of them is left to write."""
    below = descendants(process.pid)
    engine, worker = engine_of(process), max(below, key=memory)
    pids = {"driver": [process.pid], "engine": [engine], "worker": [worker], "all": [process.pid, engine, worker]}
    for pid in dict.fromkeys(pids[victim]):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=120)
    for _ in range(100):
        left = [pid for pid in (engine, worker) if Path(f"/proc/{pid}").exists()]
        if not left:
            return
        time.sleep(0.1)
    pytest.fail(f"{left} of {engine, worker} outlived the end of {victim}")


def test_kills_at_random_moments_lose_double_and_corrupt_nothing(prepared, tmp_path):
    file, prepared_run = prepared
    chance = random.Random(int(os.environ.get("DRAFTKILN_KILL_SEED", "5")))
    run, before, killed, finished = fresh(prepared_run, tmp_path / "0"), {}, 0, 0
    while killed < KILLS:
        process = stage("extract", file, run)
        midway(process, run, before)
        time.sleep(chance.uniform(0, 1.5))
        if process.poll() is None:
            victim = chance.choice(["driver", "engine", "worker", "all"])
            kill(process, victim)
            killed += 1
        else:
            finished += 1
            run, before = fresh(prepared_run, tmp_path / str(finished)), {}
            continue
        after = recorded(run)
        assert before.items() <= after.items()
        assert len(lines(run)) == len(set(lines(run)))
        print(f"kill {killed}, of {victim}: {len(before)} samples before, {len(after)} after")
        before = after
    process = stage("extract", file, run)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    after = recorded(run)
    assert before.items() <= after.items()
    assert sorted(after) == list(range(SAMPLES))
    assert len(lines(run)) == len(set(lines(run))) == SAMPLES
    process = stage("validate", file, run)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
