import json
import os
from pathlib import Path

import pytest
from packaging.version import Version

from draftkiln import cli
from draftkiln import stage as draftkiln_stage
from draftkiln.containers import stage
from draftkiln.containers.engine import Engine, Kind
from draftkiln.containers.launch import Gpus, Launch, Mount, run_line
from draftkiln.containers.stage import Wishes
from draftkiln.errors import ExitCode, RunDirectoryError
from draftkiln.recipe.load import load
from draftkiln.stack.model import read

RECIPE = """\
schema_version: 1
name: small
stacks: {{extract: {extract}, train: spec0.9.0-vllm0.32.0-cpu, evaluate: spec0.9.0-vllm0.32.0-cpu}}
target: {{source: {{path: {target}}}, load_format: dummy, tensor_parallel_size: {tp}}}
layers: {{aux: [2, 4, 5]}}
data: {{source: {{path: {data}}}}}
validate: {{against: null}}
train: {{draft: {{num_attention_heads: 8, num_key_value_heads: 8, intermediate_size: 64}}}}
"""
TARGET = {"num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HOME", raising=False)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(TARGET))
    (tmp_path / "target" / "tokenizer.json").write_text("{}")
    (tmp_path / "data.jsonl").write_text("")

    def write(extract="spec0.3.0-vllm0.16.0-cpu", tp=1):
        file = tmp_path / "small.yaml"
        text = RECIPE.format(extract=extract, target=tmp_path / "target", data=tmp_path / "data.jsonl", tp=tp)
        file.write_text(text)
        return file

    return write


def test_a_stage_sees_what_it_reads_and_writes_its_run_directory_alone(recipe, tmp_path):
    file = recipe()
    launch = stage.launch("extract", file, tmp_path / "run", Wishes())
    writable = {str(mount.source) for mount in launch.mounts if mount.writable}
    compiled = tmp_path / "cache" / "compiled" / "spec0.3.0-vllm0.16.0-cpu" / str(os.getuid())
    assert writable == {str(tmp_path / "run"), str(compiled)}
    read = {str(mount.source) for mount in launch.mounts if not mount.writable}
    assert read == {str(file), str(tmp_path / "target"), str(tmp_path / "data.jsonl")}
    assert launch.command == ("extract", "--recipe", str(file), "--run", str(tmp_path / "run"))
    assert launch.gpus is None
    assert launch.network == "none"


def test_prompt_sets_of_the_evaluation_are_seen_inside(recipe, tmp_path):
    file = recipe()
    (tmp_path / "q.jsonl").write_text("")
    sets = [{"name": "a", "path": str(tmp_path / "q.jsonl"), "form": "gsm8k"}]
    sets.append({"name": "b", "path": str(tmp_path / "none.jsonl"), "form": "gsm8k"})
    file.write_text(f"{file.read_text()}evaluate: {json.dumps({'sets': sets})}\n")
    seen = {str(mount.source) for mount in stage.launch("evaluate", file, tmp_path / "run", Wishes()).mounts}
    assert str(tmp_path / "q.jsonl") in seen
    assert str(tmp_path / "none.jsonl") not in seen


def test_a_published_draft_to_start_from_is_seen_inside(recipe, tmp_path):
    file = recipe()
    (tmp_path / "draft").mkdir()
    file.write_text(file.read_text().replace("train: {", f"train: {{init_from: {{path: {tmp_path / 'draft'}}}, "))
    seen = {
        str(mount.source): mount.writable for mount in stage.launch("train", file, tmp_path / "run", Wishes()).mounts
    }
    assert seen[str(tmp_path / "draft")] is False


def test_a_fetched_draft_to_start_from_is_seen_inside_with_room_for_its_lock(recipe, tmp_path):
    file = recipe()
    source = "{hub: someone/draft, revision: %s}" % ("a" * 40)
    file.write_text(file.read_text().replace("train: {", f"train: {{init_from: {source}, "))
    drafts = tmp_path / "cache" / "drafts"
    assert str(drafts) not in {
        str(mount.source) for mount in stage.launch("train", file, tmp_path / "run", Wishes()).mounts
    }
    drafts.mkdir(parents=True)
    seen = {
        str(mount.source): mount.writable for mount in stage.launch("train", file, tmp_path / "run", Wishes()).mounts
    }
    assert seen[str(drafts)] is True


