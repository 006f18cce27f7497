import dataclasses

import pytest

from draftkiln.errors import RunDirectoryError, StorageError
from draftkiln.extract import engine, manifest, plan, samples

HEAD = manifest.Head(
    layer_ids=(2, 4, 5, 8),
    hidden_size=64,
    dtype="bfloat16",
    computed_in="float32",
    samples=4,
    dataset_sha256="d",
    stack="s",
    patched_wheel_sha256="p",
)


def test_case_26_holes_and_cut_files_are_made_again_and_good_ones_left(tmp_path):
    found = {}
    for index, size in ((0, 10), (1, 10), (2, 10)):
        (tmp_path / samples.name(index)).write_bytes(b"x" * size)
        found[index] = manifest.Receipt(index, 1, 10, "c")
    (tmp_path / samples.name(1)).write_bytes(b"x" * 6)
    (tmp_path / samples.name(2)).unlink()
    todo = plan.compare(tmp_path, manifest.Manifest(HEAD, found))
    assert todo.remaining == [1, 2, 3]
    assert todo.remade == [1, 2]
    assert todo.stray == []


def test_case_26_a_file_without_a_receipt_is_stray_and_never_a_sample(tmp_path):
    for name in (samples.name(3), ".hs_1.safetensors.tmp", "hs_01.safetensors", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    todo = plan.compare(tmp_path, manifest.Manifest(HEAD, {}))
    assert todo.remaining == [0, 1, 2, 3]
    assert todo.stray == sorted([samples.name(3), ".hs_1.safetensors.tmp", "hs_01.safetensors", "notes.txt"])


def test_case_29_no_room_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(StorageError) as caught:
        plan.refuse_without_room(tmp_path, 10**18)
    assert "1000000000.00 GB" in caught.value.why


def test_kimi_sample_of_512_tokens_is_29_megabytes():
    assert plan.sample_bytes(512, 4, 7168) == pytest.approx(29.4e6, rel=0.01)


def test_a_sample_longer_than_the_limit_is_refused():
    with pytest.raises(RunDirectoryError) as caught:
        plan.refuse_long([512, 513, 600], 512)
    assert "sample 1 with 513 tokens" in caught.value.why


def test_another_layer_set_is_refused_by_naming_it(tmp_path):
    values = dataclasses.asdict(HEAD) | {"layer_ids": (1, 4, 5, 8)}
    with pytest.raises(RunDirectoryError) as caught:
        plan.head(values, manifest.Manifest(HEAD, {}), tmp_path / "manifest.jsonl")
    assert "layer_ids: (2, 4, 5, 8) there, (1, 4, 5, 8) now" in caught.value.why


def test_case_4_batches_hold_every_sample_once_and_keep_to_the_budget():
    lengths = [(index, 1 + (index * 37) % 513) for index in range(200)]
    batches = list(engine.batches(lengths, 8192, 40))
    assert [index for batch in batches for index in batch] == list(range(200))
    sizes = dict(lengths)
    assert all(sum(sizes[index] for index in batch) <= 8192 or len(batch) == 1 for batch in batches)
    assert max(map(len, batches)) <= 40
