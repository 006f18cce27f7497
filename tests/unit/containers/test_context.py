import json
import os
import runpy
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from packaging.version import Version

from draftkiln import checkout
from draftkiln.containers import base, build, context, inputs
from draftkiln.containers.base import BaseTar
from draftkiln.containers.engine import Engine, Kind
from draftkiln.containers.inputs import Inputs
from draftkiln.containers.locked import Platform
from draftkiln.errors import ContainerError, ExitCode, StackError, StorageError
from draftkiln.stack.model import read

STACK = read("spec0.3.0-vllm0.16.0-cpu")
PODMAN = Engine(Kind.PODMAN, "podman", Version("4.3.1"))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Inputs without wheels: enough to assemble a context from."""
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    tar, wheel, lock = tmp_path / "base.tar", tmp_path / "speculators-0.3.0+x-py3-none-any.whl", tmp_path / "r.lock"
    for file in (tar, wheel, lock):
        file.write_text("x\n")
    return Inputs(
        name="light", stack=STACK, platform=Platform("3.11", "x86_64"), requirements=lock, requirements_sha256="a" * 64,
        packages=(), speculators=wheel, speculators_sha256="b" * 64, base=BaseTar("cpu", tar, "c" * 64, ("a 1 all",)),
        epoch=1775421522, revision="d" * 40, source_sha256="f" * 64, warm="",
    )  # fmt: skip


def listing(folder):
    return {
        str(path.relative_to(folder)): (oct(path.stat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in sorted((folder / "tree").rglob("*"))
    }


def test_another_umask_gives_the_same_tree(made, tmp_path):
    found = []
    for number, mask in enumerate((0o022, 0o077)):
        earlier = os.umask(mask)
        try:
            found.append(listing(context.assemble(made, tmp_path / str(number))))
        finally:
            os.umask(earlier)
    assert found[0] == found[1]
    assert {mode for mode, _ in found[0].values()} == {"0o40755", "0o100644", "0o100755"}


def test_a_context_holds_nothing_of_this_machine(made, tmp_path):
    folder = context.assemble(made, tmp_path / "c")
    places = [str(checkout.root()).encode(), str(tmp_path).encode()]
    for path in [*folder.rglob("*.sh"), *(folder / "tree").rglob("*.json"), folder / "Containerfile"]:
        assert not [place for place in places if place in path.read_bytes()], path
    names = {path.name for path in folder.rglob("*")}
    assert not names & {".git", "__pycache__", ".venv", "runs"}


def test_the_launcher_can_be_imported_by_spawned_workers(made, tmp_path):
    launcher = context.assemble(made, tmp_path / "c") / "tree" / "usr" / "local" / "bin" / "draftkiln"
    assert 'if __name__ == "__main__":' in launcher.read_text()
    runpy.run_path(str(launcher), run_name="__mp_main__")


def test_untracked_files_that_git_ignores_stay_out(tmp_path):
    root = tmp_path / "checkout"
    (root / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("*.secret\n")
    (root / "src" / "a.py").write_text("")
    (root / "src" / "b.secret").write_text("")
    (root / "notes.txt").write_text("")
    assert inputs.carried(root) == ["src/a.py"]


def test_a_changed_checkout_says_so(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert inputs.revision(tmp_path) == "unknown"
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    clean = inputs.revision(tmp_path)
    assert len(clean) == 40
    (tmp_path / "src" / "a.py").write_text("changed")
    assert inputs.revision(tmp_path) == f"{clean}-dirty"


def test_build_lines_hold_every_pin_and_no_network(made, tmp_path):
    words = build.build_line(PODMAN, made, tmp_path)
    assert words[words.index("--network") + 1] == "none"
    assert words[words.index("--timestamp") + 1] == "1775421522"
    assert "--pull=never" in words
    for value in ("REQUIREMENTS_SHA256=" + "a" * 64, "SPECULATORS_SHA256=" + "b" * 64, "BASE_SHA256=" + "c" * 64):
        assert value in words
    docker = build.build_line(Engine(Kind.DOCKER, "docker", Version("27.0")), made, tmp_path)
    assert not [word for word in docker if word.startswith(("--timestamp", "--identity-label", "--layers"))]
    assert docker[docker.index("--network") + 1] == "none"


def test_a_base_from_a_registry_is_taken_by_digest(made, tmp_path):
    image = "registry.example.org/debian@sha256:" + "e" * 64
    words = build.build_line(PODMAN, replace(made, base=image), tmp_path)
    assert f"BASE={image}" in words
    assert "--pull=never" not in words


def test_no_room_is_told_before_anything_is_built(made, tmp_path, monkeypatch):
    folder = context.assemble(made, tmp_path / "c")
    monkeypatch.setattr(build.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1}))
    with pytest.raises(StorageError, match="not enough room") as caught:
        build.check_room(folder, tmp_path)
    assert caught.value.code is ExitCode.STORAGE


@pytest.mark.parametrize(("requirements", "cached"), [("a" * 64, True), ("f" * 64, False)])
def test_an_image_of_the_same_base_and_lock_takes_its_layers_again_in_little_room(made, tmp_path, requirements, cached):
    labels = json.dumps({"draftkiln.base": "c" * 64, "draftkiln.requirements": requirements})
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\necho '{labels}'\n")
    program.chmod(0o755)
    assert build.has_environment(replace(PODMAN, program=str(program)), made) is cached


def test_without_an_image_there_is_no_environment(made, stub):
    from draftkiln.containers.engine import ask

    stub("podman", code=125)
    assert not build.has_environment(ask("podman"), made)


def test_a_store_that_copies_images_is_refused_before_anything_is_fetched(made, tmp_path):
    with pytest.raises(ContainerError, match="vfs driver") as caught:
        build.build(replace(PODMAN, driver="vfs"), made, context=tmp_path / "c")
    assert 'driver = "overlay"' in caught.value.fix
    assert not (tmp_path / "c").exists()


def test_a_second_build_of_the_same_image_waits_for_the_first(made, tmp_path, stub, monkeypatch):
    """Both would write the same context."""
    from draftkiln.containers.engine import ask

    stub("podman")
    inside = []

    def stream(*_):
        inside.append(threading.current_thread())
        time.sleep(0.2)
        assert inside[-1] is threading.current_thread(), "another build began meanwhile"

    monkeypatch.setattr(build, "stream", stream)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build.build(ask("podman"), made), range(2)))
    assert len(set(inside)) == 2


def test_a_failed_build_is_an_error_and_nothing_is_recorded(made, tmp_path, stub):
    asked = stub("podman", code=125, says="write /x: no space left on device")
    from draftkiln.containers.engine import ask

    with pytest.raises(StorageError):
        build.build(ask("podman"), made, context=tmp_path / "c")
    assert not list(tmp_path.rglob("images/*.json"))
    assert "tag" not in [call[0] for call in asked.calls], "tagged by the build itself, only when it is complete"


def test_a_stack_without_the_bases_python_is_refused(monkeypatch):
    other = base.read("cpu").model_copy(update={"python": "3.9"})
    monkeypatch.setattr(inputs.bases, "read", lambda _: other)
    with pytest.raises(StackError, match=r"not locked for Python 3\.9"):
        inputs.collect(STACK.name, make_base=False)


def test_a_stack_that_does_not_exist():
    with pytest.raises(StackError, match="no stack named"):
        inputs.collect("nope")
