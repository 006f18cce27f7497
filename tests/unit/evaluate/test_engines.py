"""Engines as processes: what they answer, and what is left when they do not."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from draftkiln.errors import EngineError
from draftkiln.evaluate import engines, serve
from draftkiln.evaluate.engines import Request
from draftkiln.evaluate.job import GREEDY, Job, Question, Sampling
from draftkiln.stagelog import Terminal

pytestmark = pytest.mark.slow


def job(target: Path) -> Job:
    return Job(
        target=str(target),
        draft="draft",
        num_draft_tokens=3,
        sets=[("two", [Question([1, 2]), Question([5])]), ("one", [Question([9])])],
        samplings=[GREEDY, Sampling(0.8, 0.9, 40)],
        max_tokens=4,
        ignore_eos=False,
        dtype="float32",
        device="cpu",
        tensor_parallel_size=1,
        trust_remote_code=False,
        load_format="auto",
    )


def drafted(target: Path, folder: Path, asked: Job | None = None) -> Request:
    return Request("with the draft", asked or job(target), folder / "drafted.json")


def terminal() -> Terminal:
    return Terminal(io.StringIO())


def test_every_set_is_answered_once_for_each_way_of_sampling_and_counted_apart(stub_vllm: Path, tmp_path: Path):
    found = engines.answer(drafted(stub_vllm, tmp_path), terminal())
    assert [(one.set, str(one.sampling)) for one in found.rounds] == [
        ("two", "greedy"),
        ("one", "greedy"),
        ("two", "temperature 0.8, top_p 0.9, seed 40"),
        ("one", "temperature 0.8, top_p 0.9, seed 40"),
    ]
    assert found.rounds[0].outputs == [[[1, 2, 3, 4]], [[5, 6, 7, 8]]]
    assert [answer[-1] for answer in found.rounds[2].answers] == [40, 41]  # a seed of its own for each prompt
    assert [one.counters["drafts"] for one in found.rounds] == [20, 10, 20, 10]
    assert found.rounds[1].counters["accepted_per_position"] == [8, 5, 2]


def test_further_turns_are_asked_after_the_engines_own_answers_and_counted_with_the_first(
    stub_vllm: Path, tmp_path: Path
):
    said = Question([50], [{"role": "user", "content": "50"}], ["60", "70"], least=20)
    asked = replace(job(stub_vllm), sets=[("mt", [Question([1]), said])], samplings=[GREEDY], max_tokens=2)
    asked = replace(asked, template_arguments={"thinking": False})
    found = engines.answer(Request("alone", asked, tmp_path / "a.json"), terminal())
    assert found.rounds[0].outputs == [[[1, 2]], [[50, 51], [60, 61], [70, 71]]]
    assert (found.rounds[0].tokens, found.rounds[0].counters["drafts"]) == (8, 40)


def test_a_turn_that_the_answers_before_it_leave_no_room_for_is_told(stub_vllm: Path, tmp_path: Path):
    said = Question([50], [{"role": "user", "content": "50"}], ["60"], least=1)
    asked = replace(job(stub_vllm), sets=[("mt", [said])], positions=9)  # 1 of them is left for a prompt
    with pytest.raises(
        EngineError, match="set mt, prompt 0, turn 1: 2 tokens with the answers before it, at most 1 fit"
    ):
        engines.answer(drafted(stub_vllm, tmp_path, asked), terminal())


def test_the_targets_own_answers_are_kept_until_the_job_or_the_engine_changes(stub_vllm: Path, tmp_path: Path):
    asked, own = job(stub_vllm), tmp_path / "target.json"
    first, second = engines.both(asked, tmp_path, tmp_path, terminal(), environment="a")
    assert first.rounds[0].counters == {}
    assert second.rounds[0].counters["drafts"] == 20
    own.unlink()
    other = replace(asked, draft="other")
    assert engines.both(other, tmp_path, tmp_path, terminal(), environment="a")[0] == first
    assert not own.exists()
    engines.both(asked, tmp_path, tmp_path, terminal(), environment="b")
    assert own.exists()


def test_answers_of_the_target_alone_are_kept_where_the_engine_with_the_draft_dies(
    stub_vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STUB", "dies")
    with pytest.raises(EngineError, match="with the draft failed: ValueError: the worker is gone"):
        engines.both(job(stub_vllm), tmp_path, tmp_path, terminal(), environment="a")
    (tmp_path / "target.json").unlink()
    monkeypatch.delenv("STUB")
    engines.both(job(stub_vllm), tmp_path, tmp_path, terminal(), environment="a")
    assert not (tmp_path / "target.json").exists()


def test_two_engines_are_forks_of_one_process_that_imported_vllm_and_share_no_state(stub_vllm: Path, tmp_path: Path):
    engines.both(job(stub_vllm), tmp_path, tmp_path, terminal(), environment="a")
    logs = [(tmp_path / f"{name}.log").read_text() for name in ("target", "drafted")]
    assert [log.count("vllm is imported") for log in logs] == [1, 0]
    started = [line.split() for log in logs for line in log.splitlines() if line.startswith("engine")]
    assert [(number, parent) for _, number, _, parent in started] == [
        ("1", started[0][3])
    ] * 2  # the first of its process
    assert started[0][2] != started[1][2]


@pytest.mark.parametrize(
    ("behaviour", "what", "why"),
    [
        ("no start", "RuntimeError: no room for the KV cache", "ended with exit code 1"),
        ("dies", "ValueError: the worker is gone", "ended with exit code 9"),
        (
            "is killed",
            "the engine with the target with the draft was killed",
            "named no error (out of memory?); its last",
        ),
    ],
)
def test_an_engine_that_dies_is_one_line_of_cause_with_its_log_and_leaves_no_answers(
    stub_vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, what: str, why: str
):
    monkeypatch.setenv("STUB", behaviour)
    with pytest.raises(EngineError) as caught:
        engines.answer(drafted(stub_vllm, tmp_path), terminal())
    assert what in caught.value.what
    assert why in caught.value.why
    assert str(tmp_path / "drafted.log") in caught.value.why
    assert not (tmp_path / "drafted.json").exists()


def test_an_engine_slower_than_the_timeout_is_ended_with_all_its_processes(
    stub_vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STUB", "hangs")
    alone = Request("alone", job(stub_vllm), tmp_path / "a.json")
    with pytest.raises(EngineError, match="engine with the target alone failed") as caught:
        engines.answer(alone, terminal(), timeout=3)
    assert "was not done after 3 s (--timeout)" in caught.value.why
    assert b"outlives its engine" not in b"".join(_command_lines())


def _command_lines() -> list[bytes]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                found.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return found


def test_an_engine_on_a_gpu_takes_the_recipes_share_of_its_memory(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    on_gpu = replace(job(tmp_path), device="cuda", gpu_memory_utilization=0.2)
    assert serve._engine_arguments(on_gpu)["gpu_memory_utilization"] == 0.2
    assert "gpu_memory_utilization" not in serve._engine_arguments(job(tmp_path))
