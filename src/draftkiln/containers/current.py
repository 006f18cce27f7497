"""Whether an image that is here is the one that this checkout would build."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from draftkiln import checkout
from draftkiln.containers import inputs
from draftkiln.containers.running import require_image
from draftkiln.errors import ContainerError
from draftkiln.stack.model import read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftkiln.containers.engine import Engine


TOLD = "DRAFTKILN_IMAGE_CODE_TOLD"
"""Environment variable of the stages of a whole run, which tells about images once."""


def require(engine: Engine, stack: str) -> None:
    """Hold that the image of a stack is built, from the stack's lock; code of another state is told.

    Raises:
        ContainerError: it is not built, or from another lock.
    """
    tag = inputs.image_name(stack)
    require_image(engine, tag, stack)
    asked = engine.capture("image", "inspect", "--format", "{{json .Config.Labels}}", tag)
    labels: Mapping[str, str] = json.loads(asked or "null") or {}
    lock, build = read(stack).locked(), f"nox -s build -- --stack {stack}"
    wanted = {
        "requirements": lock.requirements_sha256,
        "speculators": lock.patched_wheel_sha256 or lock.base_wheel_sha256,
    }
    other = [name for name, value in wanted.items() if labels.get(f"draftkiln.{name}") != value]
    if other:
        raise ContainerError(
            f"image {tag} was built from another state of the stack",
            why=f"its {' and its '.join(other)} are not those of the lock: results would not be this checkout's",
            fix=f"build it anew (layers that are the same are kept): {build}",
        )
    if TOLD not in os.environ and labels.get("draftkiln.source") != inputs.source_sha256(checkout.root()):
        revision = labels.get("org.opencontainers.image.revision", "an unknown commit")[:12]
        print(
            f"warning: image {tag} holds draftkiln of {revision}, other files than this checkout has; "
            f"seconds bring them there: {build}",
            file=sys.stderr,
        )
