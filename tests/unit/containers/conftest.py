import json
import stat

import pytest

PODMAN_INFO = {
    "host": {"security": {"rootless": False, "selinuxEnabled": False}},
    "store": {"graphRoot": "/var/lib/containers/storage"},
}
DOCKER_INFO = {"SecurityOptions": ["name=seccomp,profile=default"], "DockerRootDir": "/var/lib/docker"}


class StubEngine:
    """A program on PATH that answers like an engine; what it was asked is in `calls`."""

    def __init__(self, folder, name, *, version, info, says="", code=0):
        self.log = folder / f"{name}.calls"
        self.path = folder / name
        (folder / f"{name}.info").write_text(json.dumps(info))
        (folder / f"{name}.says").write_text(says)
        self.path.write_text(
            f"""#!/bin/sh
case "$1" in
  --version) echo "{version}"; exit 0 ;;
  info) cat "{folder}/{name}.info"; exit 0 ;;
esac
for word in "$@"; do printf '%s\\n' "$word" >> "{self.log}"; done
printf -- '--\\n' >> "{self.log}"
cat "{folder}/{name}.says" >&2
exit {code}
"""
        )
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self):
        text = self.log.read_text() if self.log.exists() else ""
        return [call.strip("\n").split("\n") for call in text.split("--\n")[:-1]] if text else []


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Make stub engines; PATH holds nothing else but the shell's own tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("DRAFTKILN_ENGINE", raising=False)
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))

    def make(name="podman", *, version=None, rootless=False, selinux=False, says="", code=0, kind=None):
        kind = kind or name
        if kind == "podman":
            security = {"rootless": rootless, "selinuxEnabled": selinux}
            info = PODMAN_INFO | {"host": {"security": security}}
            text = f"podman version {version or '4.3.1'}"
        else:
            options = ["name=rootless"] * rootless + ["name=selinux"] * selinux
            info = DOCKER_INFO | {"SecurityOptions": options}
            text = f"Docker version {version or '27.1.0'}, build abc"
        return StubEngine(folder, name, version=text, info=info, says=says, code=code)

    return make
