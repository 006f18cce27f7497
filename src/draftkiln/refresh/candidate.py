"""The stack.yaml and the series of a candidate, made from those of the stack that is nearest to it."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import yaml
from packaging.version import Version

from draftkiln import durable
from draftkiln.errors import StackError
from draftkiln.refresh import companions
from draftkiln.stack.model import StackFile

if TYPE_CHECKING:
    from draftkiln.refresh.build import Build
    from draftkiln.refresh.home import Home
    from draftkiln.stack.model import Stack


def name_of(build: Build, speculators: str) -> str:
    """Name of the candidate's stack and series: `spec0.4.0.1-vllm0.24.0-cpu`."""
    version = Version(build.version)
    commit = f"-g{build.commit[:7]}" if build.commit and version.is_devrelease else ""
    return f"spec{speculators}-vllm{version.public}{commit}-cpu"


def as_of(build: Build, template: Stack) -> dt.datetime:
    """The moment as of which the candidate is resolved: the second after its wheel's upload.

    Not before the template's date where that is of the same engine: a stack's date is that of the newest of its wheels.
    """
    moment = build.built.astimezone(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=1)
    return max(moment, template.file.as_of) if template.file.engine.version == build.version else moment


def write(home: Home, build: Build, template: Stack, series_lines: list[str]) -> None:
    """Write the candidate's stack.yaml and series; a lock in its folder is left for `stack.locking` to judge.

    Args:
        home: where.
        build: the engine.
        template: the stack whose settings and series are taken over.
        series_lines: slugs in order.

    Raises:
        StackError: the template's file is not written in the way that this can follow, or the index has no torchvision
            for the build's torch.
    """
    file = template.file
    text = (template.folder / "stack.yaml").read_text(encoding="utf-8")
    moment = as_of(build, template)
    description = (
        f"Speculators {file.speculators.version} on vLLM {build.version}, CPU build; "
        f"made by a refresh from {template.name}."
    )
    rules = {
        r"^description: .*$": f"description: {description}",
        r"^engine: .*$": f"engine: {_engine(build)}",
        r"^  series: .*$": f"  series: {home.stack}",
        r"^as_of: .*$": f"as_of: {moment:%Y-%m-%dT%H:%M:%SZ}",
    }
    if build.torch:
        rules[r"^  - torch==\S+$"] = f"  - torch=={build.torch}"
        text = re.sub(r"(?m)torch \d[\w.]*\+cpu", f"torch {build.torch}+cpu", text)
        text = companions.pinned(text, companions.of(file.requirements, build.torch, moment, file.python[0]))
    for pattern, line in rules.items():
        text, count = re.subn(pattern, lambda _, line=line: line, text, flags=re.MULTILINE)  # type: ignore[misc]
        if count != 1:
            raise StackError(
                f"{template.folder / 'stack.yaml'} cannot be taken over",
                why=f"{count} lines are like {pattern}, not one",
                fix="write it as the other stacks are written",
            )
    wanted = StackFile.model_validate(yaml.safe_load(text))
    if wanted.engine.version != build.version or wanted.as_of != moment or wanted.speculators.series != home.stack:
        raise StackError(f"{template.folder / 'stack.yaml'} cannot be taken over", why="its lines mean something else")
    durable.write_text(home.stack_folder / "stack.yaml", text)
    head = f"# speculators {file.speculators.version} on vLLM {build.version}, CPU build; made by a refresh\n"
    durable.write_text(home.series, head + "".join(f"{line}\n" for line in series_lines))


def write_provisional_lock(home: Home, template: Stack) -> None:
    """Write a lock that names the template's speculators and nothing else; it counts as stale until it is completed."""
    values = template.locked().model_dump() | {"inputs_sha256": "", "requirements_sha256": ""}
    durable.write_text(home.stack_folder / "stack.lock.yaml", yaml.safe_dump(values, sort_keys=False))


def _engine(build: Build) -> str:
    values = {"package": build.package, "version": build.version}
    if build.url:
        values["url"] = build.url
    if build.commit:
        values["commit"] = build.commit
    if build.origin != "release":
        values["built"] = f"{build.built.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    return yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=10_000).strip()
