"""Shards: dealt out by index, merged by manifest without a copy, and refused by name when they do not fit together."""

import argparse
import dataclasses
import errno
import json
import os

import pytest
import stub_extraction as stub
from hypothesis import given
from hypothesis import strategies as st

from draftkiln import cli, durable
from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, merge, plan, samples, shards
from draftkiln.extract.shards import Shard

COUNT = 11


@given(st.integers(0, 200), st.integers(1, 12))
def test_shards_hold_every_sample_exactly_once(count, of):
    dealt = [index for number in range(1, of + 1) for index in Shard(number, of).indices(count)]
    assert sorted(dealt) == list(range(count))


@given(st.integers(1, 50), st.integers(1, 50))
def test_a_shard_is_read_as_it_is_written(number, of):
    if number <= of:
        assert shards.parse(str(Shard(number, of))) == Shard(number, of)
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            shards.parse(f"{number}/{of}")


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "1", "1/4/2", "-1/4", "a/b", "1/ 4", "٢/4", ""])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no shard"):
        shards.parse(text)


def run(folder, shard, *, count=COUNT, record="p", **more):
    """A run directory as a host leaves it after `extract --shard`."""
    durable.write_json(folder / "run.json", {"schema_version": 1, "recipe": "tiny"})
    durable.write_json(
        folder / "prepare" / "stage.json", {"schema_version": 1, "inputs": {"data": record}, "results": {}}
    )
    durable.write_text(folder / "prepare" / "dataset" / "state.json", "{}")
    head = dataclasses.replace(stub.head(count), shard=shard, **more)
    place = folder / "extract" / samples.FOLDER
    place.mkdir(parents=True)
    manifest.create(folder / "extract" / manifest.FILE, head)
    receipts = []
    for index in head.indices:
        path = place / samples.name(index)
        path.write_bytes(stub.file_bytes(index))
        checksum = samples.checksum(path)
        receipts.append(manifest.Receipt(index, stub.length(index), path.stat().st_size, checksum, "t"))
    manifest.append(folder / "extract" / manifest.FILE, receipts)
    inputs = {"prepare.record": record} | ({"shard": str(shard)} if shard else {})
    tokens = [stub.length(index) for index in head.indices]
    results = {
        "samples": len(tokens), "tokens": sum(tokens), "shape": [max(tokens), stub.SLOTS, stub.HIDDEN],
        "dtype": "bfloat16", "layer_ids": [1, 2], "seconds": 2.0,
    }  # fmt: skip
    durable.write_json(folder / "extract" / "stage.json", {"schema_version": 1, "inputs": inputs, "results": results})
    return folder


@pytest.fixture
def hosts(tmp_path):
    return [run(tmp_path / f"host-{number}", Shard(number, 3)) for number in (1, 2, 3)]


def merged(into, parts, capsys):
    code = cli.main(["merge", "--run", str(into), *map(str, parts)])
    return code, capsys.readouterr().err


def test_three_shards_become_the_run_that_one_host_would_have_made(tmp_path, hosts, capsys):
    code, errors = merged(tmp_path / "all", reversed(hosts), capsys)
    assert (code, errors) == (0, "")
    whole = run(tmp_path / "one", None)
    found, wanted = (manifest.read(path / "extract" / manifest.FILE) for path in (tmp_path / "all", whole))
    assert found == wanted
    assert list(found.receipts) == list(range(COUNT))
    folder = tmp_path / "all" / "extract" / samples.FOLDER
    todo = plan.compare(folder, found, full=True)
    assert (todo.remaining, todo.stray) == ([], [])
    for index in range(COUNT):
        there = hosts[index % 3] / "extract" / samples.FOLDER / samples.name(index)
        assert (folder / samples.name(index)).samefile(there)
    records = [json.loads((path / "extract" / "stage.json").read_text()) for path in (tmp_path / "all", whole)]
    assert records[0]["inputs"] == records[1]["inputs"]
    for key in ("samples", "tokens", "shape", "dtype", "layer_ids"):
        assert records[0]["results"][key] == records[1]["results"][key]
    assert (tmp_path / "all" / "prepare" / "dataset" / "state.json").read_text() == "{}"
    assert merged(tmp_path / "all", hosts, capsys)[0] == 0


