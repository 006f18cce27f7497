"""A run to an object store and back: every sample as its receipt says on arrival, nothing whole before its end."""

import json
import shutil
import sys
from pathlib import Path

import fsspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "extract"))

import stub_extraction as stub

from draftkiln import cli, durable, rundir
from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, plan, samples
from draftkiln.scale.copy_command import RECORD
from draftkiln.scale.publish import PLACES

COUNT = 9


@pytest.fixture
def run(tmp_path):
    """A run directory as a finished extraction leaves it."""
    folder = tmp_path / "run"
    durable.write_json(folder / "run.json", {"schema_version": 1, "recipe": "tiny"})
    durable.write_text(folder / "prepare" / "dataset" / "data.arrow", "rows")
    directory = rundir.RunDirectory(folder)
    directory.finish("prepare", {"data": "d"}, {})
    place = folder / "extract" / samples.FOLDER
    place.mkdir(parents=True)
    receipts = []
    for index in range(COUNT):
        (place / samples.name(index)).write_bytes(stub.file_bytes(index))
        size, checksum = len(stub.file_bytes(index)), samples.checksum(place / samples.name(index))
        receipts.append(manifest.Receipt(index, stub.length(index), size, checksum, "t"))
    manifest.create(folder / "extract" / manifest.FILE, stub.head(COUNT), receipts)
    directory.finish("extract", {"prepare.record": "p"}, {"samples": COUNT})
    return folder


@pytest.fixture
def url(tmp_path):
    yield f"memory://{tmp_path.name}/runs/one"
    fsspec.filesystem("memory").store.clear()


def copy(*words):
    return cli.main(["copy", *map(str, words)])


def test_what_comes_back_is_the_run_that_was_copied(run, url, tmp_path, capsys):
    assert copy(run, url) == 0
    assert f"all {COUNT} samples and their manifest are at {url}" in capsys.readouterr().out
    assert copy(url, tmp_path / "back") == 0
    back = tmp_path / "back"
    assert manifest.read(back / "extract" / manifest.FILE) == manifest.read(run / "extract" / manifest.FILE)
    todo = plan.compare(back / "extract" / samples.FOLDER, manifest.read(back / "extract" / manifest.FILE), full=True)
    assert (todo.remaining, todo.stray, todo.unfinished) == ([], [], [])
    for name in ("extract/stage.json", "prepare/stage.json", "prepare/dataset/data.arrow", "run.json"):
        assert (back / name).read_bytes() == (run / name).read_bytes()
    assert rundir.RunDirectory(back).require("extract")["results"] == {"samples": COUNT}


def test_what_is_there_is_not_copied_again_unless_it_was_cut_or_altered(run, url, tmp_path, capsys):
    assert copy(run, url) == 0
    store = fsspec.filesystem("memory")
    place = f"/{url.removeprefix('memory://')}/extract/{samples.FOLDER}"
    store.pipe_file(f"{place}/{samples.name(2)}", b"cut")
    data = bytearray(stub.file_bytes(3))
    data[-1] ^= 1
    store.pipe_file(f"{place}/{samples.name(3)}", bytes(data))
    capsys.readouterr()
    assert copy(run, url) == 0
    assert "copy: 1 samples" in capsys.readouterr().out
    assert copy(url, tmp_path / "back") == ExitCode.STORAGE
    assert f"{samples.name(3)} is not what its receipt says" in capsys.readouterr().err
    assert not (tmp_path / "back" / "extract" / "stage.json").exists()
    assert samples.name(3) not in {path.name for path in (tmp_path / "back" / "extract" / samples.FOLDER).iterdir()}
    assert copy(run, url, "--check-existing", "full") == 0
    assert "copy: 1 samples" in capsys.readouterr().out
    assert copy(url, tmp_path / "back") == 0
    assert f"1 of {COUNT} samples fetched" in capsys.readouterr().out


