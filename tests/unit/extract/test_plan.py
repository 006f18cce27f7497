import dataclasses
import time

import pytest

from draftkiln.errors import RunDirectoryError, StorageError
from draftkiln.extract import begin, manifest, plan, samples

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
        found[index] = manifest.Receipt(index, 1, 10, "c", "t")
    (tmp_path / samples.name(1)).write_bytes(b"x" * 6)
    (tmp_path / samples.name(2)).unlink()
    todo = plan.compare(tmp_path, manifest.Manifest(HEAD, found))
    assert todo.remaining == [1, 2, 3]
    assert todo.remade == [1, 2]
    assert todo.stray == []


def test_case_26_a_file_without_a_receipt_is_never_a_sample(tmp_path):
    strays = ["hs_01.safetensors", "hs_4.safetensors", "hs_x.safetensors", "notes.txt"]
    for name in (samples.name(3), ".hs_1.safetensors.tmp", *strays):
        (tmp_path / name).write_bytes(b"x")
    todo = plan.compare(tmp_path, manifest.Manifest(HEAD, {}))
    assert todo.remaining == [0, 1, 2, 3]
    assert (todo.unfinished, todo.unrecorded) == ([".hs_1.safetensors.tmp"], [samples.name(3)])
    assert todo.stray == strays


def test_an_altered_file_is_found_by_the_full_check_only(tmp_path):
    (tmp_path / samples.name(0)).write_bytes(b"y" * 10)
    (tmp_path / samples.name(1)).write_bytes(b"x" * 10)
    good = samples.checksum(tmp_path / samples.name(1))
    found = {index: manifest.Receipt(index, 1, 10, good, "t") for index in (0, 1)}
    assert plan.compare(tmp_path, manifest.Manifest(HEAD, found)).remade == []
    assert plan.compare(tmp_path, manifest.Manifest(HEAD, found), full=True).remade == [0]


def test_before_files_are_replaced_their_receipts_are_taken_back_and_unfinished_files_are_gone(tmp_path):
    path, folder, told = tmp_path / manifest.FILE, tmp_path / samples.FOLDER, []
    folder.mkdir()
    manifest.create(path, HEAD)
    manifest.append(path, [manifest.Receipt(index, 1, 10, "c", "t") for index in (0, 1)])
    for name in (samples.name(0), samples.name(3), ".hs_2.safetensors.tmp", "notes.txt"):
        (folder / name).write_bytes(b"x" * 10)
    plan.clear(folder, path, plan.compare(folder, manifest.read(path)), told.append)
    assert sorted(manifest.read(path).receipts) == [0]
    assert sorted(file.name for file in folder.iterdir()) == [samples.name(0), samples.name(3), "notes.txt"]
    assert all(any(name in line for line in told) for name in (".hs_2.safetensors.tmp", "notes.txt", samples.name(3)))


@pytest.mark.parametrize("count", [100_000])
def test_a_hundred_thousand_receipts_are_read_in_three_seconds(tmp_path, count):
    path = tmp_path / manifest.FILE
    manifest.create(path, dataclasses.replace(HEAD, samples=count))
    manifest.append(path, (manifest.Receipt(index, 512, 29_362_000, "c" * 32, "t" * 16) for index in range(count)))
    began = time.process_time()
    found = manifest.read(path)
    assert len(found.receipts) == count
    assert time.process_time() - began < 3


def test_case_29_no_room_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(StorageError) as caught:
        plan.refuse_without_room(tmp_path, 10**18)
    assert "1000000000.00 GB" in caught.value.why


def test_case_29_the_size_is_told_before_and_a_lack_of_room_can_be_ignored(tmp_path):
    head, told = dataclasses.replace(HEAD, layer_ids=(2, 30, 58, 61), hidden_size=7168), []
    with pytest.raises(StorageError):
        begin.announce(told.append, head, tmp_path, 3, 10**18, force=False)
    assert told == []
    begin.announce(told.append, head, tmp_path, 3, 10**18, force=True)
    assert told == [
        "extract: 3 of 4 samples to do, layers [2, 30, 58, 61], 57352 B a token, 1000000000.00 GB of states"
    ]


@pytest.mark.parametrize(
    ("field", "there"), [("dataset_sha256", "e"), ("stack", "t"), ("patched_wheel_sha256", "q"), ("dtype", "fp8")]
)
def test_case_28_other_inputs_than_the_manifests_are_refused_by_naming_them(tmp_path, field, there):
    found = manifest.Manifest(dataclasses.replace(HEAD, **{field: there}), {})
    with pytest.raises(RunDirectoryError) as caught:
        plan.head(dataclasses.asdict(HEAD), found, tmp_path / "manifest.jsonl")
    assert caught.value.why == f"{field}: {there!r} there, {getattr(HEAD, field)!r} now"


def test_kimi_sample_of_512_tokens_is_29_megabytes():
    assert samples.size(512, 4, 7168) == pytest.approx(29.4e6, rel=0.01)


def test_a_sample_longer_than_the_limit_is_refused():
    with pytest.raises(RunDirectoryError) as caught:
        plan.refuse_long([512, 513, 600], 512)
    assert "sample 1 with 513 tokens" in caught.value.why


def test_another_layer_set_is_refused_by_naming_it(tmp_path):
    values = dataclasses.asdict(HEAD) | {"layer_ids": (1, 4, 5, 8)}
    with pytest.raises(RunDirectoryError) as caught:
        plan.head(values, manifest.Manifest(HEAD, {}), tmp_path / "manifest.jsonl")
    assert "layer_ids: (2, 4, 5, 8) there, (1, 4, 5, 8) now" in caught.value.why