def test_on_another_file_system_links_are_symbolic(tmp_path, hosts, capsys, monkeypatch):
    def refuse(_source, _target):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(merge.os, "link", refuse)
    assert merged(tmp_path / "all", hosts, capsys)[0] == 0
    folder = tmp_path / "all" / "extract" / samples.FOLDER
    assert (folder / samples.name(4)).is_symlink()
    assert plan.compare(folder, manifest.read(folder.parent / manifest.FILE), full=True).remaining == []


def test_a_merge_that_was_interrupted_is_taken_up_again(tmp_path, hosts, capsys, monkeypatch):
    real, links = os.link, []

    def link(source, target):
        links.append(target)
        if len(links) == 9:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(merge.os, "link", link)
        assert merged(tmp_path / "all", hosts, capsys)[0] == ExitCode.INTERRUPTED
    assert not (tmp_path / "all" / "extract" / "stage.json").exists()
    assert merged(tmp_path / "all", hosts, capsys)[0] == 0
    assert len(manifest.read(tmp_path / "all" / "extract" / manifest.FILE).receipts) == COUNT


def test_a_missing_shard_is_named(tmp_path, hosts, capsys):
    code, errors = merged(tmp_path / "all", hosts[:1], capsys)
    assert code == ExitCode.RUN_DIRECTORY
    assert "shards 2/3, 3/3 missing" in errors
    assert not (tmp_path / "all").exists()


def test_an_overlapping_shard_is_named_with_its_places(tmp_path, hosts, capsys):
    again = run(tmp_path / "again", Shard(2, 3))
    _, errors = merged(tmp_path / "all", [*hosts, again], capsys)
    assert f"shard 2/3 is there 2 times: {hosts[1]}, {again}" in errors


def test_parts_of_other_cuts_or_other_data_are_all_named_at_once(tmp_path, hosts, capsys):
    quarter = run(tmp_path / "quarter", Shard(3, 4))
    other = run(tmp_path / "other", Shard(3, 3), record="q", dataset_sha256="e")
    _, errors = merged(tmp_path / "all", [*hosts[:2], quarter, other], capsys)
    assert f"{quarter} has parts 4, {hosts[0]} has 3" in errors
    assert f"{other} has prepare.record 'q', {hosts[0]} has 'p'" in errors
    assert f"{other} has manifest.dataset_sha256 'e', {hosts[0]} has 'd'" in errors
    assert "shards 1/4, 2/4, 4/4 missing" in errors
    assert "Traceback" not in errors


def test_a_shard_with_a_hole_or_a_cut_file_is_named(tmp_path, hosts, capsys):
    folder = hosts[1] / "extract" / samples.FOLDER
    (folder / samples.name(4)).unlink()
    (folder / samples.name(7)).write_bytes(b"x")
    _, errors = merged(tmp_path / "all", hosts, capsys)
    assert f"{hosts[1]}: 2 samples are not there as their receipts say: hs_4.safetensors, hs_7.safetensors" in errors


def test_a_run_of_all_samples_and_an_unfinished_one_are_refused(tmp_path, hosts, capsys):
    _, errors = merged(tmp_path / "all", [run(tmp_path / "whole", None)], capsys)
    assert "holds all samples, not a shard of them" in errors
    (hosts[2] / "extract" / "stage.json").unlink()
    code, errors = merged(tmp_path / "all", hosts, capsys)
    assert code == ExitCode.RUN_DIRECTORY
    assert f"{hosts[2]}: stage extract is not finished" in errors


def test_a_manifest_of_a_shard_takes_no_sample_of_another(tmp_path, hosts):
    path = hosts[0] / "extract" / manifest.FILE
    manifest.append(path, [manifest.Receipt(1, 1, 1, "c", "t")])
    from draftkiln.errors import RunDirectoryError

    with pytest.raises(RunDirectoryError) as caught:
        manifest.read(path)
    assert "line 6: index 1 is none of shard 1/3 of 11 samples" in caught.value.why
    todo = plan.compare(
        hosts[0] / "extract" / samples.FOLDER,
        manifest.Manifest(dataclasses.replace(stub.head(COUNT), shard=Shard(2, 3)), {}),
    )
    assert todo.remaining == [1, 4, 7, 10]
    assert todo.stray == ["hs_0.safetensors", "hs_3.safetensors", "hs_6.safetensors", "hs_9.safetensors"]
