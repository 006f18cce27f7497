"""Jobs for Kubernetes: an Indexed Job over shards, training on one host; the recipe goes along."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from draftkiln.errors import ExitCode

if TYPE_CHECKING:
    from draftkiln.scale.launch_command import Job

_GRACE_SECONDS = 600
_RETRIES = 20
_RECIPE = "/recipe/recipe.yaml"
_RUNS = "/runs"
_USER = 1000
_HOPELESS = (
    ExitCode.USAGE, ExitCode.RECIPE, ExitCode.STACK, ExitCode.PATCHES, ExitCode.TARGET, ExitCode.RUN_DIRECTORY,
)  # fmt: skip
"""What another try does not mend."""
_SHARED_MEMORY = "16Gi"
"""Ranks of an engine share tensors there; the default of 64 MB ends in NCCL errors."""


class _Text(str):
    """A text of several lines, written as such."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: texts of several lines as blocks, no aliases."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def manifest(job: Job) -> str:
    """The recipe as a ConfigMap, and the Job."""
    documents = [_config_map(job), _job(job)]
    head = f"# Made by: {job.command}\n"
    if job.stage == "extract":
        head += f"# When all indices are done: draftkiln merge --run {_run(job)} {_run(job)}.parts/*\n"
    return head + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120)


def _config_map(job: Job) -> dict[str, Any]:
    text = job.recipe_file.read_text(encoding="utf-8")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job),
        "data": {"recipe.yaml": _Text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")},
    }


def _job(job: Job) -> dict[str, Any]:
    indexed: dict[str, Any] = {}
    if job.stage == "extract":
        indexed = {
            "completionMode": "Indexed",
            "completions": job.hosts,
            "parallelism": job.hosts,
            # An index that fails for good leaves the others alone.
            "backoffLimitPerIndex": _RETRIES,
            "maxFailedIndexes": job.hosts,
        }
    rule = {"onExitCodes": {"containerName": job.stage, "operator": "In", "values": [int(code) for code in _HOPELESS]}}
    disrupted = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    rules = [{"action": "Ignore", **disrupted}, {"action": "FailJob", **rule}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(job),
        "spec": {
            **(indexed or {"backoffLimit": _RETRIES}),
            "podFailurePolicy": {"rules": rules},
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": "draftkiln"}}, "spec": _pod(job)},
        },
    }


def _pod(job: Job) -> dict[str, Any]:
    resource = "nvidia.com/gpu" if job.device == "cuda" else "cpu"
    locked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": job.stage,
        "image": job.image,
        "command": ["/bin/sh", "-ec", _Text(_script(job))],
        "env": [
            {"name": "HOME", "value": "/home/draftkiln"},
            {"name": "DRAFTKILN_CACHE", "value": f"{_RUNS}/cache"},
        ],
        "resources": {"limits": {resource: str(job.devices)}},
        "securityContext": locked,
        "volumeMounts": [
            {"name": "runs", "mountPath": _RUNS},
            {"name": "recipe", "mountPath": "/recipe", "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - a volume of this pod alone
            {"name": "scratch", "mountPath": "/tmp", "subPath": "tmp"},  # noqa: S108 - the same
            {"name": "scratch", "mountPath": "/home/draftkiln", "subPath": "home"},
        ],
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
        "containers": [container],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": job.claim}},
            {"name": "recipe", "configMap": {"name": _name(job)}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": _SHARED_MEMORY}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }


def _script(job: Job) -> str:
    run = _run(job)
    if job.stage == "train":
        return f"exec draftkiln train --recipe {_RECIPE} --run {run}\n"
    return (
        "number=$((JOB_COMPLETION_INDEX + 1))\n"
        f"part={run}.parts/$number\n"
        'mkdir -p "$part"\n'
        f'cp -r {run}/run.json {run}/prepare "$part"/\n'
        f'exec draftkiln extract --recipe {_RECIPE} --run "$part" --shard "$number/{job.hosts}"\n'
    )


def _run(job: Job) -> str:
    return f"{_RUNS}/{job.run.name}"


def _name(job: Job) -> str:
    """A name as Kubernetes takes it."""
    return re.sub(r"[^a-z0-9-]+", "-", job.name.lower()).strip("-")[:63].rstrip("-")


def _metadata(job: Job) -> dict[str, Any]:
    return {"name": _name(job), "labels": {"app.kubernetes.io/name": "draftkiln"}}
