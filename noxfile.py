# /// script
# dependencies = ["nox>=2025.5.1", "uv>=0.5"]
# ///
"""draftkiln: hidden states out of a patched vLLM, a trained EAGLE-3 draft, and a record of what made it.

Start with `demo`: the whole job on this laptop, no GPU. Plain `nox` runs lint, types and unit tests.
Every stage of a recipe is a session: `nox -s extract -- --recipe recipes/tiny-cpu.yaml --run runs/tiny-cpu`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True

EXTRACT_STACK = "spec0.3.0-vllm0.16.0-cpu"
TRAIN_STACK = "spec0.9.0-vllm0.32.0-cpu"
GPU_STACK = "spec0.4.0.1-vllm0.20.2-cu130"
GPU_BENCH_FOLDER = "/dev/shm/draftkiln-bench"  # noqa: S108 - the place that is measured
TINY = ["--recipe", "recipes/tiny-cpu.yaml"]
ONE_CORE = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""For two engines side by side: with two threads each they would wait for each other at every product."""


def _install(session: nox.Session) -> None:
    session.install("--quiet", "--no-build", "--require-hashes", "-r", "requirements/dev.lock")
    session.install("--quiet", "--no-deps", "--no-build-isolation", "-e", ".")


def _with_ray(session: nox.Session) -> None:
    _install(session)
    session.install("--quiet", "--no-build", "--require-hashes", "-r", "requirements/ray.lock")


def _draftkiln(session: nox.Session, *arguments: str) -> None:
    _install(session)
    session.run("draftkiln", *arguments)


def _stage(session: nox.Session, name: str) -> None:
    """Run a stage in its stack's environment, or with `--in-container` in its stack's image."""
    inside = "--in-container" in session.posargs
    words = [word for word in session.posargs if word != "--in-container"]
    _draftkiln(session, *(["image", "stage"] if inside else []), name, *words)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, imports between rooms, and the workflows."""
    _install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-cache", silent=True)
    workflows = sorted(str(file) for file in Path(".github/workflows").glob("*.yml"))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("zizmor", "--offline", "--quiet", *workflows)


@nox.session
def types(session: nox.Session) -> None:
    """Check types (mypy strict)."""
    _install(session)
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the unit tests: no engine, no GPU, no network; the slow ones too: `nox -s tests -- -m "slow or not slow"`."""
    _install(session)
    session.run("pytest", "-n", "auto", "tests/unit", *(session.posargs or ["-m", "not slow"]))


@nox.session
def engine_tests(session: nox.Session) -> None:
    """Run the tests that need the real vLLM on the CPU, each on its stack, two at a time.

    The pairs of speculators and vLLM that no recipe uses are proved by `nox -s matrix`.
    Posargs go to pytest: `nox -s engine_tests -- -k series`.
    """
    _install(session)
    # By file: its tests share engines. Groups (`loadgroup`) are lost on this pytest, every engine was started twice.
    words = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    words += ["-m", "engine", "--ignore", "tests/engine/train"]
    session.run("pytest", "tests/engine", *words, *session.posargs, env=ONE_CORE)


@nox.session
def train_tests(session: nox.Session) -> None:
    """Run the tests of training, export and evaluation, inside the training stack."""
    _install(session)
    # pytest comes along in a folder of its own; the warnings there are those of torch and its neighbours.
    pytest = str(Path(session.create_tmp(), "pytest").resolve())
    install = ["uv", "pip", "install", "--quiet", "--no-build", "--require-hashes", "-r", "requirements/pytest.lock"]
    session.run(*install, "--target", pytest)
    stack = ["draftkiln", "stack", "exec", "--path", pytest, TRAIN_STACK, "--"]
    session.run(*stack, "-m", "pytest", "-W", "default", "tests/engine/train", "-m", "engine", *session.posargs)


@nox.session
def ray_tests(session: nox.Session) -> None:
    """Run the tests of several hosts on a real Ray cluster of several nodes, with stub engines.

    Two real engines on this CPU: `nox -s ray_tests -- -m engine`.
    """
    _with_ray(session)
    session.run("pytest", "tests/ray", "-m", "ray", *session.posargs)


