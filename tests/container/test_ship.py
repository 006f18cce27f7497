"""Publishing to a registry on the loopback, and bundles that are installed elsewhere."""

import json
import shutil
import socket
import subprocess
import sys
import time

import pytest

from draftkiln.containers import build, bundle, inputs, publish, reproduce
from draftkiln.errors import PinError

pytestmark = pytest.mark.container


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    program = shutil.which("docker-registry")
    if program is None:
        pytest.fail("docker-registry is not installed: sudo apt-get install -y docker-registry", pytrace=False)
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
        "log": {"level": "error"},
    }
    (folder / "config.yml").write_text(json.dumps(config))
    with subprocess.Popen([program, "serve", str(folder / "config.yml")], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
        process.terminate()


def test_an_image_is_published_and_mirrored_by_digest(podman, light, registry):
    reference = publish.push(podman, light.tag, f"{registry}/draftkiln/light:1")
    assert publish.configuration(reference) == light.image_id
    mirrored = publish.mirror(reference, f"{registry}/elsewhere/light:1")
    assert mirrored.partition("@")[2] == reference.partition("@")[2]
    assert podman.attempt("image", "inspect", f"{registry}/draftkiln/light:1").returncode != 0, "no tag is left here"


def test_case_15_a_digest_that_is_gone_is_not_replaced(registry):
    with pytest.raises(PinError, match="cannot be copied") as caught:
        publish.mirror(f"{registry}/draftkiln/none@sha256:{'a' * 64}", f"{registry}/elsewhere/none:1")
    assert "gone" in caught.value.why


def test_an_image_travels_in_parts_and_keeps_its_id(podman, light, tmp_path):
    out = tmp_path / "bundle"
    manifest = bundle.image(podman, inputs.collect("light"), out, chunk=20 << 20)
    assert len(manifest["parts"]) > 1
    # An engine with a store of its own stands for the host without a network.
    other = tmp_path / "podman-elsewhere"
    store = f"--root {tmp_path}/s --runroot /tmp/draftkiln-test-{tmp_path.parent.name[-6:]}"
    other.write_text(f'#!/bin/sh\nexec {podman.program} {store} "$@"\n')
    other.chmod(0o755)
    command = [sys.executable, "-I", str(out / "install.py"), "--engine", str(other)]
    done = subprocess.run(command, env=podman.variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words = ["image", "inspect", "--format", "{{.Id}}", light.tag]
    asked = subprocess.run([str(other), *words], env=podman.variables(), capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == light.image_id


def test_a_stacks_wheels_travel_without_what_the_host_has(tmp_path):
    """The light lock, with all but one package on the host."""
    collected = inputs.collect("light", make_base=False, need_base=False)
    have = {package.name: package.version for package in collected.packages if package.name != "rich"}
    manifest = bundle.wheels(collected, tmp_path / "b", chunk=1 << 20, leaner=bundle.Leaner(have))
    assert [item["name"].split("-")[0] for item in manifest["files"]] == ["rich", "speculators", "draftkiln.zip"]
    assert set(manifest["on_host"]) == set(have)


def test_a_build_from_another_checkout_under_another_umask_is_bit_identical(podman, light):
    """`nox -s reproduce` makes both anew; here the first is the image that is there."""
    first = reproduce.fingerprint(podman, light.tag, build.Store())
    second = reproduce.build_apart(podman, "light", 1)
    assert list(reproduce.differences(first, second)) == []
    assert first == second
    assert len(first.blobs) >= 6
