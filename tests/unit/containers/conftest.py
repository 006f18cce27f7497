import json
import stat

import pytest

from draftkiln import checkout
from draftkiln.containers import inputs
from draftkiln.stack.model import read

PODMAN_INFO = {
    "host": {"security": {"rootless": False, "selinuxEnabled": False}},
    "store": {"graphRoot": "/var/lib/containers/storage"},
}
DOCKER_INFO = {"SecurityOptions": ["name=seccomp,profile=default"], "DockerRootDir": "/var/lib/docker"}


class StubEngine:
    """A program on PATH that answers like an engine; what it was asked is in `calls`."""

    def __init__(self, folder, name, *, version, info, says="", code=0, labels=None):
        self.log = folder / f"{name}.calls"
        self.path = folder / name
        (folder / f"{name}.info").write_text(json.dumps(info))
        (folder / f"{name}.says").write_text(says)
        (folder / f"{name}.labels").write_text(json.dumps(labels))
        self.path.write_text(
            f"""#!/bin/sh
case "$1" in
  --version) echo "{version}"; exit 0 ;;
  info) cat "{folder}/{name}.info"; exit 0 ;;
esac
for word in "$@"; do printf '%s\\n' "$word" >> "{self.log}"; done
printf -- '--\\n' >> "{self.log}"
cat "{folder}/{name}.says" >&2
[ "$1" != image ] || cat "{folder}/{name}.labels"
exit {code}
"""
        )
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self):
        text = self.log.read_text() if self.log.exists() else ""
        return [call.strip("\n").split("\n") for call in text.split("--\n")[:-1]] if text else []


def labels_of(stack):
    """Labels of the image that this checkout would build."""
    lock = read(stack).locked()
    return {
        "draftkiln.requirements": lock.requirements_sha256,
        "draftkiln.speculators": lock.patched_wheel_sha256 or lock.base_wheel_sha256,
        "draftkiln.source": inputs.source_sha256(checkout.root()),
        "org.opencontainers.image.revision": "0123456789abcdef",
    }


@pytest.fixture
def built():
    """Labels of an up-to-date image of a stack."""
    return labels_of


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Make stub engines; PATH holds nothing else but the shell's own tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("DRAFTKILN_ENGINE", raising=False)
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))

    def make(name="podman", *, version=None, rootless=False, selinux=False, says="", code=0, kind=None, labels=None):
        kind = kind or name
        if kind == "podman":
            security = {"rootless": rootless, "selinuxEnabled": selinux}
            info = PODMAN_INFO | {"host": {"security": security}}
            text = f"podman version {version or '4.3.1'}"
        else:
            options = ["name=rootless"] * rootless + ["name=selinux"] * selinux
            info = DOCKER_INFO | {"SecurityOptions": options}
            text = f"Docker version {version or '27.1.0'}, build abc"
        return StubEngine(folder, name, version=text, info=info, says=says, code=code, labels=labels)

    return make
