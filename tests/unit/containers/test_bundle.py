import json
import os
import shutil
import subprocess
import sys
import types
import zipfile
from io import BytesIO

import pytest

from draftkiln import cli
from draftkiln.containers import bundle, repack
from draftkiln.containers.locked import Locked, Platform
from draftkiln.errors import ExitCode, UsageError
from draftkiln.stack import environment

pytestmark = pytest.mark.slow

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def wheel(name, text="VALUE = 1\n", extra=None):
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}/__init__.py", text)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        for path, content in (extra or {}).items():
            archive.writestr(path, content)
    return buffer.getvalue()


@pytest.fixture
def written(tmp_path):
    """A bundle of two made-up wheels in parts of 100 bytes."""
    out = tmp_path / "bundle"
    data = {"one-1.0-py3-none-any.whl": wheel("one"), "two-1.0-py3-none-any.whl": wheel(
        "two", extra={"two-1.0.data/scripts/two": "#!python\n", "two-1.0.data/purelib/two/more.py": ""}
    )}  # fmt: skip
    items = [bundle.Item(name, BytesIO(content), len(content)) for name, content in data.items()]
    head = {
        "kind": "wheels", "stack": "s", "python": PYTHON, "machine": os.uname().machine, "on_host": {},
        "environment": {"HF_HUB_OFFLINE": "1"},
    }  # fmt: skip
    bundle._write(out, head, items, 100, 1)
    return out