@nox.session
def bench_scale(session: nox.Session) -> None:
    """Measure how extraction scales over 1, 2 and 4 replicas with stub engines that take real time."""
    _with_ray(session)
    session.run("python", "tests/ray/bench_scale.py", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Run the whole job on the tiny recipe and print what came out.

    Another recipe: `nox -s demo -- --recipe recipes/smollm2-135m-cpu.yaml`. In images that are built, every stage or
    chosen ones: `-- --in-container`, `-- --in-container extract`.
    """
    _draftkiln(session, "run", *([] if "--recipe" in session.posargs else TINY), *session.posargs)


@nox.session
def prepare(session: nox.Session) -> None:
    """Turn conversations into token ids and loss masks."""
    _stage(session, "prepare")


@nox.session
def extract(session: nox.Session) -> None:
    """Extract the target's hidden states.

    In the stack's image: `nox -s extract -- --in-container --recipe R --run D`; `--dry-run` prints the engine's line,
    `--detach` lets it run for days (`draftkiln image status`, `logs`, `stop`).
    """
    _stage(session, "extract")


@nox.session
def gpu_tests(session: nox.Session) -> None:
    """Run the tests that need an NVIDIA GPU, on the stack for it: `nox -s gpu_tests -- -k tiny`.

    On a host without a network that has the stacks from a bundle, and nox and pytest among its own packages:
    `. DIR/env.sh && NOX_SCRIPT_MODE=none nox --no-venv -s gpu_tests` (else nox fetches itself).
    """
    if shutil.which("nvidia-smi") is None:
        session.skip("no NVIDIA GPU here (nvidia-smi is not installed)")
    tests = ["-m", "pytest", "-W", "default", "tests/gpu", "-m", "gpu", *session.posargs]
    if os.environ.get("DRAFTKILN_BUNDLE"):
        session.run("python3", "-m", "draftkiln", "stack", "exec", GPU_STACK, "--", *tests, external=True)
        return
    _install(session)
    pytest = str(Path(session.create_tmp(), "pytest").resolve())
    install = ["uv", "pip", "install", "--quiet", "--no-build", "--require-hashes", "-r", "requirements/pytest.lock"]
    session.run(*install, "--target", pytest)
    session.run("draftkiln", "stack", "exec", "--path", pytest, GPU_STACK, "--", *tests)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure extraction beside plain prefill and other ways, on one engine: `nox -s bench -- --rounds 5`.

    On a GPU: `nox -s bench -- --gpu`, a 6-layer DeepseekV3 of Kimi's hidden size on the GPU stack, to /dev/shm. Another
    target: `-- --recipe R --folder DIR`; what the other arguments do is told by `draftkiln bench --help`.
    """
    words = list(session.posargs)
    if "--gpu" in words:
        words.remove("--gpu")
        _gpu_bench(session, words)
        return
    words = words if "--recipe" in words else [*TINY, "--token-budget", "1024", *words]
    folder = [] if "--folder" in words else ["--folder", str(Path(session.create_tmp(), "bench").resolve())]
    _draftkiln(session, "bench", *words, *folder)


def _gpu_bench(session: nox.Session, words: list[str]) -> None:
    _install(session)
    made = ("targets/deepseek-v3-narrow", "--shape", "deepseek-v3-narrow", "--layers", "6")
    if "--recipe" not in words:
        words = ["--recipe", "tests/gpu/narrow.yaml", *words]
        if not Path(made[0]).exists():
            session.run("draftkiln", "make-target", *made)
    long = ["--samples", "1024", "--neighbour-samples", "96", "--rounds", "5"]
    folder = [] if "--folder" in words else ["--folder", GPU_BENCH_FOLDER]
    session.run("draftkiln", "bench", *(long if "--samples" not in words else []), *words, *folder)


@nox.session
def bench_prepare(session: nox.Session) -> None:
    """Measure preparation beside speculators' own `prepare-data`: `nox -s bench_prepare -- --rows 2000`."""
    recipe = ["--recipe", "recipes/smollm2-135m-cpu.yaml"] if "--recipe" not in session.posargs else []
    folder = [] if "--folder" in session.posargs else ["--folder", str(Path(session.create_tmp(), "bench").resolve())]
    _draftkiln(session, "bench-prepare", *recipe, *folder, *session.posargs)


@nox.session
def bench_train(session: nox.Session) -> None:
    """Measure training beside speculators' own command on a finished run: `nox -s bench_train -- --run DIR`."""
    recipe = [] if "--recipe" in session.posargs else TINY
    folder = ["--run", "runs/tiny-cpu"] if "--run" not in session.posargs else []
    _draftkiln(session, "bench-train", *recipe, *folder, *session.posargs)


@nox.session
def validate(session: nox.Session) -> None:
    """Check extracted states, also against transformers."""
    _stage(session, "validate")


@nox.session
def train(session: nox.Session) -> None:
    """Train the draft."""
    _stage(session, "train")


@nox.session
def export(session: nox.Session) -> None:
    """Write the draft as vLLM and SGLang load it."""
    _stage(session, "export")


@nox.session
def evaluate(session: nox.Session) -> None:
    """Serve target and draft and measure the acceptance length."""
    _stage(session, "evaluate")


@nox.session
def report(session: nox.Session) -> None:
    """Write one page that says what a run was: `nox -s report -- --run runs/tiny-cpu`."""
    _draftkiln(session, "report", *session.posargs)


@nox.session
def report_tests(session: nox.Session) -> None:
    """Load pages of runs in a real Chromium, at a phone's and a desk's width, in the dark and the light.

    Also a run of yours: `nox -s report_tests -- --run runs/tiny-cpu`; `--pictures DIR` keeps what the browser drew.
    """
    _install(session)
    session.run("pytest", "tests/browser", "-m", "browser", *session.posargs)


@nox.session
def patches(session: nox.Session) -> None:
    """Work on the patch queue: `nox -s patches -- list`."""
    _draftkiln(session, "patches", *(session.posargs or ["check"]))


@nox.session
def matrix(session: nox.Session) -> None:
    """Prove every pair of speculators and vLLM on the real engine and write docs/matrix.md.

    Goes on where it stopped, takes away environments that it made: `nox -s matrix -- --dry-run`, `-- --only STACK`.
    """
    _draftkiln(session, "matrix", *session.posargs)


@nox.session
def refresh(session: nox.Session) -> None:
    """Take a vLLM build nobody here has seen to a proven stack: `nox -s refresh -- --vllm 0.24.0` (docs/refresh.md)."""
    _draftkiln(session, "refresh", *session.posargs)


@nox.session
def bisect(session: nox.Session) -> None:
    """Find the first vLLM build at which something breaks: `nox -s bisect -- --good A --bad B --stack S`."""
    _draftkiln(session, "bisect", *session.posargs)


@nox.session
def base(session: nox.Session) -> None:
    """Make the root file system that images start from (Debian packages, needs mmdebstrap)."""
    _draftkiln(session, "image", "base", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build a stack's image from pinned inputs and write its bill of materials: `nox -s build -- --stack S`."""
    _install(session)
    session.run("draftkiln", "image", "build", *session.posargs)


@nox.session
def verify_image(session: nox.Session) -> None:
    """Check that an image holds what its lock says: `nox -s verify_image -- --stack S`."""
    _draftkiln(session, "image", "verify", *session.posargs)


@nox.session
def reproduce(session: nox.Session) -> None:
    """Build an image twice from clean stores and compare every byte; without a stack a small one of the same file."""
    _draftkiln(session, "image", "reproduce", *session.posargs)


@nox.session
def check_pins(session: nox.Session) -> None:
    """Look every pin up: present, gone, moved, or nobody could be asked."""
    _draftkiln(session, "image", "pins", *session.posargs)


@nox.session
def publish(session: nox.Session) -> None:
    """Push a stack's image, or mirror one by digest: `nox -s publish -- --stack S --to REGISTRY/NAME:TAG`."""
    _draftkiln(session, "image", "publish", *session.posargs)


@nox.session
def bundle(session: nox.Session) -> None:
    """Write an offline bundle for an air-gapped host: `nox -s bundle -- --stack S --have freeze.txt`."""
    _draftkiln(session, "bundle", *session.posargs)


@nox.session
def container_tests(session: nox.Session) -> None:
    """Run the tests that need a real container engine; they build and run small images."""
    _install(session)
    session.run("pytest", "tests/container", "-m", "container", *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Resolve locks anew: stacks by name (default all), or `tools` for requirements/."""
    _install(session)
    if session.posargs == ["tools"]:
        for name in ("nox", "dev", "pytest", "ray"):
            session.run(
                "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header", "--no-annotate",
                "--no-emit-index-url", "--python-version", "3.11",
                f"requirements/{name}.in", "--output-file", f"requirements/{name}.lock",
            )  # fmt: skip
    else:
        session.run("draftkiln", "stack", "lock", *session.posargs)


@nox.session
def ci(session: nox.Session) -> None:
    """Pass everything that CI passes: lint, types, unit, engine, training and container tests, patches, the whole job.

    The engine tests prove speculators 0.3.0 on vLLM 0.16.0, `matrix` 0.4.0.1 on 0.32.0. The extraction image is built,
    checked, and the whole job's extraction runs in it; bit-identical builds are shown on the small image.
    """
    _install(session)
    # Gigabytes are fetched and packed while others compute; the session `build` finds that, or tells what fails.
    ahead = ["nice", "-n", "19", str(Path(session.bin, "draftkiln")), "image", "build", "--stack", EXTRACT_STACK]
    subprocess.Popen(ahead, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in ("lint", "types"):
        session.notify(name)
    session.notify("tests", ["-m", "slow or not slow"])
    for name in ("patches", "engine_tests", "train_tests"):
        session.notify(name)
    session.notify("matrix", ["--only", "spec0.4.0.1-vllm0.32.0-cpu", "--again"])
    session.notify("build", ["--stack", EXTRACT_STACK])
    session.notify("container_tests", ["--ignore", "tests/container/test_extraction.py"])
    session.notify("verify_image", ["--stack", EXTRACT_STACK])
    session.notify("demo", [*TINY, "--in-container", "extract"])