def test_case_63_caches_belong_to_whom_the_run_directory_belongs(recipe, tmp_path, monkeypatch):
    """Root starts the container, the files are written as the run directory's owner."""
    owners = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(stage, "caller", lambda _run: (4321, 4322))
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: owners.append((str(path), uid, gid)))
    launch = stage.launch("extract", recipe(), tmp_path / "run", Wishes())
    cache = next(mount for mount in launch.mounts if mount.target == stage.COMPILE_CACHE)
    assert owners == [(str(cache.source), 4321, 4322)]
    assert launch.user == (4321, 4322)


def test_relative_paths_mean_the_same_inside(recipe, tmp_path, monkeypatch):
    file = recipe()
    monkeypatch.chdir(tmp_path)
    launch = stage.launch("extract", file, tmp_path / "run", Wishes())
    assert launch.workdir == str(tmp_path)
    words = run_line(Engine(Kind.PODMAN, "podman", Version("4.3.1")), launch)
    assert f"{tmp_path}:rw,mode=0755" in words
    monkeypatch.chdir("/")
    assert stage.launch("extract", file, tmp_path / "run", Wishes()).workdir is None


def test_each_stage_runs_in_the_image_of_its_stack(recipe, tmp_path):
    file = recipe()
    assert stage.launch("extract", file, tmp_path / "run", Wishes()).image.endswith("/spec0.3.0-vllm0.16.0-cpu")
    assert stage.launch("train", file, tmp_path / "run", Wishes()).image.endswith("/spec0.9.0-vllm0.32.0-cpu")


def test_a_gpu_stack_gets_as_many_gpus_as_workers(recipe, tmp_path):
    file = recipe(extract="spec0.3.0-vllm0.16.0-cu128", tp=8)
    launch = stage.launch("extract", file, tmp_path / "run", Wishes())
    assert (launch.gpus, launch.workers) == (Gpus(count=8), 8)
    chosen = stage.launch("extract", file, tmp_path / "run", Wishes(gpus=Gpus(ids=("4", "5"))))
    assert chosen.gpus == Gpus(ids=("4", "5"))


def test_case_32_a_cpu_stack_never_asks_for_gpus(recipe, tmp_path):
    assert stage.launch("extract", recipe(), tmp_path / "run", Wishes(gpus=Gpus())).gpus is None


def test_case_63_a_run_directory_of_another_user_is_refused_before_the_start(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunDirectoryError, match="cannot be written") as caught:
        stage.launch("extract", recipe(), tmp_path / "run", Wishes())
    assert "chown" in caught.value.fix


def test_dry_run_prints_the_line_and_runs_nothing(recipe, tmp_path, stub, capsys, monkeypatch):
    asked = stub("podman")
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    words = ["image", "stage", "extract", "--recipe", str(recipe()), "--run", str(tmp_path / "run"), "--dry-run"]
    assert cli.main(words) == ExitCode.OK
    assert capsys.readouterr().out.startswith("podman run --pull never --rm --label draftkiln.run=")
    assert asked.calls == []
    assert not (tmp_path / "run").exists()


def test_a_dry_run_says_what_the_stage_would_do_in_its_run_directory(recipe, tmp_path, stub, capsys):
    stub("podman")
    words = ["image", "stage", "extract", "--recipe", str(recipe()), "--run", str(tmp_path / "run"), "--dry-run"]
    assert cli.main(words) == ExitCode.OK
    assert capsys.readouterr().err == "extract: needs prepare first\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"schema_version": 1, "recipe": "large"}')
    assert cli.main(words) == ExitCode.RUN_DIRECTORY
    told = capsys.readouterr()
    assert "recipe: 'large' there, 'small' now" in told.err
    assert told.out == ""


def test_a_dry_run_of_a_shard_does_not_ask_the_recipe_for_it(recipe, tmp_path, stub, capsys):
    stub("podman")
    file = recipe()
    kept = tmp_path / "run" / "extract" / "manifest.jsonl"
    kept.parent.mkdir(parents=True)
    kept.touch()
    (tmp_path / "run" / "run.json").write_text('{"schema_version": 1, "recipe": "small"}')
    content, _ = draftkiln_stage.contents(load(file))
    inputs = draftkiln_stage.inputs("extract", content, read("spec0.3.0-vllm0.16.0-cpu"), tmp_path / "target", {})
    record = {"inputs": inputs | {"shard": "1/4"}}
    (kept.parent / "begun.json").write_text(json.dumps(record))
    words = ["image", "stage", "extract", "--recipe", str(file), "--run", str(tmp_path / "run"), "--dry-run"]
    assert cli.main([*words, "--stage-argument=--shard=1/4"]) == ExitCode.OK
    assert capsys.readouterr().err == "extract: would go on where it stopped\n"
    assert cli.main(words) == ExitCode.RUN_DIRECTORY
    assert "shard: '1/4' before, nothing now" in capsys.readouterr().err


