"""A CycloneDX bill of materials of an image: Debian packages, locked wheels, speculators with its patches, draftkiln.

The same inputs give the same bytes: no time, no random serial number.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING

from cyclonedx.model import HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType, Diff, Patch, PatchClassification, Pedigree
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from draftkiln import __version__, checkout
from draftkiln.containers import wheelhouse
from draftkiln.patches import queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.containers.inputs import Inputs

_NAMESPACE = uuid.UUID("8f6c2a53-6b57-5a3e-9d0e-2f7f6a1b9c44")


def bill(inputs: Inputs, image_id: str | None = None) -> str:
    """The bill of the image of `inputs` as CycloneDX 1.6 JSON.

    Args:
        inputs: of the image.
        image_id: of the built image, where it is known.
    """
    image = Component(
        name=inputs.tag,
        type=ComponentType.CONTAINER,
        version=inputs.revision,
        bom_ref="image",
        hashes=[_sha256(image_id)] if image_id else (),
        properties=[Property(name="draftkiln:stack", value=inputs.stack.name)],
    )
    bom = Bom(components=list(_components(inputs)))
    bom.metadata = BomMetaData(component=image, timestamp=dt.datetime.fromtimestamp(inputs.epoch, dt.UTC))
    bom.serial_number = uuid.uuid5(_NAMESPACE, f"{inputs.tag} {inputs.revision} {inputs.requirements_sha256}")
    bom.register_dependency(image, bom.components)
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return text + "\n"


def _components(inputs: Inputs) -> Iterator[Component]:
    yield Component(
        name="draftkiln",
        version=__version__,
        type=ComponentType.APPLICATION,
        bom_ref="draftkiln",
        properties=[Property(name="vcs:revision", value=inputs.revision)],
    )
    yield from _base(inputs)
    for package in inputs.packages:
        wheel = wheelhouse.kept(package, inputs.platform)
        yield Component(
            name=package.name,
            version=package.version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("pypi", None, package.name, package.version),
            bom_ref=f"pypi:{package.name}",
            hashes=[_sha256(wheel.parent.name)] if wheel else (),
        )
    yield _speculators(inputs)


def _base(inputs: Inputs) -> Iterator[Component]:
    if isinstance(inputs.base, str):
        name, digest = inputs.base.split("@sha256:")
        yield Component(name=name, type=ComponentType.CONTAINER, bom_ref="base", hashes=[_sha256(digest)])
        return
    for line in inputs.base.packages:
        name, version, architecture = line.split()
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("deb", "debian", name, version, {"arch": architecture}),
            bom_ref=f"deb:{name}:{architecture}",
        )


def _speculators(inputs: Inputs) -> Component:
    release, series = inputs.stack.file.speculators.version, inputs.stack.file.speculators.series
    ancestor = Component(
        name="speculators",
        version=release,
        type=ComponentType.LIBRARY,
        bom_ref="speculators-as-released",
        purl=PackageURL("pypi", None, "speculators", release),
        hashes=[_sha256(inputs.stack.locked().base_wheel_sha256)],
    )
    if series is None:
        return ancestor
    found = queue.load_series(checkout.root() / "patches" / "speculators", series)
    patches = [
        Patch(type=PatchClassification.UNOFFICIAL, diff=Diff(url=XsUri(f"patches/speculators/{patch.name}.patch")))
        for patch in found.patches(release)
    ]
    return Component(
        name="speculators",
        version=inputs.speculators.name.split("-")[1],
        type=ComponentType.LIBRARY,
        bom_ref="speculators",
        hashes=[_sha256(inputs.speculators_sha256)],
        pedigree=Pedigree(ancestors=[ancestor], patches=patches),
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
