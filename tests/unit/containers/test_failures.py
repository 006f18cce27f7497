import pytest

from draftkiln.containers.failures import explain
from draftkiln.errors import ExitCode

SAID = [
    (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        125, ExitCode.CONTAINER, "GPU hook", "nvidia-ctk runtime configure",
    ),
    (
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        126, ExitCode.CONTAINER, "no CDI specification", "nvidia-ctk cdi generate",
    ),
    (
        "docker: Error response from daemon: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0",
        125, ExitCode.CONTAINER, "no CDI specification", "nvidia-ctk cdi generate",
    ),
    (
        "Error: failed to fulfil mount request: open /usr/lib64/libcuda.so.550.54: no such file or directory",
        126, ExitCode.CONTAINER, "stale", "nvidia-ctk cdi generate",
    ),
    (
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver",
        125, ExitCode.CONTAINER, "older than the CUDA version", "driver",
    ),
    (
        "Error: lsetxattr /mnt/nfs/run: operation not supported",
        126, ExitCode.CONTAINER, "relabelled", "--no-relabel",
    ),
    (
        "Error: statfs /data/run: no such file or directory",
        125, ExitCode.CONTAINER, "does not exist", "folder",
    ),
    (
        "initializing source docker://vllm/x@sha256:abc: reading manifest sha256:abc: manifest unknown",
        125, ExitCode.PIN, "gone", "refresh",
    ),
    (
        "toomanyrequests: You have reached your pull rate limit.",
        125, ExitCode.NETWORK, "limits how often", "wait",
    ),
    (
        "pinging container registry example.org: dial tcp: lookup example.org: no such host",
        125, ExitCode.NETWORK, "cannot be reached", "network",
    ),
    (
        "write /var/lib/containers/storage/overlay/x: no space left on device",
        125, ExitCode.STORAGE, "full", "make room",
    ),
    (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        1, ExitCode.CONTAINER, "daemon is not running", "systemctl start docker",
    ),
    (
        "Error: cannot find UID/GID for user builder: no subuid ranges found for user",
        125, ExitCode.CONTAINER, "no range of user ids", "--add-subuids",
    ),
    (
        "Error: runc: error setting rlimits for ready process: error setting rlimit type 8: operation not permitted",
        126, ExitCode.CONTAINER, "limit", "hard limit",
    ),
    (
        "ERROR: BuildKit is enabled but the buildx component is missing or broken.",
        1, ExitCode.CONTAINER, "not installed", "docker-buildx",
    ),
    (
        'time="2026-11-30T13:13:21Z" level=error msg="cannot determine user\'s homedir"',
        1, ExitCode.CONTAINER, "passwd knows alone", "useradd",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "exit_code", "why", "fix"), SAID)
def test_cases_15_61_63_66_known_failures_have_one_cause_and_one_step(text, code, exit_code, why, fix):
    error = explain("the container did not start", code, text)
    assert error.code is exit_code
    assert why in error.why
    assert fix in error.fix
    assert text.strip()[-60:] in error.why, "the engine's own words are kept"


def test_what_is_not_known_is_shown_as_it_is():
    error = explain("x", 125, "something new")
    assert error.code is ExitCode.CONTAINER
    assert "something new" in error.why