def test_arguments_of_the_stage_itself_reach_it(recipe, tmp_path, stub, capsys):
    stub("podman")
    words = ["image", "stage", "extract", "--recipe", str(recipe()), "--run", str(tmp_path / "run"), "--dry-run"]
    assert cli.main([*words, "--stage-argument=--shard=1/4", "--stage-argument", "x y"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith(f" --run {tmp_path / 'run'} --shard=1/4 'x y'\n")


def test_an_image_that_is_not_built_is_told_before_a_target_is_made(recipe, tmp_path, stub, capsys):
    stub("podman", code=125)
    file = recipe()
    file.write_text(file.read_text().replace(f"{{path: {tmp_path / 'target'}}}", "{make: small, seed: 17}"))
    words = ["image", "stage", "extract", "--recipe", str(file), "--run", str(tmp_path / "run")]
    assert cli.main(words) == ExitCode.CONTAINER
    assert "is not built" in capsys.readouterr().err
    assert not (tmp_path / "cache" / "targets").exists()


def test_a_detached_stage_stays_and_is_named_after_its_run(recipe, tmp_path, stub, built, capsys):
    asked = stub("podman", labels=built("spec0.3.0-vllm0.16.0-cpu"))
    words = ["image", "stage", "extract", "--recipe", str(recipe()), "--run", str(tmp_path / "run"), "--detach"]
    assert cli.main(words) == ExitCode.OK
    line = next(call for call in asked.calls if call[0] == "run")
    assert "--detach" in line
    assert "--rm" not in line
    assert line[line.index("--name") + 1].startswith("draftkiln-small-extract-")
    assert f"draftkiln.run={tmp_path / 'run'}" in line
    assert "status, logs or stop" in capsys.readouterr().out
    assert (tmp_path / "run").is_dir()


def test_a_container_whose_stage_wrote_nothing_leaves_no_run_directory(recipe, tmp_path, stub, built):
    """It was refused inside, or the engine did not start it; the folder was made to be mounted."""
    labels = built("spec0.3.0-vllm0.16.0-cpu")
    asked = stub("podman", labels=labels)
    words = ["image", "stage", "extract", "--recipe", str(recipe()), "--run"]
    assert cli.main([*words, str(tmp_path / "new" / "run")]) == ExitCode.OK
    assert "run" in {call[0] for call in asked.calls}
    assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    assert cli.main([*words, str(tmp_path / "there")]) == ExitCode.OK
    assert (tmp_path / "there").is_dir()


def test_a_stage_that_is_refused_on_its_way_into_a_container_leaves_no_run_directory(recipe, tmp_path, stub, built):
    stub("podman", labels=built("spec0.3.0-vllm0.16.0-cpu"))
    file = recipe()
    file.write_text(file.read_text().replace(f"{{path: {tmp_path / 'target'}}}", "{fetch: smollm2}"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "targets").touch()
    words = ["image", "stage", "extract", "--recipe", str(file), "--run", str(tmp_path / "new" / "run"), "--detach"]
    assert cli.main(words) == ExitCode.STORAGE
    assert not (tmp_path / "new").exists()


def test_a_stage_that_does_not_exist(recipe, tmp_path, capsys):
    words = ["image", "stage", "cook", "--recipe", str(recipe()), "--run", str(tmp_path / "run")]
    assert cli.main(words) == ExitCode.USAGE
    assert "prepare, extract" in capsys.readouterr().err


def test_a_whole_run_is_refused_before_its_first_stage_while_an_image_is_not_built(recipe, tmp_path, stub, capsys):
    stub("podman", code=125)
    words = ["run", "--recipe", str(recipe()), "--run", str(tmp_path / "run"), "--in-container", "extract"]
    assert cli.main(words) == ExitCode.CONTAINER
    assert "nox -s build -- --stack spec0.3.0-vllm0.16.0-cpu" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_home_is_the_same_inside_so_that_a_recipe_may_name_it(recipe, tmp_path, monkeypatch):
    """`~/models/kimi` of a recipe is read on both sides of the container's wall."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = recipe()
    file.write_text(file.read_text().replace(str(tmp_path / "target"), "~/target"))
    monkeypatch.chdir(tmp_path)
    launch = stage.launch("extract", file, tmp_path / "run", Wishes())
    assert launch.home == str(tmp_path)
    assert str(tmp_path / "target") in {mount.target for mount in launch.mounts}
    file.write_text(file.read_text().replace(str(tmp_path / "data.jsonl"), "~/data.jsonl"))
    mounts = stage.launch("prepare", file, tmp_path / "run", Wishes()).mounts
    assert str(tmp_path / "data.jsonl") in {mount.target for mount in mounts}
    words = run_line(Engine(Kind.PODMAN, "podman", Version("4.3.1")), launch)
    assert f"HOME={tmp_path}" in words
    places = [words[at + 1].partition(":")[0] for at, word in enumerate(words) if word == "--tmpfs"]
    assert sorted(places) == sorted({"/tmp", "/home/draftkiln", str(tmp_path)})
    assert words[words.index("--workdir") + 1] == str(tmp_path)


@pytest.mark.parametrize("home", ["/", "/opt", "/home", "/data/a:b"])
def test_a_home_that_cannot_be_laid_inside_is_the_images(recipe, tmp_path, monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    assert stage.launch("extract", recipe(), tmp_path / "run", Wishes()).home == "/home/draftkiln"


@pytest.mark.parametrize("run", ["/tmp", "/home/draftkiln"])
def test_no_place_is_mounted_twice(run):
    """Engines refuse it."""
    launch = Launch("x", (), mounts=(Mount(Path(run), run, writable=True),), home=run, workdir=run)
    words = run_line(Engine(Kind.PODMAN, "podman", Version("4.3.1")), launch)
    places = [
        words[at + 1].split(":")[-2 if word == "--volume" else 0]
        for at, word in enumerate(words)
        if word in {"--volume", "--tmpfs"}
    ]
    assert len(places) == len(set(places))


def test_what_is_not_there_is_not_mounted_but_told_by_the_stage(recipe, tmp_path):
    file = recipe()
    (tmp_path / "data.jsonl").unlink()
    seen = {str(mount.source) for mount in stage.launch("prepare", file, tmp_path / "run", Wishes()).mounts}
    assert str(tmp_path / "data.jsonl") not in seen


def test_weights_that_are_links_are_seen_inside(recipe, tmp_path, monkeypatch):
    """As in a cache of the Hub: `snapshots/REVISION/x` is a link to `../../blobs/HASH`."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "none"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "abc").write_text("")
    (tmp_path / "target" / "a.safetensors").symlink_to(tmp_path / "elsewhere" / "abc")
    (tmp_path / "target" / "b.safetensors").symlink_to("../elsewhere/abc")
    (tmp_path / "target" / "own.json").symlink_to("own")
    mounts = stage.launch("extract", recipe(), tmp_path / "run", Wishes()).mounts
    assert [str(mount.source) for mount in mounts if "elsewhere" in str(mount.source)] == [str(tmp_path / "elsewhere")]
    assert len({mount.target for mount in mounts}) == len(mounts)


@pytest.mark.parametrize("place", ["a:b", "c/d:e"])
def test_a_run_directory_that_cannot_be_mounted_is_refused_before_the_first_stage(
    recipe, tmp_path, stub, built, capsys, place
):
    """Stages in environments would take hours before the one in a container is refused."""
    asked = stub("podman", labels=built("spec0.9.0-vllm0.32.0-cpu"))
    words = ["run", "--recipe", str(recipe()), "--run", str(tmp_path / place), "--in-container", "train"]
    assert cli.main(words) == ExitCode.USAGE
    assert "engines split mounts at `:`" in capsys.readouterr().err
    assert not (tmp_path / place).exists()
    assert {call[0] for call in asked.calls} == {"image"}
    words = ["image", "stage", "train", "--recipe", str(recipe()), "--run", str(tmp_path / place)]
    assert cli.main(words) == ExitCode.USAGE
    assert not (tmp_path / place).exists()


def test_a_user_without_a_home_names_a_cache(recipe, tmp_path, stub, built, capsys, monkeypatch):
    stub("podman", labels=built("spec0.3.0-vllm0.16.0-cpu"))
    file = recipe()

    def homeless(*_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(stage.cache.Path, "home", homeless)
    words = ["image", "stage", "extract", "--recipe", str(file), "--run", str(tmp_path / "run"), "--dry-run"]
    assert cli.main(words) == ExitCode.OK
    monkeypatch.delenv("DRAFTKILN_CACHE")
    assert cli.main(words) == ExitCode.SYSTEM
    assert "DRAFTKILN_CACHE" in capsys.readouterr().err
