"""The CPU extraction image for real: built, checked, and the tiny extraction inside it with no network."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from draftkiln.containers import build, inputs, verify
from draftkiln.containers.launch import LABEL
from draftkiln.errors import ExitCode

pytestmark = pytest.mark.container
STACK = "spec0.3.0-vllm0.16.0-cpu"
RECIPE = """\
schema_version: 1
name: in-container
stacks: {{prepare: {stack}, extract: {stack}, validate: {stack}, train: {stack}, evaluate: {stack}}}
target:
  source: {{make: small, seed: 17}}
  trust_remote_code: true
  tensor_parallel_size: {workers}
layers: {{aux: [2, 4, 5]}}
data: {{source: {{synthetic: {samples}, seed: 1}}, max_tokens: 96, held_out: 2}}
extract: {{token_budget: 256, max_num_seqs: 4, writers: 1}}
validate: {{samples: 3, min_cosine: 0.999}}
evaluate: {{prompts: 2}}
train: {{draft: {{num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 128}}, max_steps: 1}}
"""


@pytest.fixture(scope="session")
def image(podman):
    return build.build(podman, inputs.collect(STACK))


def words(folder, *command):
    return [
        sys.executable,
        "-m",
        "draftkiln",
        *command,
        "--recipe",
        str(folder / "r.yaml"),
        "--run",
        str(folder / "run"),
    ]


def run(folder, *, until, workers=1, samples=6, **environment):
    (folder / "r.yaml").write_text(RECIPE.format(stack=STACK, workers=workers, samples=samples))
    done = subprocess.run(
        [*words(folder, "run"), "--in-container", "--until", until],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    return json.loads((folder / "run" / until / "stage.json").read_text())["results"]


@pytest.mark.usefixtures("image")
def test_the_image_is_its_lock_and_seams_hold_inside(podman):
    checks = verify.verify(podman, inputs.collect(STACK, make_base=False), imports=("vllm", "speculators", "draftkiln"))
    assert [str(check) for check in checks if check.problem] == []


@pytest.mark.usefixtures("image")
def test_case_36_states_are_extracted_and_validated_without_network_or_gpu(tmp_path):
    checked = run(tmp_path, until="validate", OMP_NUM_THREADS="2")
    assert checked["samples"] == 6
    made = json.loads((tmp_path / "run" / "extract" / "stage.json").read_text())["results"]
    assert made["shape"] == [96, 4, 256]
    owners = {path.stat().st_uid for path in (tmp_path / "run").rglob("*")}
    assert owners == {os.getuid()}


@pytest.mark.usefixtures("image")
def test_case_33_two_workers_share_memory_inside_a_container_without_network(tmp_path):
    assert run(tmp_path, until="extract", workers=2, VLLM_CPU_OMP_THREADS_BIND="0|1")["samples"] == 6


@pytest.mark.usefixtures("image")
def test_an_extraction_that_is_told_to_end_ends_inside_and_goes_on_later(tmp_path, podman):
    run(tmp_path, until="prepare", samples=400)
    with subprocess.Popen(
        words(tmp_path, "image", "stage", "extract"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        while "engine ready" not in process.stdout.readline():
            assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == ExitCode.TERMINATED
    assert time.monotonic() - began < 60
    assert podman.capture("ps", "--quiet", "--filter", f"label={LABEL}={tmp_path / 'run'}") == ""
    assert run(tmp_path, until="extract", samples=400)["samples"] == 400
