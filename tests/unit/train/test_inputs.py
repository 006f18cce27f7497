from dataclasses import replace
from pathlib import Path

import pytest

from draftkiln import durable
from draftkiln.errors import DataError, ExitCode, ProblemsError
from draftkiln.extract import manifest, samples
from draftkiln.extract.manifest import Head
from draftkiln.train import inputs

HEAD = Head((2, 4, 5, 8), 256, "bfloat16", "float32", 48, "d", "s", "w")


def check(head: Head, aux: tuple[int, ...] = (2, 4, 5), dtype: str = "bfloat16") -> str:
    with pytest.raises(ProblemsError) as caught:
        inputs.refuse_other_states(head, aux, 8, 256, dtype)
    assert caught.value.code == ExitCode.DATA
    return str(caught.value)


def test_states_of_this_recipe_pass() -> None:
    inputs.refuse_other_states(HEAD, (2, 4, 5), 8, 256, "bfloat16")


def test_case_9_ids_that_differ_are_named_on_both_sides() -> None:
    text = check(HEAD, aux=(1, 3, 4))
    assert "[2, 4, 5, 8]" in text
    assert "[1, 3, 4]" in text


def test_case_10_states_without_the_last_layer_are_refused() -> None:
    assert "none is 8, the state after the last layer" in check(replace(HEAD, layer_ids=(2, 4, 5)))


def test_case_10_a_last_layer_counted_as_auxiliary_is_refused() -> None:
    assert "layers.aux" in check(replace(HEAD, layer_ids=(2, 4, 5, 8)), aux=(2, 4, 8))


def test_case_50_states_after_the_final_norm_are_refused() -> None:
    assert "applied twice" in check(replace(HEAD, norm_state="post-norm"))


def test_all_reasons_are_told_at_once() -> None:
    text = check(replace(HEAD, hidden_size=576, norm_state="post-norm"), dtype="float16")
    assert "576 columns" in text
    assert "bfloat16, the recipe's are float16" in text
    assert "post-norm" in text


@pytest.mark.parametrize("samples", [0, 1])
def test_too_few_samples_to_validate_on(samples: int) -> None:
    with pytest.raises(DataError, match="cannot be trained on"):
        inputs.refuse_too_few(samples)
    inputs.refuse_too_few(2)


RECORD = {"inputs": {"extract.record": durable.sha256_json({"seed": 1})}, "results": {"samples": 48}}
EXTRACTED = {"inputs": {"seed": 1}}


def test_states_that_passed_validate_are_taken() -> None:
    inputs.refuse_not_validated(RECORD, EXTRACTED, 48, 48)


def test_states_extracted_anew_since_validate_are_refused() -> None:
    with pytest.raises(DataError, match="extracted anew since they were validated"):
        inputs.refuse_not_validated(RECORD, {"inputs": {"seed": 2}}, 48, 48)


@pytest.mark.parametrize(("samples", "receipts"), [(48, 47), (49, 49)])
def test_states_that_are_not_all_validated_are_refused(samples: int, receipts: int) -> None:
    with pytest.raises(DataError, match=f"{samples} samples are to be there, {receipts} are, and 48 were validated"):
        inputs.refuse_not_validated(RECORD, EXTRACTED, samples, receipts)


def test_case_68_samples_of_another_tokenizer_are_refused_by_its_files() -> None:
    theirs = {"tokenizer.json": "a", "tokenizer_config.json": "c"}
    inputs.refuse_other_tokenizer(theirs, dict(theirs))
    inputs.refuse_other_tokenizer(None, theirs)
    with pytest.raises(DataError, match=r"another tokenizer: merges.txt, tokenizer.json differ"):
        inputs.refuse_other_tokenizer(theirs, {**theirs, "tokenizer.json": "b", "merges.txt": "m"})


def test_states_that_were_altered_since_their_receipt_are_found(tmp_path: Path) -> None:
    assert inputs.altered(tmp_path, [0]) == []  # nothing tells
    folder = tmp_path / samples.FOLDER
    folder.mkdir()
    receipts = []
    for index in range(4):
        (folder / samples.name(index)).write_bytes(bytes([index]) * 9)
        receipts.append(manifest.Receipt(index, 1, 9, samples.checksum(folder / samples.name(index)), "t"))
    manifest.create(tmp_path / manifest.FILE, replace(HEAD, samples=5), receipts)
    (folder / samples.name(1)).write_bytes(b"otherwise")
    (folder / samples.name(2)).unlink()
    assert inputs.altered(tmp_path, [3, 2, 1, 0, 4]) == [2, 1]


def test_states_that_are_gone_or_cut_are_refused_before_the_first_step(tmp_path: Path) -> None:
    folder = tmp_path / samples.FOLDER
    folder.mkdir()
    receipts = {index: manifest.Receipt(index, 1, 9, "c", "t") for index in range(3)}
    for index in receipts:
        (folder / samples.name(index)).write_bytes(bytes(9))
    inputs.refuse_cut(tmp_path, receipts)
    (folder / samples.name(1)).write_bytes(bytes(8))
    (folder / samples.name(2)).unlink()
    with pytest.raises(
        DataError, match="the states of 2 samples are gone or were cut, hs_1.safetensors first"
    ) as caught:
        inputs.refuse_cut(tmp_path, receipts)
    assert "draftkiln extract" in caught.value.fix


def test_states_of_made_up_weights_are_not_learnt_from():
    inputs.refuse_made_up("auto")
    inputs.refuse_made_up("safetensors")
    with pytest.raises(DataError, match="made-up weights"):
        inputs.refuse_made_up("dummy")
