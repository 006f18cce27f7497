"""Lock a stack: resolve it as of one moment, with a sha256 for every file, and build its patched wheel."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml

from draftkiln import cache, durable
from draftkiln.patches import base as base_wheels
from draftkiln.stack import patched, uv
from draftkiln.stack.model import SCHEMA_VERSION, Stack, StackFile, StackLock, read

_HEADER = """\
# Written by `nox -s lock -- {name}`; do not edit. Resolved as of {as_of}: nothing uploaded later is in it.
"""


def requirement_lines(file: StackFile) -> list[str]:
    """The requirements that are resolved together: engine, what speculators imports, what draftkiln imports."""
    engine = file.engine
    wanted = f"{engine.package} @ {engine.url}" if engine.url else f"{engine.package}=={engine.version}"
    return [wanted, *file.speculators.dependencies, *file.requirements]


def inputs_sha256(file: StackFile) -> str:
    """Hash of what decides requirements.lock: it tells a lock that is older than its stack.yaml."""
    newer = [{name: moment.isoformat() for name, moment in file.newer.items()}] if file.newer else []
    return durable.sha256_json([requirement_lines(file), file.overrides, file.as_of.isoformat(), file.python, *newer])


def resolve(file: StackFile, name: str) -> str:
    """Resolve with uv and return the text of requirements.lock: one for all Python versions and platforms.

    Raises:
        StackError: it does not resolve, or the index cannot be reached.
    """
    with tempfile.TemporaryDirectory() as folder:
        requirements, overrides = Path(folder, "requirements.in"), Path(folder, "overrides.in")
        requirements.write_text("\n".join(requirement_lines(file)) + "\n", encoding="utf-8")
        overrides.write_text("\n".join(file.overrides) + "\n", encoding="utf-8")
        newer = [
            word
            for package, moment in file.newer.items()
            for word in ("--exclude-newer-package", f"{package}={moment.isoformat()}")
        ]
        text = uv.run(
            [
                "pip", "compile", str(requirements), "--override", str(overrides), "--universal", "--generate-hashes",
                "--no-build", "--no-header", "--no-annotate", "--no-emit-index-url", "--quiet",
                "--python-version", file.python[0], "--exclude-newer", file.as_of.isoformat(), *newer,
            ],
            what=f"stack {name} does not resolve as of {file.as_of.isoformat()}",
            fix="mend requirements or overrides in its stack.yaml",
        )  # fmt: skip
    return _HEADER.format(name=name, as_of=file.as_of.isoformat()) + text


def lock(name: str, *, refresh: bool = True) -> Stack:
    """Write requirements.lock (with `refresh`) and stack.lock.yaml of a stack, and return it read anew."""
    stack = read(name)
    if refresh or not stack.requirements.exists():
        durable.write_text(stack.requirements, resolve(stack.file, name))
    release = stack.file.speculators.version
    if stack.lock is not None and not refresh:
        base = base_wheels.base_wheel("speculators", release, stack.lock.base_wheel_sha256, cache.root())
    else:
        base = base_wheels.newest_wheel("speculators", release, cache.root())
    values = StackLock(
        schema_version=SCHEMA_VERSION,
        requirements_sha256=durable.sha256_file(stack.requirements),
        inputs_sha256=inputs_sha256(stack.file),
        packages=sum(line[:1].isalnum() for line in stack.requirements.read_text(encoding="utf-8").splitlines()),
        base_wheel_sha256=durable.sha256_file(base),
    ).model_dump()
    if stack.file.speculators.series:
        built = patched.build(base, stack.file.speculators.series)
        values |= {"patched_tree": built.tree, "patched_wheel_sha256": built.sha256, "patched_version": built.version}
    text = f"# Written by `nox -s lock -- {name}`; do not edit.\n" + yaml.safe_dump(values, sort_keys=False)
    durable.write_text(stack.folder / "stack.lock.yaml", text)
    return read(name)
