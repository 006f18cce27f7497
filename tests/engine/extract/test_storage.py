"""FP8 storage, shards and the comparison of ranks on the real engine."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from commandline import draftkiln
from draftkiln.extract import manifest, samples, top_tokens
from draftkiln.stack import environment

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[3]
SAMPLES, TOKENS = 24, 96


def recipe(folder, **sections):
    content = yaml.safe_load((ROOT / "recipes" / "tiny-cpu.yaml").read_text())
    content["name"] = "storage"
    content["target"]["source"] = {"make": "small", "seed": 17}
    content["data"] |= {"source": {"synthetic": SAMPLES, "seed": 1}, "max_tokens": TOKENS, "held_out": 16}
    content["extract"]["token_budget"] = 200
    for name, values in sections.items():
        content[name] |= values
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))
    done = draftkiln("prepare", "--recipe", file, "--run", folder / "run")
    assert done.returncode == 0, done.stderr
    return file, folder / "run"


def test_fp8_is_what_speculators_reads(tmp_path):
    stack = environment.ensure("spec0.9.0-vllm0.32.0-cpu")
    program = [stack.python, ROOT / "tests" / "engine" / "programs" / "fp8.py", tmp_path / "states"]
    done = subprocess.run(program, env=stack.variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_two_hosts_extract_in_fp8_and_their_merged_run_holds(tmp_path):
    file, run = recipe(tmp_path, extract={"storage": samples.FP8})
    other, both = tmp_path / "other", tmp_path / "both"
    shutil.copytree(run, other)
    for place, shard in ((run, "1/2"), (other, "2/2")):
        done = draftkiln("extract", "--recipe", file, "--run", place, "--shard", shard)
        assert done.returncode == 0, done.stderr
        assert f"{SAMPLES // 2} of {SAMPLES // 2} samples (shard {shard} of {SAMPLES}) to do" in done.stdout
        assert "FP8 costs layer 8 a relative error of" in done.stdout
    done = draftkiln("validate", "--recipe", file, "--run", run)
    assert "holds shard 1/2 only" in done.stderr
    done = draftkiln("merge", "--run", both, run, other)
    assert done.returncode == 0, done.stderr
    assert len(top_tokens.read(both / "extract" / top_tokens.FILE)) >= 4
    done = draftkiln("extract", "--recipe", file, "--run", both)
    assert "done already" in done.stdout
    done = draftkiln("validate", "--recipe", file, "--run", both, "--headers-only")
    assert f"{SAMPLES} samples are good" in done.stdout, done.stderr
    done = draftkiln("validate", "--recipe", file, "--run", both)
    assert done.returncode == 0, done.stderr
    assert "lm_head(norm(last slot)) says what the engine said for" in done.stdout
    log = [json.loads(line) for line in (run / "logs" / "extract.jsonl").read_text().splitlines()]
    assert {"begin", "rank ready", "progress", "end"} <= {line["event"] for line in log}


def test_two_ranks_hold_the_same_states_and_made_up_weights_give_good_ones(tmp_path):
    changes = {"target": {"tensor_parallel_size": 2, "load_format": "dummy"}, "validate": {"against": None}}
    file, run = recipe(tmp_path, **changes)
    done = draftkiln("extract", "--recipe", file, "--run", run, "--check-ranks", 4, VLLM_CPU_OMP_THREADS_BIND="0|1")
    assert done.returncode == 0, done.stderr
    assert "rows are the same on 2 ranks, bit for bit" in done.stdout
    assert len(manifest.read(run / "extract" / manifest.FILE).receipts) == SAMPLES
    done = draftkiln("validate", "--recipe", file, "--run", run)
    assert done.returncode == 0, done.stderr
    assert "not compared with the engine's own next tokens: the weights were made up" in done.stdout
