"""One small run for all tests of this folder: a made target, states by transformers, a trained and exported draft."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftkiln import durable
from draftkiln.extract import manifest, samples
from draftkiln.prepare import tokenizer
from draftkiln.recipe.model import Recipe
from draftkiln.rundir import RunDirectory
from draftkiln.stage import Context
from draftkiln.stagelog import Terminal
from draftkiln.target import facts, language
from draftkiln.target.make import make
from draftkiln.target.reference import reference_text_model

AUX, LAYERS = (2, 4, 5), 8
SAMPLES, TOKENS, PROMPT = 24, 128, 24


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let torch, transformers, datasets and speculators warn: what they deprecate in each other is not ours to mend."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@dataclass(frozen=True)
class Small:
    """A run directory on the small made target; `context(…)` gives it to a stage's body."""

    path: Path
    target: Path

    def context(self, **changes: Any) -> Context:
        """The context of a stage; `changes` are recipe values by dotted key."""
        content: dict[str, Any] = {
            "schema_version": 1,
            "name": "small",
            "stacks": {"extract": "none", "train": "none", "evaluate": "none"},
            "target": {"source": {"path": str(self.target)}, "trust_remote_code": True},
            "layers": {"aux": list(AUX)},
            "data": {"source": {"path": "none.jsonl"}},
            "train": {
                "draft": {
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                    "head_dim": 64,
                    "intermediate_size": 512,
                },
                "max_steps": 80,
                "lr": 3e-3,
                "tokens_per_step": 512,
                "norm_before_residual": False,
            },
            "evaluate": {"prompts": 6, "max_tokens": 24, "ignore_eos": True},
        }
        for key, value in changes.items():
            *sections, name = key.split("__")
            section = content
            for part in sections:
                section = section[part]
            section[name] = value
        return Context(
            Recipe.model_validate(content),
            RunDirectory(self.path),
            self.target,
            facts.read(self.target),
            "none",
            {},
            "cpu",
        )

    def stage(self, name: str, body: Callable[[Context, Terminal], dict[str, Any]], **changes: Any) -> dict[str, Any]:
        """Run a stage's body and keep its record."""
        results = body(self.context(**changes), Terminal(io.StringIO()))
        RunDirectory(self.path).finish(name, {}, results)
        return results


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Prepared and extracted: text of the made target's language, and its states as transformers computes them."""
    root = tmp_path_factory.mktemp("small")
    run = Small(root / "run", make("small", 17, root / "target"))
    write_samples(run, texts(SAMPLES, seed=1))
    lines = [json.dumps({"prompt_token_ids": text[:PROMPT]}) for text in texts(6, seed=2)]
    (run.path / "prepare" / "held_out.jsonl").write_text("\n".join(lines) + "\n")
    records = RunDirectory(run.path)
    records.finish("prepare", {"tokenizer": tokenizer.hashes(run.target)}, {})
    records.finish("extract", {}, {})
    records.finish("validate", {"extract.record": durable.sha256_json({})}, {"samples": SAMPLES})
    return run


@pytest.fixture(scope="session")
def trained(small: Small) -> dict[str, Any]:
    """Results of `train` on the small run."""
    from draftkiln.train.command import _train

    return small.stage("train", _train)


@pytest.fixture(scope="session")
def exported(small: Small, trained: dict[str, Any]) -> dict[str, Any]:
    """Results of `export` on the small run."""
    from draftkiln.export.command import _export

    assert trained["steps"]
    return small.stage("export", _export)


def texts(count: int, seed: int) -> list[list[int]]:
    """Random prompts of words, each followed as the language says."""
    random = np.random.default_rng(seed)
    prompts = [[int(token) for token in random.integers(0, len(language.WORDS), PROMPT)] for _ in range(count)]
    return [prompt + language.continuation(prompt, TOKENS - PROMPT) for prompt in prompts]


def receipt_of(file: Path) -> manifest.Receipt:
    """The receipt of a sample that was written by other hands."""
    opened = samples.opening(file)
    index, ids = samples.index_of(file.name), opened.token_ids
    assert index is not None
    checksum = samples.checksum(file)
    rows = len(ids) // samples.TOKEN_ID_BYTES
    return manifest.Receipt(index, rows, opened.size, checksum, samples.token_ids_checksum(ids))


def write_samples(run: Small, rows: list[list[int]]) -> None:
    """Write dataset, states and manifest as `prepare` and `extract` do."""
    import datasets
    import torch
    from safetensors.torch import save_file

    model = reference_text_model(run.target, "float32")
    last: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _module, arguments: last.append(arguments[0]))
    folder = run.path / "extract" / "hidden_states"
    folder.mkdir(parents=True)
    for index, row in enumerate(rows):
        ids = torch.tensor(row)
        with torch.no_grad():
            states = model(ids[None], output_hidden_states=True).hidden_states
        slots = torch.stack([*(states[layer][0] for layer in AUX), last[-1][0]], dim=1)
        save_file({"hidden_states": slots.bfloat16(), "token_ids": ids}, folder / samples.name(index))
    head = manifest.Head((*AUX, LAYERS), model.config.hidden_size, "bfloat16", "float32", len(rows), "d", "s", "w")
    manifest.create(run.path / "extract" / manifest.FILE, head, map(receipt_of, sorted(folder.iterdir())))
    columns = {
        "input_ids": rows,
        "loss_mask": [[0] * PROMPT + [1] * (len(row) - PROMPT) for row in rows],
        "seq_len": [len(row) for row in rows],
    }
    (run.path / "prepare").mkdir()
    datasets.Dataset.from_dict(columns).save_to_disk(str(run.path / "prepare" / "dataset"))
