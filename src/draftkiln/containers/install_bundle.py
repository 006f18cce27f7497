#!/usr/bin/env python3
"""Install an offline bundle: `python3 install.py --target DIR`. Needs this Python alone, no network.

The folder of this file holds `bundle.json` and the numbered parts. Every part and every file in them is verified by
sha256 before it is used. What is installed already is not installed again: after a stop, run it again.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK = 1 << 20


class Refused(Exception):
    """Something is missing or has other bytes."""


def main():
    """Verify, then install wheels into a folder, or load an image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", metavar="DIR", help="folder to install into, then put it on PYTHONPATH")
    parser.add_argument("--engine", metavar="PROGRAM", help="for images: podman or docker (default: what is here)")
    parser.add_argument("--verify", action="store_true", help="verify the parts, install nothing")
    arguments = parser.parse_args()
    try:
        with open(os.path.join(HERE, "bundle.json"), encoding="utf-8") as file:
            bundle = json.load(file)
        verify_parts(bundle["parts"])
        if arguments.verify:
            print("all {} parts are right".format(len(bundle["parts"])))
        elif bundle["kind"] == "image":
            load_image(bundle, arguments.engine)
        elif arguments.target is None:
            raise Refused("name a folder: --target DIR")
        else:
            install(bundle, os.path.abspath(arguments.target))
    except (Refused, OSError, KeyError, ValueError) as error:
        sys.exit(f"install: {error}")


def verify_parts(parts):
    """Hold that every part is here with its bytes; all problems at once."""
    problems = []
    for part in parts:
        path = os.path.join(HERE, part["name"])
        if not os.path.exists(path):
            problems.append("{} is missing".format(part["name"]))
        elif sha256(path) != part["sha256"]:
            problems.append("{} has other bytes: copy it again".format(part["name"]))
    if problems:
        raise Refused("\n  ".join(["nothing was installed:", *problems]))


def sha256(path):
    """Hex sha256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def install(bundle, target):
    """Install every wheel that is not installed yet."""
    check_host(bundle)
    os.makedirs(target, exist_ok=True)
    journal = os.path.join(target, ".draftkiln-bundle")
    done = set()
    if os.path.exists(journal):
        with open(journal, encoding="ascii") as file:
            done = set(file.read().split())
    wanted = [item for item in bundle["files"] if item["sha256"] not in done]
    needed = sum(item["unpacked"] for item in wanted) + max((item["size"] for item in wanted), default=0)
    free = shutil.disk_usage(target).free
    if free < needed:
        raise Refused(f"not enough room in {target}: {needed >> 20} MB needed, {free >> 20} MB free")
    for item in wanted:
        temporary = os.path.join(target, ".part.tmp")
        extract(bundle["parts"], item, temporary)
        unpack(temporary, target)
        os.unlink(temporary)
        with open(journal, "a", encoding="ascii") as file:
            file.write(item["sha256"] + "\n")
            file.flush()
            os.fsync(file.fileno())
        print("installed {}".format(item["name"]))
    variables = dict(bundle["environment"], PYTHONPATH=target, DRAFTKILN_HOME=target, DRAFTKILN_STACK=bundle["stack"])
    with open(os.path.join(target, "env.sh"), "w", encoding="utf-8") as file:
        file.writelines(f"export {key}='{value}'\n" for key, value in sorted(variables.items()))
    print("{} of {} files were installed before".format(len(bundle["files"]) - len(wanted), len(bundle["files"])))
    print(f"go on with: . {target}/env.sh && python3 -m draftkiln --help")


def check_host(bundle):
    """Hold that this Python is the right one and has what the bundle leaves out."""
    problems = []
    here = "{}.{}".format(*sys.version_info[:2])
    if here != bundle["python"] or platform.machine() != bundle["machine"]:
        problems.append(
            "the bundle is for Python {python} on {machine}, ".format(**bundle)
            + f"this is Python {here} on {platform.machine()}"
        )
    for name, version in sorted(bundle["on_host"].items()):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
        if found != version:
            problems.append(f"{name} {version} must be on this host, it is {found}")
    if problems:
        raise Refused("\n  ".join(["nothing was installed:", *problems]))


def blocks(parts, start, size):
    """The bytes `start` to `start + size` of all parts laid end to end."""
    for part in parts:
        if size and start < part["size"]:
            with open(os.path.join(HERE, part["name"]), "rb") as file:
                file.seek(start)
                while size:
                    block = file.read(min(BLOCK, size))
                    if not block:
                        break
                    yield block
                    size -= len(block)
            start = 0
        else:
            start -= part["size"]


def extract(parts, item, path):
    """Write one file of the bundle and verify it."""
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for block in blocks(parts, item["offset"], item["size"]):
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != item["sha256"]:
        raise Refused("{} has other bytes than recorded".format(item["name"]))


def unpack(wheel, target):
    """Lay a wheel out below `target` as `pip install --target` does."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = place(member.filename)
            path = os.path.normpath(os.path.join(target, name))
            if not path.startswith(target + os.sep):
                raise Refused(f"{member.filename} leads out of the folder")
            if member.is_dir():
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as file:
                shutil.copyfileobj(source, file, BLOCK)
            mode = member.external_attr >> 16
            if mode & 0o111 or name.startswith("bin/"):
                os.chmod(path, 0o755)


def place(name):
    """Where a member of a wheel goes: `x.data/purelib/y` is `y`, `x.data/scripts/z` is `bin/z`."""
    parts = name.split("/")
    if not parts[0].endswith(".data") or len(parts) < 3:
        return name
    folder = {"purelib": "", "platlib": "", "scripts": "bin/", "headers": "include/", "data": ""}.get(parts[1])
    if folder is None:
        raise Refused(f"{name} is laid out in a way that is not known here")
    return folder + "/".join(parts[2:])


def load_image(bundle, chosen):
    """Hand the image to the engine."""
    engine = chosen or next((name for name in ("podman", "docker") if shutil.which(name)), None)
    if engine is None:
        raise Refused("neither podman nor docker is installed")
    item = bundle["files"][0]
    process = subprocess.Popen([engine, "load"], stdin=subprocess.PIPE)
    for block in blocks(bundle["parts"], item["offset"], item["size"]):
        process.stdin.write(block)
    process.stdin.close()
    if process.wait():
        raise Refused(f"{engine} load failed")
    print("loaded {}: id {}".format(bundle["image"], bundle["image_id"]))


if __name__ == "__main__":
    main()
