"""Old folders of `data_{i}.pt` as a run directory."""

import argparse
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from draftkiln import durable
from draftkiln.convert import command, old
from draftkiln.convert.command import _Source, convert
from draftkiln.errors import DataError, ProblemsError
from draftkiln.extract import manifest, samples
from draftkiln.stage import Context
from draftkiln.stagelog import Terminal
from draftkiln.train.command import _train

pytestmark = pytest.mark.engine

IDS = (2, 4, 5, 8)
COUNT, HELD_OUT = 8, 2


@pytest.fixture
def folder(small: Any, tmp_path: Path) -> Path:
    """The first samples of the small run, as speculators 0.3.0 writes them."""
    made = tmp_path / "old"
    made.mkdir()
    for index in range(COUNT):
        tensors = load_file(small.path / "extract" / "hidden_states" / samples.name(index))
        ids = tensors["token_ids"]
        mask = torch.tensor([0] * 24 + [1] * (len(ids) - 24))
        states = [state.clone() for state in tensors["hidden_states"].unbind(1)]
        torch.save({"input_ids": ids, "hidden_states": states, "loss_mask": mask}, made / f"data_{index}.pt")
    return made


@pytest.fixture
def context(small: Any, tmp_path: Path) -> Context:
    found: Context = type(small)(tmp_path / "run", small.target).context(data__held_out=HELD_OUT, train__max_steps=2)
    found.run.path.mkdir()
    found.inputs["converted"] = {}
    return found


def run(context: Context, folder: Path, ids: tuple[int, ...] = IDS) -> dict[str, Any]:
    return convert(context, Terminal(io.StringIO()), _Source(folder, ids))


def change(file: Path, **values: Any) -> None:
    torch.save({**torch.load(file, weights_only=True), **values}, file)


def test_samples_are_the_same_bits_and_can_be_trained_on(small: Any, context: Context, folder: Path) -> None:
    results = run(context, folder)
    assert (results["samples"], results["held_out"]) == (COUNT - HELD_OUT, HELD_OUT)
    found = manifest.read(context.run.path / "extract" / manifest.FILE)
    assert found.head.layer_ids == IDS
    assert sorted(found.receipts) == list(range(COUNT - HELD_OUT))
    for index, receipt in found.receipts.items():
        name = samples.name(index)
        there = context.run.path / "extract" / "hidden_states" / name
        assert receipt.checksum == samples.checksum(there)
        ours, theirs = load_file(there), load_file(small.path / "extract" / "hidden_states" / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    prompts = [json.loads(line) for line in (context.run.path / "prepare" / "held_out.jsonl").read_text().splitlines()]
    assert [len(prompt["prompt_token_ids"]) for prompt in prompts] == [24, 24]
    context.run.finish("prepare", context.inputs, results)
    extracted = context.run.require("extract")["inputs"]
    validated = {"extract.record": durable.sha256_json(extracted)}
    context.run.finish("validate", validated, {"samples": COUNT - HELD_OUT})
    assert _train(context, Terminal(io.StringIO()))["steps"] == 2


def test_an_interrupted_conversion_goes_on(context: Context, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_GROUP", 2)
    write = command._write
    monkeypatch.setattr(
        command, "_write", lambda where, index, sample: _fail_at(5, index) or write(where, index, sample)
    )
    with pytest.raises(KeyboardInterrupt):
        run(context, folder)
    again: list[int] = []
    monkeypatch.setattr(
        command, "_write", lambda where, index, sample: again.append(index) or write(where, index, sample)
    )
    run(context, folder)
    assert again == [4, 5]  # 4 was written, but had no receipt


def _fail_at(limit: int, index: int) -> None:
    if index == limit:
        raise KeyboardInterrupt


def test_case_10_layers_are_declared_in_either_numbering_and_never_guessed() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["old", "--recipe", "r.yaml", "--out", "run"]
    assert parser.parse_args([*words, "--layers-after", "1,3,4,7"]).layers_after == (1, 3, 4, 7)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    with pytest.raises(SystemExit):
        parser.parse_args([*words, "--layer-ids", "2,4,5,8", "--layers-after", "1,3,4,7"])


@pytest.mark.parametrize(
    ("ids", "fix"),
    [((3, 5, 6, 8), r"set layers.aux to \[3, 5, 6\]"), ((1, 3, 4, 7), "look whether the ids count outputs")],
)
def test_case_9_layers_that_are_not_the_recipes_are_refused(
    context: Context, folder: Path, ids: tuple[int, ...], fix: str
) -> None:
    with pytest.raises(DataError) as caught:
        run(context, folder, ids)
    assert str(list(ids)) in caught.value.what
    assert "[2, 4, 5, 8]" in caught.value.what
    assert re.search(fix, caught.value.fix)


def test_case_10_three_layers_without_the_last_are_refused(context: Context, folder: Path) -> None:
    states = torch.load(folder / "data_0.pt", weights_only=True)["hidden_states"]
    change(folder / "data_0.pt", hidden_states=states[:3])
    with pytest.raises(ProblemsError, match=r"data_0.pt: 3 captured layers, 4 were named"):
        run(context, folder)


def test_all_that_is_wrong_is_told_before_anything_is_written(context: Context, folder: Path) -> None:
    states = torch.load(folder / "data_0.pt", weights_only=True)["hidden_states"]
    change(folder / "data_1.pt", hidden_states=[state.float() for state in states])
    change(folder / "data_2.pt", loss_mask=torch.ones(3))
    change(folder / "data_3.pt", input_ids=torch.full((128,), 99999))
    (folder / "data_4.pt").write_bytes(b"no tensors")
    with pytest.raises(ProblemsError) as caught:
        run(context, folder)
    text = str(caught.value)
    for part in (
        "data_1.pt: hidden_states[3] is float32, the recipe's states are bfloat16",
        "data_2.pt: 3 entries of loss_mask for 128 tokens",
        "data_3.pt: token id 99999 is none of the target's",
        "data_4.pt is no sample of speculators 0.3 or 0.4",
    ):
        assert part in text
    assert not (context.run.path / "extract").exists()


class _Code:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


def test_a_file_with_code_in_it_is_refused_and_not_run(
    context: Context, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"input_ids": _Code()}, folder / "data_0.pt")
    with pytest.raises(ProblemsError, match="write this file again"):
        run(context, folder)
    assert not (tmp_path / "ran").exists()


def test_values_that_are_not_finite_stop_with_file_and_token(context: Context, folder: Path) -> None:
    states = torch.load(folder / "data_5.pt", weights_only=True)["hidden_states"]
    states[2][7, 3] = torch.nan
    change(folder / "data_5.pt", hidden_states=states)
    with pytest.raises(DataError, match=r"data_5.pt: the state of token 7 is not finite"):
        run(context, folder)


def test_a_gap_between_the_files_is_refused(folder: Path) -> None:
    (folder / "data_3.pt").unlink()
    with pytest.raises(DataError, match=r"1 of 8 files are missing: data_3.pt"):
        old.files(folder)
