"""A CPU engine in one process: when, and with how many threads."""

from __future__ import annotations

import os

import pytest

from draftkiln import one_process


@pytest.mark.parametrize(
    ("device", "size", "bound", "expected"),
    [
        ("cpu", 1, None, True),
        ("cpu", 1, "auto", True),
        ("cpu", 1, "nobind", True),
        ("cpu", 1, "0-3", False),
        ("cpu", 2, None, False),
        ("cuda", 1, None, False),
    ],
)
def test_only_one_unbound_cpu_worker_shares_the_scheduler_s_process(monkeypatch, device, size, bound, expected):
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    if bound is not None:
        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", bound)
    assert one_process.possible(device, size) is expected


def test_what_the_user_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)
    assert one_process.variables() == {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "3"}


def test_two_threads_of_a_core_count_once_and_forbidden_cores_not_at_all(monkeypatch, tmp_path):
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5", 6: "2,6"}.items():
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr(one_process, "_SIBLINGS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5})
    assert one_process.cores() == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 8, 9})
    assert one_process.cores() == 3, "a host that tells nothing of siblings has one thread a core"
