# /// script
# dependencies = ["nox>=2025.5.1", "uv>=0.5"]
# ///
"""draftkiln: hidden states out of a patched vLLM, a trained EAGLE-3 draft, and a record of what made it.

Start with `demo`: the whole job on this laptop, no GPU. Plain `nox` runs lint, types and unit tests.
Every stage of a recipe is a session: `nox -s extract -- --recipe recipes/tiny-cpu.yaml --run runs/tiny-cpu`.
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True


def _install(session: nox.Session) -> None:
    session.install("--quiet", "--require-hashes", "-r", "requirements/dev.lock")
    session.install("--quiet", "--no-deps", "--no-build-isolation", "-e", ".")


def _draftkiln(session: nox.Session, *arguments: str) -> None:
    _install(session)
    session.run("draftkiln", *arguments)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, imports between rooms, and the workflows."""
    _install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-cache", silent=True)


@nox.session
def types(session: nox.Session) -> None:
    """Check types (mypy strict)."""
    _install(session)
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the unit tests: no engine, no GPU, no network."""
    _install(session)
    session.run("pytest", "-n", "auto", "tests/unit", *session.posargs)


@nox.session
def engine_tests(session: nox.Session) -> None:
    """Run the tests that need the real vLLM on the CPU, each on its stack.

    Posargs go to pytest: `nox -s engine_tests -- -k series`.
    """
    _install(session)
    session.run("pytest", "tests/engine", "-m", "engine", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Run the whole job on the tiny recipe and print what came out.

    Another recipe: `nox -s demo -- --recipe recipes/smollm2-135m-cpu.yaml`.
    """
    _draftkiln(session, "run", *(session.posargs or ["--recipe", "recipes/tiny-cpu.yaml"]))


@nox.session
def prepare(session: nox.Session) -> None:
    """Turn conversations into token ids and loss masks."""
    _draftkiln(session, "prepare", *session.posargs)


@nox.session
def extract(session: nox.Session) -> None:
    """Extract the target's hidden states."""
    _draftkiln(session, "extract", *session.posargs)


@nox.session
def validate(session: nox.Session) -> None:
    """Check extracted states, also against transformers."""
    _draftkiln(session, "validate", *session.posargs)


@nox.session
def train(session: nox.Session) -> None:
    """Train the draft."""
    _draftkiln(session, "train", *session.posargs)


@nox.session
def export(session: nox.Session) -> None:
    """Write the draft as vLLM and SGLang load it."""
    _draftkiln(session, "export", *session.posargs)


@nox.session
def evaluate(session: nox.Session) -> None:
    """Serve target and draft and measure the acceptance length."""
    _draftkiln(session, "evaluate", *session.posargs)


@nox.session
def patches(session: nox.Session) -> None:
    """Work on the patch queue: `nox -s patches -- list`."""
    _draftkiln(session, "patches", *(session.posargs or ["check"]))


@nox.session
def lock(session: nox.Session) -> None:
    """Resolve locks anew: stacks by name (default all), or `tools` for requirements/."""
    _install(session)
    if session.posargs == ["tools"]:
        for name in ("nox", "dev"):
            session.run(
                "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header", "--no-annotate",
                "--no-emit-index-url", "--python-version", "3.11",
                f"requirements/{name}.in", "--output-file", f"requirements/{name}.lock",
            )  # fmt: skip
    else:
        session.run("draftkiln", "stack", "lock", *session.posargs)


@nox.session
def ci(session: nox.Session) -> None:
    """Pass everything that CI passes: lint, types, unit tests, patches, engine tests, the demo."""
    for name in ("lint", "types", "tests", "patches", "engine_tests", "demo"):
        session.notify(name)
