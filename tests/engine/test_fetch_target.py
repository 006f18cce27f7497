"""`fetch-target` against a loopback server that speaks as the Hub does, and with the real package of SmolLM2."""

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from draftkiln.target import record

sys.path.insert(0, str(Path(__file__).parent))
import stacks

pytestmark = pytest.mark.engine
REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"num_hidden_layers": 2}',
    "model-00001-of-00002.safetensors": bytes(range(256)) * 8000,
    "model-00002-of-00002.safetensors": bytes(reversed(range(256))) * 8000,
    "pictures/logo.png": b"not wanted",
}
SECOND = "model-00002-of-00002.safetensors"


class Hub(BaseHTTPRequestHandler):
    """The Hub's answers for one repository; `server.served`, `server.cut` and `server.status` steer and record them."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, *, body):
        path = self.path.split("?")[0]
        if self.server.status != 200:
            self._send(self.server.status, b"{}", {"X-Error-Code": self.server.error}, body=body)
        elif path.startswith("/api/models/acme/tiny"):
            answer = tree() if "/tree/" in path else described()
            self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"}, body=body)
        elif path.startswith("/api/"):
            self._send(404, b"{}", {}, body=body)
        else:
            self._file(path.removeprefix(f"/acme/tiny/resolve/{REVISION}/"), body=body)

    def _file(self, name, *, body):
        data = FILES[name]
        tag = hashlib.sha256(data).hexdigest() if name.endswith(".safetensors") else blob_id(data)
        served = self.server.changed.get(name, data)
        start = 0
        headers = {"ETag": f'"{tag}"', "X-Repo-Commit": REVISION, "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and not asked.endswith("=0-0"):
            start = int(asked.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        if body:
            self.server.served.append((name, start))
        self._send(206 if start else 200, served[start:], headers, body=body, cut=body and name == self.server.cut)

    def _send(self, status, data, headers, *, body, cut=False):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True

    def log_message(self, *_):
        pass


def blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def large(name, data, key):
    if not name.endswith(".safetensors"):
        return {}
    return {"lfs": {key: hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}}


def tree():
    return [
        {"type": "file", "path": name, "size": len(data), "oid": blob_id(data), **large(name, data, "oid")}
        for name, data in FILES.items()
    ]


def described():
    siblings = [
        {"rfilename": name, "size": len(data), "blobId": blob_id(data), **large(name, data, "sha256")}
        for name, data in FILES.items()
    ]
    return {
        "id": "acme/tiny",
        "modelId": "acme/tiny",
        "sha": REVISION,
        "siblings": siblings,
        "private": False,
        "tags": [],
    }


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.served, server.changed, server.cut, server.status, server.error = [], {}, None, 200, ""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def fetch(hub, tmp_path):
    def run(stack=stacks.TRAIN):
        words = ["fetch-target", "hub", "acme/tiny", "--revision", REVISION, "--into", tmp_path / "got"]
        where = f"http://127.0.0.1:{hub.server_port}"
        return stacks.run(
            stack, ["-m", "draftkiln", *words], HF_HUB_OFFLINE="0", HF_ENDPOINT=where, no_proxy="127.0.0.1"
        )

    return run


@pytest.mark.parametrize("stack", [stacks.EXTRACT, stacks.TRAIN])
def test_a_pinned_revision_is_fetched_verified_and_recorded(fetch, tmp_path, stack):
    done = fetch(stack)
    assert done.returncode == 0, done.stderr
    found = record.read_record(tmp_path / "got")
    assert found["source"] == {"hub": "acme/tiny", "revision": REVISION}
    wanted = {name: data for name, data in FILES.items() if not name.endswith(".png")}
    assert {name: entry["sha256"] for name, entry in found["files"].items()} == {
        name: hashlib.sha256(data).hexdigest() for name, data in wanted.items()
    }


def test_a_cut_download_goes_on_with_what_is_missing(fetch, hub, tmp_path):
    hub.cut = SECOND
    cut = fetch()
    assert cut.returncode == 16
    assert "Traceback" not in cut.stderr
    assert not (tmp_path / "got" / record.NAME).exists()
    hub.cut = None
    hub.served.clear()
    assert fetch().returncode == 0
    assert {name for name, _ in hub.served} == {SECOND}
    assert record.problems(tmp_path / "got", record.read_record(tmp_path / "got"), hashes=True) == []


def test_a_shard_with_other_bytes_is_refused_removed_and_fetched_again(fetch, hub, tmp_path):
    hub.changed[SECOND] = b"!" + FILES[SECOND][1:]
    wrong = fetch()
    assert wrong.returncode == 16
    assert f"1 of 3 files are not what the Hub names: {SECOND}" in wrong.stderr
    assert not (tmp_path / "got" / SECOND).exists()
    hub.changed.clear()
    hub.served.clear()
    assert fetch().returncode == 0
    assert {name for name, _ in hub.served} == {SECOND}


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (404, "RepoNotFound", "is not on the Hub"),
        (404, "RevisionNotFound", "is not on the Hub"),
        (403, "GatedRepo", "terms"),
    ],
)
def test_what_the_hub_refuses_is_said_in_words(fetch, hub, status, error, says):
    hub.status, hub.error = status, error
    done = fetch()
    assert done.returncode == 7
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_hub_that_cannot_be_reached_is_a_network_error(tmp_path):
    words = ["fetch-target", "hub", "acme/tiny", "--revision", REVISION, "--into", tmp_path / "got"]
    done = stacks.run(stacks.TRAIN, ["-m", "draftkiln", *words], HF_HUB_OFFLINE="0", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 16
    assert "Traceback" not in done.stderr


def test_smollm2_is_not_taken_from_a_transformers_that_converts_its_tokenizer_otherwise(tmp_path):
    folder = tmp_path / "smollm2"
    done = stacks.run(stacks.EXTRACT, ["-m", "draftkiln", "fetch-target", "smollm2", "--into", folder])
    assert done.returncode == 7
    assert "the converted tokenizer of SmolLM2 differ" in done.stderr
    assert "use the environment of a locked training stack" in done.stderr
    assert not list(tmp_path.iterdir())


def test_smollm2_is_converted_to_the_pinned_weights_and_tokenizer(tmp_path):
    done = stacks.run(stacks.TRAIN, ["-m", "draftkiln", "fetch-target", "smollm2", "--into", tmp_path / "smollm2"])
    assert done.returncode == 0, done.stderr[-2000:]
    config = json.loads((tmp_path / "smollm2" / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"], config["rope_theta"]) == (576, 30, 100000.0)
    assert "model.safetensors" in record.read_record(tmp_path / "smollm2")["files"]
    settings = json.loads((tmp_path / "smollm2" / "tokenizer_config.json").read_text())
    assert (settings["eos_token"], settings["tokenizer_class"]) == ("<|im_end|>", "PreTrainedTokenizerFast")
    assert "<|im_start|>" in settings["chat_template"]
