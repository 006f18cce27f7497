"""A server that runs, measured through its counters: a stand-in that answers as vLLM's does, or does not."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from draftkiln.cli import main
from draftkiln.errors import ExitCode

NAMES = ("drafts", "draft_tokens", "accepted_tokens")


class Stub(ThreadingHTTPServer):
    """Counts as a server with three draft tokens that accepts 2 of 3, then 1, then none, and so on."""

    daemon_threads = True

    def __init__(self, **behaviour):
        super().__init__(("127.0.0.1", 0), Handler)
        self.drafting, self.dies_after, self.slow, self.lossy, self.ids, self.foreign = True, None, 0.0, False, True, 0
        self.__dict__.update(behaviour)
        self.lock, self.requests, self.generated, self.steps, self.keys = threading.Lock(), [], 1000, 100, set()

    def handle_error(self, request, client_address):
        """A client that went away is what some tests are about."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def metrics(self):
        labels = '{engine="0",model_name="m"}'
        lines = [f"vllm:generation_tokens_total{labels} {float(self.generated)}"]
        if self.drafting:
            values = (self.steps, 3 * self.steps, self.steps)
            lines += [
                f"vllm:spec_decode_num_{name}_total{labels} {value}" for name, value in zip(NAMES, values, strict=True)
            ]
            for place, share in enumerate((0.5, 0.3, 0.2)):
                at = labels.replace("}", f',position="{place}"}}')
                lines.append(f"vllm:spec_decode_num_accepted_tokens_per_pos_total{at} {self.steps * share}")
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        """Say nothing."""

    def do_GET(self):
        pages = {
            "/metrics": self.server.metrics(),
            "/v1/models": json.dumps({"data": [{"id": "m"}]}),
            "/version": json.dumps({"version": "0.32.0"}),
        }
        self._send(pages[self.path])

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests.append((self.path, body))
            server.keys.add(self.headers.get("Authorization"))
            count = len(server.requests)
        if server.dies_after is not None and count > server.dies_after:
            server.socket.close()
            self.connection.close()
            return
        time.sleep(server.slow)
        if body["max_tokens"] > 5000:
            self._send(json.dumps({"message": "max_tokens is too large"}), 400)
            return
        ids = [7, 8, 9, 10][: body["max_tokens"]]
        text = "a b c d"
        if server.lossy is True or (server.lossy and len(body.get("messages", ())) > 1):
            ids, text = [7, 8, 66, 10], "a b x d"
        with server.lock:
            server.generated += len(ids) + server.foreign
            server.steps += 10
        choice = {"text": text} if self.path == "/v1/completions" else {"message": {"content": text}}
        if server.ids:
            choice["token_ids"] = ids
        self._send(json.dumps({"choices": [choice], "usage": {"completion_tokens": len(ids)}}))

    def _send(self, text, status=200):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


@contextlib.contextmanager
def stub(**behaviour):
    server = Stub(**behaviour)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def questions(tmp_path: Path) -> str:
    file = tmp_path / "q.jsonl"
    file.write_text('{"turns": ["Why?", "Shorter."]}\n{"turns": ["How?"]}\n{"turns": ["When?"]}\n')
    return f"mt=mt-bench:{file}"


def test_acceptance_is_what_the_counters_gained_and_the_result_file_says_on_what(questions, tmp_path, capsys):
    out = tmp_path / "result.json"
    with stub() as server:
        words = ["evaluate", "--url", server.url, "--set", questions, "--out", str(out), "--fail-under", "1.9"]
        assert main(words) == ExitCode.OK
    report = json.loads(out.read_text())
    (one,) = report["sets"]
    assert (one["acceptance_length"], one["acceptance_per_position"]) == (2.0, [0.5, 0.3, 0.2])
    assert (one["drafts"], one["num_draft_tokens"], one["prompts"], one["answers"], one["tokens"]) == (40, 3, 3, 4, 16)
    assert (one["lossless"], one["tokens_per_second_alone"], one["tokens_for_others"]) == (None, None, 0)
    assert (report["model"], report["vllm"], len(one["file_sha256"])) == ("m", "0.32.0", 64)
    path, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert (body["temperature"], body["return_token_ids"], body["model"]) == (0.0, True, "m")
    assert body["messages"][0]["content"] in {"Why?", "How?", "When?"}
    (second,) = [body["messages"] for _, body in server.requests if len(body["messages"]) > 1]
    assert [one["role"] for one in second] == ["user", "assistant", "user"]
    assert [one["content"] for one in second] == ["Why?", "a b c d", "Shorter."]  # the server's own first answer
    told = capsys.readouterr().out
    assert "mt (3 prompts, 4 turns, greedy): acceptance length 2.000 (0.50, 0.30, 0.20; 40 drafts" in told


