import signal
import subprocess
import sys
import time

import pytest
from packaging.version import Version

from draftkiln.containers import engine, running
from draftkiln.containers.engine import Engine, Kind
from draftkiln.containers.launch import Launch
from draftkiln.errors import ContainerError, ExitCode, UsageError

LAUNCH = Launch("localhost/draftkiln/x", ("extract",))


@pytest.mark.parametrize("code", [0, 3, 12, 143])
def test_the_stages_exit_code_is_passed_on(stub, code):
    stub("podman", code=code)
    assert running.foreground(engine.ask("podman"), LAUNCH) == code


@pytest.mark.parametrize("code", [125, 126, 127])
def test_case_61_an_engine_that_fails_is_explained_and_asked_once(stub, code, capfd):
    asked = stub("podman", code=code, says="Error: unresolvable CDI devices nvidia.com/gpu=all")
    with pytest.raises(ContainerError, match=f"exit code {code}") as caught:
        running.foreground(engine.ask("podman"), LAUNCH)
    assert "nvidia-ctk cdi generate" in caught.value.fix
    assert len(asked.calls) == 1, "never tried again without a GPU"
    assert "unresolvable CDI devices" in capfd.readouterr().err


def test_sigterm_goes_to_the_engine(tmp_path):
    program = tmp_path / "podman"
    program.write_text(
        f"#!{sys.executable}\nimport signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"open('{tmp_path}/ready', 'w')\ntime.sleep(30)\n"
    )
    program.chmod(0o755)
    code = (
        "import sys; from packaging.version import Version\n"
        "from draftkiln.containers.engine import Engine, Kind\nfrom draftkiln.containers.launch import Launch\n"
        "from draftkiln.containers.running import foreground\n"
        f"sys.exit(foreground(Engine(Kind.PODMAN, {str(program)!r}, Version('4.3')), Launch('x', ())))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 30
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143


def test_an_image_that_is_not_built_is_named_with_the_command_that_builds_it(stub):
    stub("podman", code=125)
    with pytest.raises(ContainerError, match="is not built") as caught:
        running.require_image(engine.ask("podman"), "localhost/draftkiln/s", "s")
    assert caught.value.fix == "nox -s build -- --stack s"
    assert caught.value.code is ExitCode.CONTAINER


def test_detaching_needs_a_name():
    with pytest.raises(UsageError):
        running.detached(Engine(Kind.PODMAN, "podman", Version("4.3.1")), LAUNCH)


@pytest.mark.parametrize("name", ["podman", "docker"])
def test_a_stage_is_stopped_by_words_that_every_engine_knows(stub, name):
    asked = stub(name)
    found = running.Running("draftkiln-x", "running", None, "/run")
    with pytest.raises(ValueError, match="Expecting value"):  # the stub knows no exit code
        running.stop(engine.ask(name), found)
    assert asked.calls[0] == ["stop", "-t", "600", "draftkiln-x"]


def _containers(tmp_path, *, run, removed="gone"):
    """An engine with three containers: detached, in the foreground, and one that is gone before it is asked for."""
    program = tmp_path / "podman"
    program.write_text(
        f"""#!{sys.executable}
import json, sys
words = sys.argv[1:]
if words[0] == "ps":
    print("detached\\nfront\\n{removed}")
elif words[-1] == {removed!r}:
    sys.exit(125)
else:
    facts = {{"State": {{"Running": False, "ExitCode": 3}}, "Config": {{"Labels": {{"draftkiln.run": {run!r}}}}}}}
    print(json.dumps([{{**facts, "HostConfig": {{"AutoRemove": words[-1] == "front"}}}}]))
"""
    )
    program.chmod(0o755)
    return Engine(Kind.PODMAN, str(program), Version("4.3.1"))


def test_only_detached_containers_are_listed_and_one_that_vanishes_is_no_error(tmp_path):
    found = running.listed(_containers(tmp_path, run="/r"))
    assert found == [running.Running("detached", "ended", 3, "/r")]


@pytest.mark.parametrize("run", ["/a b/c,d", "/x=y", "/café"])
def test_a_run_directory_is_found_whatever_its_name(tmp_path, run):
    engine = _containers(tmp_path, run=run)
    assert [item.name for item in running.listed(engine, run)] == ["detached"]
    assert running.listed(engine, run + "x") == []