def install(folder, *words):
    command = [sys.executable, "-I", str(folder / "install.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_parts_are_no_larger_than_asked_and_install_with_python_alone(written, tmp_path):
    assert max(path.stat().st_size for path in written.glob("part-*")) == 100
    done = install(written, "--target", str(tmp_path / "t"))
    assert done.returncode == 0, done.stderr
    code = "import one, two, two.more, os; print(one.VALUE, os.path.dirname(one.__file__))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "t")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["1", str(tmp_path / "t" / "one")]
    assert (tmp_path / "t" / "bin" / "two").stat().st_mode & 0o111
    assert "HF_HUB_OFFLINE=1" in (tmp_path / "t" / "env.sh").read_text()


def test_a_folder_of_any_name_takes_an_installation(written, tmp_path):
    target = tmp_path / "it's a folder"
    done = install(written, "--target", str(target))
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1].removeprefix("go on with: ").replace("python3 -m draftkiln --help", "env")
    found = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert f"PYTHONPATH={target}\n" in found
    refused = install(written, "--target", str(tmp_path / "a:b"))
    assert refused.returncode != 0
    assert "PYTHONPATH" in refused.stderr
    assert not (tmp_path / "a:b").exists()


def test_all_missing_and_changed_parts_are_named_and_nothing_is_installed(written, tmp_path):
    (written / "part-0001").unlink()
    (written / "part-0003").write_bytes(b"x" * 100)
    done = install(written, "--target", str(tmp_path / "t"))
    assert done.returncode == 1
    assert "part-0001 is missing" in done.stderr
    assert "part-0003 has other bytes" in done.stderr
    assert not (tmp_path / "t").exists()


def test_an_install_that_was_cut_goes_on_where_it_stopped(written, tmp_path):
    target = tmp_path / "t"
    assert install(written, "--target", str(target)).returncode == 0
    journal = target / ".draftkiln-bundle"
    first = journal.read_text().splitlines()[0]
    journal.write_text(first + "\n")
    shutil.rmtree(target / "two")
    (target / "one" / "__init__.py").write_text("VALUE = 2\n")
    done = install(written, "--target", str(target))
    assert "installed two" in done.stdout
    assert "installed one" not in done.stdout
    assert (target / "two" / "__init__.py").exists()
    assert (target / "one" / "__init__.py").read_text() == "VALUE = 2\n"


def test_what_the_bundle_leaves_out_must_be_on_the_host(written, tmp_path):
    file = written / "bundle.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"on_host": {"no-such-package": "1.0"}, "python": "3.1"}))
    done = install(written, "--target", str(tmp_path / "t"))
    assert done.returncode == 1
    assert "no-such-package 1.0 must be on this host" in done.stderr
    assert "for Python 3.1" in done.stderr


def test_a_bundle_that_was_cut_short_is_no_bundle(tmp_path):
    class Broken(BytesIO):
        def read(self, *_):
            raise RuntimeError("cut")

    with pytest.raises(RuntimeError):
        bundle._write(tmp_path / "b", {}, [bundle.Item("x", Broken(), 0)], 100, 1)
    assert not (tmp_path / "b" / "bundle.json").exists()


def test_the_same_inputs_give_the_same_parts(tmp_path):
    for name in ("a", "b"):
        bundle._write(tmp_path / name, {"kind": "wheels"}, [bundle.Item("x", BytesIO(b"abc" * 99), 0)], 64, 1)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert bundle.own_files() == bundle.own_files()


def test_a_small_bundle_installs_what_its_wheels_hold(tmp_path):
    source = tmp_path / "one-1.0-py3-none-any.whl"
    source.write_bytes(wheel("one", extra={"one/big.a": "left out"}))
    items = list(bundle._wheel_items([(source, "")], repack.Smaller(drop=("*.a",))))
    head = {
        "kind": "wheels", "stack": "s", "python": PYTHON, "machine": os.uname().machine, "on_host": {"pytest": "*"},
        "environment": {},
    }  # fmt: skip
    out = tmp_path / "small"
    manifest = bundle._write(out, head, items, 1 << 20, 1)
    assert manifest["files"][0]["changes"] == ["left out one/big.a"]
    done = install(out, "--target", str(tmp_path / "t"))
    assert done.returncode == 0, done.stderr
    assert "pytest: this host's own version is taken" in done.stdout
    assert (tmp_path / "t" / "one" / "__init__.py").read_text() == "VALUE = 1\n"
    assert not (tmp_path / "t" / "one" / "big.a").exists()
    assert (tmp_path / "t" / "containers" / "stacks").is_dir()
    assert not list((tmp_path / "t").glob(".part*"))


def test_the_hosts_own_version_will_do_where_it_was_named():
    packages = [Locked("numpy", "2.1.0", frozenset()), Locked("torch", "2.10.0", frozenset())]
    leaner = bundle.Leaner({"numpy": "2.5.2"}, host_version=frozenset({"NumPy", "torch"}))
    assert bundle.on_host(packages, leaner) == {"numpy": "2.5.2", "torch": "*"}
    with pytest.raises(UsageError, match="the lock has no scipy"):
        bundle.on_host(packages, bundle.Leaner(without=frozenset({"scipy"})))


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--gpu", "9.0"], "--small"), (["--small", "--gpu", "hopper"], "no compute capability")],
)
def test_words_that_do_not_go_together_are_refused(words, said, capsys):
    assert cli.main(["bundle", "--stack", "spec0.4.0.1-vllm0.20.2-cu130", *words]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_a_freeze_file_leaves_out_exactly_what_is_there(tmp_path):
    file = tmp_path / "freeze.txt"
    file.write_text("Torch==2.10.0+cu128\nnumpy==2.0.0\nmine @ file:///x.whl\n# c\n-e git+x\nPyYAML==6.0\n")
    have = bundle.read_freeze(file)
    packages = [
        Locked(name, version, frozenset())
        for name, version in (("torch", "2.10.0"), ("numpy", "2.1.0"), ("pyyaml", "6.0"))
    ]
    assert bundle.on_host(packages, bundle.Leaner(have)) == {"pyyaml": "6.0"}
    assert bundle.on_host(packages, bundle.Leaner(have, same_release=True)) == {
        "pyyaml": "6.0",
        "torch": "2.10.0+cu128",
    }


@pytest.mark.parametrize(("text", "size"), [("60M", 60 << 20), ("2G", 2 << 30), ("7", 7), ("1K", 1024)])
def test_sizes(text, size):
    assert bundle.size_of(text) == size


@pytest.mark.parametrize("text", ["", "0", "60MB", "-1", "x"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="not a size"):
        bundle.size_of(text)


def test_a_bundle_of_nothing_is_refused(capsys):
    assert cli.main(["bundle"]) == ExitCode.USAGE
    assert "name a stack or a recipe" in capsys.readouterr().err


def test_a_stack_that_does_not_exist_is_named(capsys):
    assert cli.main(["bundle", "--stack", "nope"]) == ExitCode.STACK
    assert "no stack named 'nope'" in capsys.readouterr().err


def inputs_of(name, versions, wheels):
    """What a bundle needs to know of a stack whose packages have these versions."""
    speculators = wheels / f"speculators-{name}-py3-none-any.whl"
    speculators.write_bytes(wheel("speculators", f"STACK = {name!r}\n"))
    return types.SimpleNamespace(
        stack=types.SimpleNamespace(name=name),
        packages=[Locked(package, version, frozenset()) for package, version in versions.items()],
        platform=Platform(PYTHON, os.uname().machine),
        speculators=speculators,
        revision="r",
        requirements_sha256="0",
    )


def test_several_stacks_share_what_they_have_alike_and_each_process_takes_its_own(tmp_path, monkeypatch):
    wheels = tmp_path / "wheels"
    wheels.mkdir()

    def fetch(packages, _platform):
        for package in packages:
            file = wheels / f"{package.name}-{package.version}-py3-none-any.whl"
            file.write_bytes(wheel(package.name, f"VERSION = {package.version!r}\n"))
        return [wheels / f"{package.name}-{package.version}-py3-none-any.whl" for package in packages]

    monkeypatch.setattr(bundle.wheelhouse, "fetch", fetch)
    first = inputs_of("spec0.4.0.1-vllm0.20.2-cu130", {"same": "1", "other": "1", "host": "3"}, wheels)
    second = inputs_of("spec0.9.0-vllm0.20.2-cu130", {"same": "1", "other": "2", "more": "1"}, wheels)
    leaner = bundle.Leaner({"host": "3"}, without=frozenset({"more"}))
    out = tmp_path / "bundle"
    manifest = bundle.together([first, second], out, chunk=1 << 20, leaner=leaner)
    assert [file["name"].split("-")[0] for file in manifest["files"]].count("same") == 1
    assert manifest["on_host"] == {"host": "3"}
    text = (out / "bundle.json").read_text().replace('"host": "3"', "")
    (out / "bundle.json").write_text(text)
    target = tmp_path / "t"
    assert install(out, "--target", str(target)).returncode == 0
    told = (target / "env.sh").read_text()
    assert f"DRAFTKILN_BUNDLE={target}\n" in told
    assert "DRAFTKILN_STACK" not in told
    monkeypatch.setenv(environment.BUNDLE, str(target))
    code = "import same, other, speculators; print(same.VERSION, other.VERSION, speculators.STACK)"
    for inputs, version in ((first, "1"), (second, "2")):
        variables = environment.ensure(inputs.stack.name).variables()
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["1", version, inputs.stack.name]


def test_images_are_not_put_together(capsys):
    assert cli.main(["bundle", "--stack", "a", "--together", "--image"]) == ExitCode.USAGE
    assert "--together is for wheels" in capsys.readouterr().err
