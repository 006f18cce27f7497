"""The CPU extraction image for real: built, checked, and the tiny extraction inside it with no network."""

import json
import os
import subprocess
import sys

import pytest

from draftkiln.containers import build, inputs, verify
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
data: {{source: {{synthetic: 6, seed: 1}}, max_tokens: 96, held_out: 2}}
extract: {{token_budget: 256, max_num_seqs: 4, writers: 1}}
validate: {{samples: 3, min_cosine: 0.999}}
evaluate: {{prompts: 2}}
train: {{draft: {{num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 128}}, max_steps: 1}}
"""


@pytest.fixture(scope="session")
def image(podman):
    return build.build(podman, inputs.collect(STACK))


def run(folder, workers, environment):
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(stack=STACK, workers=workers))
    words = ["run", "--in-container", "--recipe", str(recipe), "--run", str(folder / "run"), "--until", "validate"]
    done = subprocess.run(
        [sys.executable, "-m", "draftkiln", *words],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    return json.loads((folder / "run" / "extract" / "stage.json").read_text())["results"]


@pytest.mark.usefixtures("image")
def test_the_image_is_its_lock_and_seams_hold_inside(podman):
    checks = verify.verify(podman, inputs.collect(STACK, make_base=False), imports=("vllm", "speculators", "draftkiln"))
    assert [str(check) for check in checks if check.problem] == []


@pytest.mark.usefixtures("image")
def test_case_36_states_are_extracted_and_validated_without_network_or_gpu(tmp_path):
    made = run(tmp_path, 1, {"OMP_NUM_THREADS": "2"})
    assert made["samples"] == 6
    assert made["shape"] == [96, 4, 256]
    owners = {path.stat().st_uid for path in (tmp_path / "run").rglob("*")}
    assert owners == {os.getuid()}


@pytest.mark.usefixtures("image")
def test_case_33_two_workers_share_memory_inside_a_container_without_network(tmp_path):
    made = run(tmp_path, 2, {"VLLM_CPU_OMP_THREADS_BIND": "0|1"})
    assert made["samples"] == 6
