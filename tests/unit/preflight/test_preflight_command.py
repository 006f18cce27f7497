import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from draftkiln.cli import main
from draftkiln.errors import ExitCode
from draftkiln.preflight.engine_checks import check_draft_keys, check_target_class
from draftkiln.preflight.host import SHM
from draftkiln.seams.sources import FolderSources
from draftkiln.target.facts import TargetFacts

ROOT = Path(__file__).parents[3]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A target directory and a recipe that names it; the stacks are the repository's own."""
    monkeypatch.setenv("DRAFTKILN_HOME", str(ROOT))
    folder = tmp_path / "target"
    folder.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, "vocab_size": 128}
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 64, "num_attention_heads": 4}))
    (folder / "tokenizer.json").write_text("{}")
    weights = {"model.embed_tokens.weight": (128, 64), "model.norm.weight": (64,)}
    weights |= {f"model.layers.{layer}.input_layernorm.weight": (64,) for layer in range(8)}
    save_file({name: np.zeros(shape, np.float16) for name, shape in weights.items()}, folder / "model.safetensors")
    content = yaml.safe_load((ROOT / "recipes" / "tiny-cpu.yaml").read_text())
    content["target"]["source"] = {"path": str(folder)}

    def write(**changes):
        for path, value in changes.items():
            section, key = path.split("__")
            content[section][key] = value
        file = tmp_path / "recipe.yaml"
        file.write_text(yaml.safe_dump(content))
        return file

    return write


def test_all_findings_come_as_json(small, capsys):
    assert main(["preflight", "--recipe", str(small()), "--static", "--json"]) == ExitCode.OK
    value = json.loads(capsys.readouterr().out)
    assert value["stack"] == "spec0.3.0-vllm0.16.0-cpu"
    assert value["seconds"]["static"] < 5
    by_check = {item["check"]: item for item in value["findings"]}
    assert {"layer ids", "disk", SHM, "devices", "kernels", "NVIDIA driver", "tokenizer", "weights' shapes"} <= set(
        by_check
    )
    assert {item["status"] for item in value["findings"]} == {"pass"}
    assert all(set(item) == {"check", "status", "reason", "fix"} for item in value["findings"])


def test_a_failed_check_has_a_fix_and_an_exit_code(small, capsys):
    file = small(layers__aux=[2, 4, 9])
    assert main(["preflight", "--recipe", str(file), "--static"]) == ExitCode.PREFLIGHT
    shown = capsys.readouterr().out
    assert "layer ids (fail): name three ascending ids within 1..7 under layers.aux" in shown
    assert "1 fail" in shown


def test_a_target_that_is_not_there_yet_leaves_the_host_s_checks(small, capsys):
    file = small(target__source={"make": "small", "seed": 4711})
    assert main(["preflight", "--recipe", str(file), "--static"]) == ExitCode.OK
    assert "is not there yet" in capsys.readouterr().out.replace("\n", " ")


def test_a_broken_target_is_a_finding_not_a_traceback(small, capsys):
    file = small(target__source={"path": "/no/such/target"})
    assert main(["preflight", "--recipe", str(file), "--static", "--json"]) == ExitCode.PREFLIGHT
    assert json.loads(capsys.readouterr().out)["findings"][0]["check"] == "target"


def test_a_folder_that_was_named_must_be_there(small, capsys):
    file = small(target__source={"make": "small", "seed": 4711})
    assert main(["preflight", "--recipe", str(file), "--static", "--target", "/no/such"]) == ExitCode.PREFLIGHT
    assert "/no/such is not there" in capsys.readouterr().out.replace("\n", " ")


def test_an_unknown_stack_is_refused_by_name(small, capsys):
    assert main(["preflight", "--recipe", str(small()), "--static", "--stack", "none"]) == ExitCode.STACK
    assert "none" in capsys.readouterr().err


FILES = {
    "vllm/__init__.py": "",
    "vllm/model_executor/models/interfaces.py": "class SupportsEagle3: ...\ndef supports_eagle3(model): ...\n",
    "vllm/model_executor/models/registry.py": "M = {'A': ('a', 'A'), 'B': ('a', 'B')}\n",
    "vllm/model_executor/models/a.py": "from .interfaces import SupportsEagle3\n"
    "class A(SupportsEagle3): ...\nclass B: ...\n",
    "vllm/model_executor/models/llama_eagle3.py": "config.norm_before_residual, config.draft_vocab_size\n",
}


@pytest.fixture
def engine(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return FolderSources(tmp_path)


@pytest.mark.parametrize(("architecture", "status"), [("A", "pass"), ("B", "fail"), ("C", "fail")])
def test_a_target_that_the_evaluating_engine_gives_no_draft_is_told(engine, architecture, status):
    given = TargetFacts(Path(), architecture, "m", 8, 64, 4, 128, "bfloat16", 0, None, True, 0, False, False)  # noqa: FBT003
    assert check_target_class(engine, "vllm 1", "stack", given).status == status


def test_draft_keys_that_the_engine_does_not_read_are_named(engine):
    found = check_draft_keys(engine, "vllm 1")
    assert found.status == "warn"
    assert found.reason == "vllm 1 does not read eagle_aux_hidden_state_layer_ids, target_hidden_size"


def test_a_recipe_that_is_wrong_comes_as_json_too_with_one_finding_a_problem(small, tmp_path, capsys):
    file = small(layers__aux=[2, 2, 5], train__max_steps=10**30)
    assert main(["preflight", "--recipe", str(file), "--static", "--json"]) == ExitCode.RECIPE
    shown = capsys.readouterr()
    value = json.loads(shown.out)
    assert value["recipe"] is None
    assert [(one["check"], one["status"]) for one in value["findings"]] == [("recipe", "fail")] * 2
    assert "layers.aux" in value["findings"][0]["reason"]
    assert "train.max_steps" in shown.err
    assert main(["preflight", "--recipe", str(tmp_path / "none.yaml"), "--json"]) == ExitCode.RECIPE
    assert "no such recipe" in json.loads(capsys.readouterr().out)["findings"][0]["reason"]