def test_several_sets_sampling_and_token_ids_are_asked_for_as_named(questions, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    ids, out = tmp_path / "ids.jsonl", tmp_path / "result.json"
    ids.write_text('{"prompt_token_ids": [1, 2]}\n{"prompt_token_ids": [3]}\n')
    with stub() as server:
        words = ["evaluate", "--url", f"{server.url}/v1/", "--set", questions, "--set", f"ids=messages:{ids}"]
        words += ["--temperature", "0.8", "--seed", "40", "--limit", "2", "--ignore-eos", "--concurrency", "1"]
        assert main([*words, "--out", str(out)]) == ExitCode.OK
    assert server.keys == {"Bearer secret"}
    assert [path for path, _ in server.requests] == (["/v1/chat/completions"] * 3 + ["/v1/completions"] * 2) * 2
    assert [body.get("seed") for _, body in server.requests] == [None] * 5 + [40, 40, 41, 40, 41]
    assert server.requests[3][1]["prompt"] == [1, 2]
    assert server.requests[0][1]["ignore_eos"] is True
    found = [(one["set"], one["sampling"]["temperature"]) for one in json.loads(out.read_text())["sets"]]
    assert found == [("mt", 0.0), ("ids", 0.0), ("mt", 0.8), ("ids", 0.8)]


def test_without_a_set_the_shipped_one_is_asked(capsys):
    with stub() as server:
        assert main(["evaluate", "--url", server.url, "--limit", "4"]) == ExitCode.OK
    assert "shipped (4 prompts, greedy)" in capsys.readouterr().out


def test_an_answer_that_differs_in_the_second_turn_alone_is_told_with_its_turn(questions, tmp_path, capsys):
    out = tmp_path / "result.json"
    with stub(lossy="second turn") as server, stub(drafting=False) as alone:
        words = ["evaluate", "--url", server.url, "--alone-url", alone.url, "--set", questions, "--out", str(out)]
        assert main(words) == ExitCode.EVALUATION
    told = capsys.readouterr().err
    assert "greedy answers to 1 prompts change when the draft is used" in told
    assert "prompt 0, turn 1 of set mt, after 4 equal characters" in told


def test_the_target_alone_is_measured_beside_and_must_answer_the_same(questions, tmp_path, capsys):
    out = tmp_path / "result.json"
    with stub() as server, stub(drafting=False) as alone:
        words = ["evaluate", "--url", server.url, "--alone-url", alone.url, "--set", questions, "--out", str(out)]
        assert main(words) == ExitCode.OK
    (one,) = json.loads(out.read_text())["sets"]
    assert one["lossless"] is True
    assert one["tokens_per_second_alone"] > 0
    for has_ids in (True, False):
        with stub(lossy=True, ids=has_ids) as server, stub(drafting=False, ids=has_ids) as alone:
            words = ["evaluate", "--url", server.url, "--alone-url", alone.url, "--set", questions, "--out", str(out)]
            assert main(words) == ExitCode.EVALUATION
        told = capsys.readouterr().err
        assert "greedy answers to 3 prompts change when the draft is used" in told
        assert "prompt 0 of set mt, after 4 equal characters: alone 'c d', with the draft 'x d'" in told
    assert json.loads(out.read_text())["sets"][0]["lossless"] is False


def test_fail_under_has_an_exit_code_of_its_own_after_the_result_is_written(questions, tmp_path, capsys):
    out = tmp_path / "result.json"
    with stub() as server:
        words = ["evaluate", "--url", server.url, "--set", questions, "--out", str(out), "--fail-under", "2.5"]
        assert main(words) == ExitCode.EVALUATION == 14
    assert "acceptance length under 2.5: mt 2.000" in capsys.readouterr().err
    assert out.exists()


def failed(words, tmp_path, capsys):
    out = tmp_path / "result.json"
    code = main(["evaluate", *words, "--out", str(out)])
    assert not out.exists()
    return code, capsys.readouterr().err


def test_a_server_that_dies_in_the_middle_is_told_with_how_far_it_came_and_nothing_is_written(
    questions, tmp_path, capsys
):
    with stub(dies_after=2) as server:
        words = ["--url", server.url, "--set", questions, "--concurrency", "1"]
        code, told = failed(words, tmp_path, capsys)
    assert code == ExitCode.ENGINE
    assert "set mt, prompt 1: " in told
    assert "cannot be reached" in told
    assert "1 of 3 answers were there, nothing is written" in told


def test_a_server_slower_than_the_timeout_is_told_with_what_to_change(questions, tmp_path, capsys):
    with stub(slow=1.0) as server:
        code, told = failed(["--url", server.url, "--set", questions, "--timeout", "0.2"], tmp_path, capsys)
    assert code == ExitCode.ENGINE
    assert "did not answer within 0.2 s" in told
    assert "raise --timeout" in told


def test_what_is_no_drafting_vllm_server_is_told_apart(questions, tmp_path, capsys):
    code, told = failed(["--url", "http://127.0.0.1:9", "--set", questions], tmp_path, capsys)
    assert (code, "cannot be reached" in told) == (ExitCode.ENGINE, True)
    code, told = failed(["--url", "host:8000", "--set", questions], tmp_path, capsys)
    assert (code, "no address of a server" in told) == (ExitCode.USAGE, True)
    with stub(drafting=False) as server:
        code, told = failed(["--url", server.url, "--set", questions], tmp_path, capsys)
    assert (code, "--speculative-config" in told) == (ExitCode.EVALUATION, True)
    with stub() as server:
        code, told = failed(["--url", server.url, "--set", questions, "--max-tokens", "9999"], tmp_path, capsys)
    assert (code, "max_tokens is too large" in told) == (ExitCode.ENGINE, True)
    with stub() as server:
        code, told = failed(["--url", server.url, "--set", questions, "--model", "other"], tmp_path, capsys)
    assert (code, "for model other" in told) == (ExitCode.EVALUATION, True)


def test_answers_for_others_meanwhile_are_told(questions, tmp_path, capsys):
    out = tmp_path / "result.json"
    with stub(foreign=50) as server:
        assert main(["evaluate", "--url", server.url, "--set", questions, "--out", str(out)]) == ExitCode.OK
    assert json.loads(out.read_text())["sets"][0]["tokens_for_others"] == 200
    assert "200 tokens for others" in capsys.readouterr().err


def test_sets_that_are_not_written_as_they_must_be_are_all_named(tmp_path, capsys):
    file = tmp_path / "q.jsonl"
    words = ["evaluate", "--url", "http://127.0.0.1:9", "--set", "x", "--set", f"a=mtbench:{file}"]
    assert main([*words, "--set", f"b=gsm8k:{file}", "--set", f"b=gsm8k:{file}"]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert told.count("not NAME=FORM:FILE") == 2
    assert "another set has this name" in told


def test_a_target_alone_that_drafts_is_refused_before_anything_is_asked(questions, tmp_path, capsys):
    with stub() as server, stub() as other:
        words = ["--url", server.url, "--alone-url", other.url, "--set", questions]
        code, told = failed(words, tmp_path, capsys)
    assert (code, "drafts too" in told) == (ExitCode.EVALUATION, True)
    assert server.requests == []
