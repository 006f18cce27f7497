"""Answers are kept row by row, asked for again only where missing, and counted where they fail."""

import asyncio
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.errors import EngineError, ExitCode
from draftkiln.prepare import completions, server
from draftkiln.prepare.answers import Job
from draftkiln.prepare.answerstore import Answer, Prompt, Store
from draftkiln.prepare.outcome import Outcome
from draftkiln.prepare.samples import Limits
from draftkiln.recipe.model import Answers
from draftkiln.stagelog import Terminal

from .processes import wait_until_gone

PROMPTS = [Prompt(number, f"d.jsonl:{number + 1}", [1, 2, number]) for number in range(3)]


def job(store, **settings):
    return Job(Answers(**({"max_tokens": 8} | settings)), Limits(10), store, Terminal(sys.stdout))


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.integers(0, 400))
def test_answers_survive_a_crash_up_to_the_line_that_it_cut(tmp_path_factory, texts, cut):
    file = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    written = [Answer(str(number), [number], text, "stop") for number, text in enumerate(texts)]
    store = Store(file)
    for answer in written:
        store.add(answer)
    store.close()
    whole = file.read_bytes()
    file.write_bytes(whole[: max(0, len(whole) - cut)])
    again = Store(file)
    kept = list(again.answers.values())
    assert kept == written[: len(kept)]
    assert len(kept) == file.read_bytes().count(b"\n")
    again.add(written[-1])
    again.close()
    last = Store(file)
    assert last.answers["0" if len(written) == 1 else str(len(written) - 1)] == written[-1]
    last.close()


def test_only_missing_answers_are_asked_for_and_other_settings_ask_anew(tmp_path):
    store = Store(tmp_path / "a.jsonl")
    first = job(store)
    store.add(Answer(first.key(PROMPTS[1]), [7], "x", "stop"))
    assert first.missing(PROMPTS) == [PROMPTS[0], PROMPTS[2]]
    assert job(store, temperature=0.7).missing(PROMPTS) == PROMPTS
    assert job(store, concurrency=3).missing(PROMPTS) == [PROMPTS[0], PROMPTS[2]]
    store.close()


def test_samples_are_the_prompt_and_the_answers_ids_and_failed_rows_are_refused_with_the_reason(tmp_path):
    store = Store(tmp_path / "a.jsonl")
    made = job(store)
    store.add(Answer(made.key(PROMPTS[0]), [7, 8], "x", "stop"))
    store.add(Answer(made.key(PROMPTS[1]), [7] * 7, "x", "length"))
    made.failed[PROMPTS[2].source] = "the server answered 500"
    outcome = Outcome()
    made.into_samples(PROMPTS, outcome)
    assert [(sample.input_ids, sample.loss_mask) for sample in outcome.samples] == [
        ([1, 2, 0, 7, 8], [0, 0, 0, 1, 1]),
        ([1, 2, 1] + [7] * 7, [0] * 3 + [1] * 7),
    ]
    assert [(row.source, row.reason, row.detail) for row in outcome.refusals] == [
        ("d.jsonl:3", "no answer written", "the server answered 500")
    ]
    assert outcome.counts["answers cut at their limit"] == 1
    store.close()


def test_a_request_sends_ids_within_the_room_and_a_seed_of_its_row():
    body = completions.request(PROMPTS[2], Answers(max_tokens=8, seed=40), room=5)
    assert body["prompt"] == [1, 2, 2]
    assert (body["max_tokens"], body["seed"], body["return_token_ids"]) == (5, 42, True)


def test_a_request_is_tried_again_as_often_as_the_recipe_says(monkeypatch):
    monkeypatch.setattr(completions, "_FIRST_PAUSE_S", 0.0)
    tries = []

    async def ask():
        tries.append(1)
        if len(tries) < 3:
            raise EngineError("busy")
        return {"text": "x"}

    assert asyncio.run(completions.retried(ask, 2)) == {"text": "x"}
    tries.clear()
    with pytest.raises(EngineError, match="busy"):
        asyncio.run(completions.retried(ask, 1))
    assert len(tries) == 2


def fake_server(monkeypatch, program):
    monkeypatch.setattr(server, "command", lambda _target, port, **_: [sys.executable, "-c", program, str(port)])


def test_a_server_that_ends_is_told_with_its_last_error_line(monkeypatch, tmp_path):
    fake_server(monkeypatch, "import sys; print('starting'); raise ValueError('no such model')")
    log = tmp_path / "server.log"
    with (
        pytest.raises(EngineError) as caught,
        server.running(tmp_path, log, max_model_len=8, max_num_seqs=1),
    ):
        pytest.fail("it never ran")
    assert "exit code 1" in str(caught.value)
    assert "ValueError: no such model" in str(caught.value)
    assert str(log) in str(caught.value)


HEALTHY = """
import http.server, os, subprocess, sys
print("child", subprocess.Popen(["sleep", "600"]).pid, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_and_what_it_started_are_stopped_also_after_an_error(monkeypatch, tmp_path):
    fake_server(monkeypatch, HEALTHY)
    log = tmp_path / "server.log"
    with pytest.raises(KeyError), server.running(tmp_path, log, max_model_len=8, max_num_seqs=1) as port:
        raise KeyError(port)
    child = int(next(line for line in log.read_text().splitlines() if line.startswith("child")).split()[1])
    wait_until_gone(child)


def test_a_server_has_the_variables_it_was_given_ahead_of_the_stage_s_own(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    fake_server(monkeypatch, "import os; print('threads', os.environ['OMP_NUM_THREADS'])" + HEALTHY)
    log = tmp_path / "server.log"
    with server.running(tmp_path, log, max_model_len=8, max_num_seqs=1, variables={"OMP_NUM_THREADS": "2"}):
        pass
    assert "threads 2\n" in log.read_text()


def test_a_server_is_stopped_when_the_stage_is_terminated(tmp_path):
    program = f"""
import sys, time
from pathlib import Path
from draftkiln.prepare import server
server.command = lambda _target, port, **_: [sys.executable, "-c", {HEALTHY!r}, str(port)]
with server.running(Path("."), Path({str(tmp_path / "server.log")!r}), max_model_len=8, max_num_seqs=1):
    print("ready", flush=True)
    time.sleep(60)
"""
    stage = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert stage.stdout is not None
    assert stage.stdout.readline() == "ready\n"
    stage.send_signal(signal.SIGTERM)
    assert stage.wait(20) == ExitCode.TERMINATED
    stage.stdout.close()
    line = next(line for line in (tmp_path / "server.log").read_text().splitlines() if line.startswith("child"))
    wait_until_gone(int(line.split()[1]))
