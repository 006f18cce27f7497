#!/usr/bin/env python3
"""Set up draftkiln on this machine and run nox: `python3 bootstrap.py nox -s demo`.

Needs Python 3.11 to 3.13 and git, nothing else. It makes `.venv` with nox and uv from a hash lock and hands over to
nox, whose sessions make all the rest. A missing system package is named with the line that installs it;
`--apt` before `nox` has it installed.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
LOCK = os.path.join(ROOT, "requirements", "nox.lock")
OLDEST, NEWEST = (3, 11), (3, 13)
SYSTEM_MISSING = 6
BROWSER_SESSIONS = {"report_tests"}
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Some CPU builds of vLLM do not start without it.
ENGINE_SESSIONS = {"bisect", "matrix", "refresh"}
ENGINE_LIBRARIES = {"libtcmalloc_minimal.so.4": "libtcmalloc-minimal4"}
IMAGE_SESSIONS = {"base", "build", "ci", "container_tests", "publish", "reproduce"}
TEST_SESSIONS = {"ci", "container_tests"}
TEST_PROGRAMS = {"docker-registry": "docker-registry"}
IMAGE_PROGRAMS = {
    "podman": "podman",
    "buildah": "buildah",
    "skopeo": "skopeo",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "newuidmap": "uidmap",
    "mmdebstrap": "mmdebstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}


def main(arguments):
    """Check the machine, make `.venv` and replace this process by nox."""
    install = arguments[:1] == ["--apt"]
    arguments = arguments[1:] if install else arguments
    if arguments[:1] != ["nox"]:
        stop("usage: python3 bootstrap.py [--apt] nox [-s SESSION ...]", code=2)
    refuse_other_systems()
    python = find_python()
    missing = missing_packages(python)
    if install:
        missing += missing_libraries(ENGINE_LIBRARIES if ENGINE_SESSIONS.intersection(arguments) else {})
    # Images are also made by docker, tests of images need podman.
    if install or TEST_SESSIONS.intersection(arguments):
        missing += image_packages(arguments)
    if install:
        missing += browser_packages(arguments)
    if missing and install:
        apt(missing)
        missing = missing_packages(python)
    if missing:
        stop(
            "missing system packages: {0}\n  do: sudo apt-get update && sudo apt-get install -y {0}\n"
            "      (or let this script do it: python3 bootstrap.py --apt nox ...)".format(" ".join(missing))
        )
    make_venv(python)
    environment = dict(os.environ, PATH=os.pathsep.join([os.path.join(VENV, "bin"), os.environ.get("PATH", "")]))
    os.chdir(ROOT)
    os.execve(os.path.join(VENV, "bin", "nox"), arguments, environment)


def refuse_other_systems():
    """Stop on systems that vLLM has no build for."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "aarch64"):
        stop(
            "draftkiln runs on Linux (x86-64 or aarch64), this is {} on {}\n"
            "  why: vLLM has no build for it\n  do:  use a Linux machine, WSL or a container".format(system, machine)
        )


def find_python():
    """Path of a Python this project supports: the running one, else the newest on PATH."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which("python3.{}".format(minor))
        if found:
            return found
    return stop(
        "draftkiln needs Python {}.{} to {}.{}, this is {}\n  do: sudo apt-get install -y python3 (Debian 12,"
        " Ubuntu 24.04 or later), or put another python3.x on PATH".format(*OLDEST, *NEWEST, platform.python_version())
    )


def missing_packages(python):
    """Names of Debian packages that are needed and not here."""
    missing = []
    if not shutil.which("git"):
        missing.append("git")
    if subprocess.call([python, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL):
        missing.append("python3-venv")
    return missing + missing_libraries({"libnuma.so.1": "libnuma1"})


def missing_libraries(libraries):
    """Names of Debian packages of those libraries that do not load here."""
    missing = []
    for library, package in libraries.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append(package)
    return missing


def image_packages(arguments):
    """Names of Debian packages that images and their tests need, where a session that makes some is asked for."""
    wanted = dict(IMAGE_PROGRAMS) if IMAGE_SESSIONS.intersection(arguments) else {}
    wanted.update(TEST_PROGRAMS if TEST_SESSIONS.intersection(arguments) else {})
    # A plain user's PATH lacks the administrator's programs, which podman finds all the same.
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for file, name in wanted.items() if not (shutil.which(file, path=path) or os.path.exists(file))]


def browser_packages(arguments):
    """Name of the Debian package with a browser for tests of pages, where such a session is asked for; 100 MB."""
    wanted = BROWSER_SESSIONS.intersection(arguments) and not any(map(shutil.which, BROWSERS))
    # Other systems have Chromium as a snap only; there these tests are skipped.
    return ["chromium-headless-shell"] if wanted and os.path.exists("/etc/debian_version") and not is_ubuntu() else []


def is_ubuntu():
    """Whether this is Ubuntu, whose archive has no Chromium."""
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            return "ubuntu" in file.read().lower()
    except OSError:
        return False


def apt(packages):
    """Install Debian packages, with sudo where this user is not root."""
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    for program, why in (("apt-get", "this system has no apt-get"), ("sudo", "this user is not root, sudo is missing")):
        if program in ["apt-get", *prefix] and not shutil.which(program):
            stop(
                "missing system packages: {0}\n  why: {1}\n  do:  have an administrator install them: apt-get install"
                " -y {0}".format(" ".join(packages), why)
            )
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages],
    ):
        if subprocess.call(prefix + command, env=environment, stdin=subprocess.DEVNULL):
            stop("{} failed".format(" ".join(prefix + command)))


def make_venv(python):
    """Make `.venv` from the lock unless it was made from this very lock."""
    with open(LOCK, "rb") as file:
        wanted = hashlib.sha256(file.read() + python.encode()).hexdigest()
    stamp = os.path.join(VENV, "made-from")
    if os.path.exists(stamp):
        with open(stamp, encoding="ascii") as file:
            if file.read() == wanted:
                return
    shutil.rmtree(VENV, ignore_errors=True)
    run([python, "-m", "venv", VENV])
    pip = [os.path.join(VENV, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", LOCK])
    with open(stamp, "w", encoding="ascii") as file:
        file.write(wanted)


def run(command):
    """Run a command with stdin closed; stop if it fails."""
    if subprocess.call(command, stdin=subprocess.DEVNULL):
        stop("failed: {}".format(" ".join(command)))


def stop(text, code=SYSTEM_MISSING):
    """Print why and exit."""
    sys.stderr.write("bootstrap: {}\n".format(text))
    raise SystemExit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
