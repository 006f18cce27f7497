"""The small image of the real Containerfile, in a real podman."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from draftkiln.containers import inputs, reproduce, verify
from draftkiln.containers.build import build, identity
from draftkiln.containers.launch import Gpus, Launch, Mount, run_line
from draftkiln.containers.running import detached, foreground, listed, stop
from draftkiln.errors import ContainerError, StorageError

pytestmark = pytest.mark.container
SLEEP = (
    "import time\nfrom draftkiln import cli\nfrom draftkiln.containers import entry\n"
    "cli.main = lambda _: print('ready', flush=True) or time.sleep(120)\nentry.main([])"
)


def python(light, code, **wishes):
    return Launch(light.tag, ("-c", code), program="/opt/env/bin/python", **wishes)


def output(podman, launch):
    done = podman.attempt(*run_line(podman, launch)[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_is_there_in_three_seconds(podman, light):
    began = time.monotonic()
    assert "usage: draftkiln" in output(podman, Launch(light.tag, ("--help",)))
    assert time.monotonic() - began < 3


@pytest.mark.usefixtures("light")
def test_the_image_is_its_lock(podman):
    checks = verify.verify(podman, inputs.collect("light"), imports=("draftkiln", "numpy", "pydantic"))
    assert [str(check) for check in checks if check.problem] == []


def test_nothing_of_the_build_machine_is_inside(podman, light):
    root = Path(podman.capture("image", "mount", light.tag).strip())
    try:
        for name in ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/apt/sources.list", "root/.cache"):
            assert not (root / name).exists() or not (root / name).stat().st_size, name
        files = list(dict(reproduce.inventory(root)))
        assert not [name for name in files if name.endswith(("uv_cache.json", "direct_url.json")) or "uv-cache" in name]
        assert not [name for name in files if name.startswith(("mnt/", "tmp/", "var/log/", "var/lib/apt/lists/"))]
    finally:
        podman.capture("image", "unmount", light.tag)


def test_labels_and_provenance_say_what_made_it(podman, light):
    wanted = inputs.collect("light").provenance()
    code = "print(open('/opt/draftkiln/provenance.json').read())"
    assert json.loads(output(podman, python(light, code))) == json.loads(json.dumps(wanted))
    config = json.loads(podman.capture("image", "inspect", light.tag))[0]["Config"]
    assert config["Labels"]["org.opencontainers.image.revision"] == wanted["revision"]
    assert config["User"] == "1000:1000"
    assert config["StopSignal"] == "SIGTERM"


def test_case_62_a_uid_that_nobody_knows_has_a_name_and_writes_home_and_caches(podman, light):
    code = (
        "import getpass, os, pathlib, json\n"
        "pathlib.Path.home().joinpath('x').write_text('x')\n"
        "cache = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR']); cache.mkdir(parents=True)\n"
        "print(json.dumps([os.getuid(), getpass.getuser()]))"
    )
    assert json.loads(output(podman, python(light, code, user=(54321, 54321)))) == [54321, "draftkiln"]


def test_containers_have_no_network_no_capability_and_a_read_only_root(podman, light):
    code = (
        "import json, pathlib, socket\n"
        "found = {'interfaces': [name for _, name in socket.if_nameindex()]}\n"
        "try: pathlib.Path('/opt/x').write_text('x')\n"
        "except OSError as error: found['write'] = error.strerror\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "found['caps'] = [line.split()[1] for line in status.splitlines() if line.startswith('CapEff')][0]\n"
        "found['nnp'] = [line.split()[1] for line in status.splitlines() if line.startswith('NoNewPrivs')][0]\n"
        "print(json.dumps(found))"
    )
    found = json.loads(output(podman, python(light, code, user=(0, 0))))
    assert found == {"interfaces": ["lo"], "write": "Read-only file system", "caps": "0" * 16, "nnp": "1"}


def test_case_33_shared_memory_for_several_workers(podman, light):
    code = "import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)"
    assert int(output(podman, python(light, code, workers=2, shared_memory="256m"))) == 256 << 20


def test_case_63_output_belongs_to_the_caller(podman, light, tmp_path):
    tmp_path.chmod(0o755)
    os.chown(tmp_path, 4321, 4321)
    code = f"open('{tmp_path}/made', 'w').write('x')"
    launch = python(
        light, code, user=(4321, 4321), mounts=(Mount(tmp_path, str(tmp_path), writable=True, shared=False),)
    )
    output(podman, launch)
    assert (tmp_path / "made").stat().st_uid == 4321


def test_mounts_are_read_only_unless_asked(podman, light, tmp_path):
    launch = python(light, f"open('{tmp_path}/made', 'w')", mounts=(Mount(tmp_path, str(tmp_path)),))
    done = podman.attempt(*run_line(podman, launch)[1:])
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize("code", [0, 7, 12])
def test_exit_codes_are_passed_on(podman, light, code):
    assert foreground(podman, python(light, f"raise SystemExit({code})")) == code


def test_sigterm_ends_a_stage_with_143(light):
    code = (
        "import sys\nfrom draftkiln.containers.engine import find\nfrom draftkiln.containers.launch import Launch\n"
        "from draftkiln.containers.running import foreground\n"
        f"sys.exit(foreground(find('podman'), Launch({light.tag!r}, ('-c', {SLEEP!r}), program='/opt/env/bin/python')))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    process.stdout.close()
    assert time.monotonic() - began < 8, "it ended by itself, not by being killed"


@pytest.mark.parametrize("name", ["run", "a b,c=d 'e' \"f\" é"])
def test_a_detached_stage_is_listed_stopped_and_removed(podman, light, tmp_path, name):
    run = tmp_path / name
    run.mkdir()
    mounts = (Mount(run, str(run), writable=True, shared=False),)
    code = f"open({str(run / 'made')!r}, 'w')\n{SLEEP}"
    words = {"mounts": mounts, "workdir": str(run), "home": str(tmp_path)}
    launch = python(light, code, name="draftkiln-test-detached", label=str(run), detach=True, **words)
    detached(podman, launch)
    with pytest.raises(ContainerError, match="runs already"):
        detached(podman, launch)
    (found,) = listed(podman, run)
    assert found.state == "running"
    until = time.monotonic() + 60
    while "ready" not in podman.capture("logs", found.name) and time.monotonic() < until:
        time.sleep(0.2)
    assert stop(podman, found) == 143
    assert listed(podman, run) == []
    assert (run / "made").exists()


def test_case_61_no_cdi_specification_ends_in_one_cause_and_one_step(podman, light):
    with pytest.raises(ContainerError, match="did not start") as caught:
        foreground(podman, replace(python(light, "1"), gpus=Gpus()))
    assert "no CDI specification" in caught.value.why
    assert "nvidia-ctk cdi generate" in caught.value.fix


def test_case_32_podman_gives_a_gpu_through_cdi(podman, light):
    """A made-up specification: the device of its GPU is /dev/null, and it sets a variable."""
    folder = Path("/etc/cdi")
    if os.geteuid() != 0 or list(folder.glob("nvidia*")):
        pytest.skip("needs root and no real specification")
    folder.mkdir(exist_ok=True)
    spec = folder / "nvidia-draftkiln-test.json"
    devices = [{"name": name, "containerEdits": {"env": [f"FAKE_GPU_{name}=1"]}} for name in ("all", "0", "1")]
    spec.write_text(json.dumps({"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": devices}))
    try:
        code = "import os; print(sorted(key for key in os.environ if key.startswith('FAKE_GPU')))"
        assert output(podman, python(light, code, gpus=Gpus())).strip() == "['FAKE_GPU_all']"
        assert output(podman, python(light, code, gpus=Gpus(count=2))).strip() == "['FAKE_GPU_0', 'FAKE_GPU_1']"
    finally:
        spec.unlink()


@pytest.mark.usefixtures("light")
def test_a_build_that_fails_tags_nothing(podman, tmp_path):
    """A wheel whose bytes are not the locked ones stops the build inside, too."""
    made = inputs.collect("light")
    broken = replace(made, name="light-broken", speculators_sha256="0" * 64)
    with pytest.raises((ContainerError, StorageError)):
        build(podman, broken, context=tmp_path / "context")
    assert podman.attempt("image", "inspect", broken.tag).returncode != 0


def test_a_rebuild_changes_nothing(podman, light):
    assert build(podman, inputs.collect("light")).image_id == light.image_id == identity(podman, light.tag)