def test_a_file_that_was_altered_before_is_named_and_leaves_no_whole_copy(run, url, tmp_path, capsys):
    path = run / "extract" / samples.FOLDER / samples.name(4)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert copy(run, url) == ExitCode.STORAGE
    errors = capsys.readouterr().err
    assert f"{samples.name(4)} is not what its receipt says" in errors
    assert str(path) in errors
    assert not fsspec.filesystem("memory").exists(f"{url}/extract/{samples.FOLDER}/{samples.name(4)}")
    assert copy(url, tmp_path / "back") == ExitCode.STORAGE
    assert "holds no whole run" in capsys.readouterr().err


def test_samples_of_several_hosts_become_one_copy(run, url, tmp_path, capsys):
    """Each host has its own; the record of one says on which host the other's are."""
    mine, other = tmp_path / "mine", run / "extract" / samples.FOLDER
    mine.mkdir()
    for index in range(5):
        shutil.move(other / samples.name(index), mine)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(other, elsewhere)
    lines = [
        {"host": "a", "folder": str(mine), "indices": [[0, 5]]},
        {"host": "b", "folder": str(tmp_path / "not here"), "indices": [[5, COUNT]]},
    ]
    (run / "extract" / PLACES).write_text("\n".join(map(json.dumps, lines)) + '\n{"host": "b", "fol')
    record = json.loads((run / "extract" / "stage.json").read_text())
    record["inputs"]["samples_on"] = "the hosts that computed them"
    durable.write_json(run / "extract" / "stage.json", record)
    # What a replica computed and another delivered before is never taken.
    (mine / samples.name(7)).write_bytes(b"x")
    assert copy(run, url) == 0
    assert "4 samples are not on host" in capsys.readouterr().out
    assert copy(url, tmp_path / "back") == ExitCode.STORAGE
    elsewhere.rename(tmp_path / "not here")
    assert copy(run, url) == 0
    assert copy(url, tmp_path / "back") == 0
    assert "samples_on" not in rundir.RunDirectory(tmp_path / "back").require("extract")["inputs"]


def test_a_small_file_with_other_bytes_is_refused(run, url, tmp_path, capsys):
    assert copy(run, url) == 0
    fsspec.filesystem("memory").pipe_file(f"{url}/prepare/dataset/data.arrow", b"rowz")
    assert copy(url, tmp_path / "back") == ExitCode.STORAGE
    assert "has other bytes than were copied there" in capsys.readouterr().err


def test_a_store_that_leads_out_of_the_run_is_refused(run, url, tmp_path, capsys):
    assert copy(run, url) == 0
    store = fsspec.filesystem("memory")
    record = json.loads(store.cat_file(f"{url}/{RECORD}"))
    record["files"]["../out"] = record["files"]["run.json"]
    store.pipe_file(f"{url}/{RECORD}", json.dumps(record).encode())
    store.pipe_file("/" + str(Path(url.removeprefix("memory://"), "../out")), (run / "run.json").read_bytes())
    assert copy(url, tmp_path / "back") == ExitCode.STORAGE
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a", "b"], ExitCode.USAGE, "the other a URL"),
        (["memory://a", "memory://b"], ExitCode.USAGE, "the other a URL"),
        (["nosuch://a", "run"], ExitCode.USAGE, "no place that fsspec knows"),
        (["no-run", "memory://a"], ExitCode.RUN_DIRECTORY, "stage extract is not finished"),
    ],
)
def test_what_cannot_be_copied_is_refused(words, code, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert copy(*words) == code
    assert said in capsys.readouterr().err


def test_a_folder_of_this_host_is_a_place_too(run, tmp_path):
    assert copy(run, f"file://{tmp_path}/store/deep") == 0
    assert copy(f"file://{tmp_path}/store/deep", tmp_path / "back") == 0
    assert len(list((tmp_path / "back" / "extract" / samples.FOLDER).iterdir())) == COUNT
