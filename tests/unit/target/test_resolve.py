import pytest

from draftkiln.errors import TargetError
from draftkiln.recipe.model import FetchTarget, HubTarget, MakeTarget, PathTarget
from draftkiln.target import record, resolve


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    lines = []
    folder = resolve.ensure(MakeTarget(make="small"), root, announce=lines.append)
    return root, folder, lines


def test_a_made_target_is_made_once(made):
    root, folder, lines = made
    before = (folder / "config.json").stat().st_mtime_ns
    again = []
    assert resolve.ensure(MakeTarget(make="small"), root, announce=again.append) == folder
    assert (folder / "config.json").stat().st_mtime_ns == before
    assert lines == [f"target: small -> {folder}"]
    assert again == []


def test_the_folder_is_named_by_the_source_and_a_hash_of_all_of_it(tmp_path):
    sources = [
        MakeTarget(make="small"),
        MakeTarget(make="small", seed=18),
        MakeTarget(make="kimi-tiny"),
        FetchTarget(fetch="smollm2"),
        HubTarget(hub="moonshotai/Kimi-K2.5", revision="0" * 40),
        HubTarget(hub="moonshotai/Kimi-K2.5", revision="1" * 40),
    ]
    names = [resolve.location(source, tmp_path).name for source in sources]
    assert len(set(names)) == len(names)
    assert [name.rsplit("-", 1)[0] for name in names] == [
        "small", "small", "kimi-tiny", "smollm2", "moonshotai--Kimi-K2.5", "moonshotai--Kimi-K2.5",
    ]  # fmt: skip


def test_without_a_root_targets_lie_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path))
    assert resolve.location(MakeTarget(make="small")).parent == tmp_path / "targets"


def test_a_path_is_taken_as_it_is(tmp_path):
    assert resolve.ensure(PathTarget(path=str(tmp_path / "mine"))) == tmp_path / "mine"


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_a_damaged_target_is_refused_by_naming_the_file(tmp_path, damage):
    folder = resolve.ensure(MakeTarget(make="small"), tmp_path)
    file = folder / "tokenizer.json"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    with pytest.raises(TargetError, match=r"differs from its target.json"):
        resolve.ensure(MakeTarget(make="small"), tmp_path)


def test_hashes_show_a_change_that_sizes_do_not(tmp_path):
    folder = resolve.ensure(MakeTarget(make="small"), tmp_path)
    file = folder / "config.json"
    file.write_text(file.read_text().replace("silu", "gelu"))
    found = record.read_record(folder)
    assert record.problems(folder, found, hashes=False) == []
    assert [line.split()[0] for line in record.problems(folder, found, hashes=True)] == ["config.json"]


@pytest.mark.parametrize("text", ['{"schema_version": 2}', "{", "[]"])
def test_a_record_of_another_version_or_a_broken_one_is_refused(tmp_path, text):
    (tmp_path / record.NAME).write_text(text)
    with pytest.raises(TargetError):
        record.read_record(tmp_path)
