"""Where everything came from: environment, stack, patches, target, data, states, draft, acceptance; and what holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln.errors import DraftkilnError
from draftkiln.report import show, stages
from draftkiln.report.elements import element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from draftkiln.report.elements import Content, Element
    from draftkiln.report.records import Records, Value
    from draftkiln.report.stages import StageView

Row = tuple[str, "Content"]


def chain(records: Records, views: Sequence[StageView]) -> Iterator[Content]:
    """The links of the chain in their order, then every check of one link against another."""
    yield element("ol", [element("li", one) for one in _links(records, views)], class_="chain")
    checks = list(stages.checks(records, list(views)))
    if checks:
        yield element("h3", "Do the links hold?")
        yield element("ul", [_check(check) for check in checks], class_="checks")


def _check(check: stages.Check) -> Element:
    if check.good:
        return element("li", "✓ ", check.what)
    right = check.right if isinstance(check.right, str) else show.as_text(check.right.value)
    return element(
        "li", "✗ ", check.what, ": ", show.digest(check.left, 16), " and ", element("code", right[:16]), class_="bad"
    )


def _links(records: Records, views: Sequence[StageView]) -> Iterator[list[Content]]:
    by_name = {view.name: view for view in views}
    yield from _stacks(records, views)
    first = next((view for view in views if stages.entry(records, view, "recipe.target")), views[0])
    rows: list[Row] = [("source", show.text(stages.entry(records, first, "recipe.target", "source")))]
    rows.append(("config.json, sha256", show.digest(stages.entry(records, first, "target_config"))))
    yield _link("Target", rows)
    prepare = by_name["prepare"]
    rows = [("source", show.text(stages.entry(records, prepare, "recipe.data", "source")))]
    rows += _hashes(records, prepare, "inputs", ("data_sha256",))
    for name in records.mapping(prepare.file, "inputs", "tokenizer"):
        rows.append((f"{name}, sha256", show.digest(stages.entry(records, prepare, "tokenizer", name))))
    rows += _hashes(records, prepare, "results", ("dataset_sha256", "held_out_sha256"))
    yield _link("Data", rows)
    head = "extract/manifest.jsonl"
    told = ("stack", "layer_ids", "dtype", "computed_in", "norm_state")
    rows = show.facts(records, head, (0,), dict.fromkeys(told))
    if found := records.value(head, 0, "patched_wheel_sha256"):
        rows.append(("patched wheel, sha256", show.digest(found)))
    yield _link("Hidden states", rows)
    rows = _hashes(records, by_name["train"], "results", ("checkpoint_sha256",))
    for layout in records.mapping(by_name["export"].file, "results", "weights_sha256"):
        found = stages.result(records, by_name["export"], "weights_sha256", layout)
        rows.append((f"weights for {layout}, sha256", show.digest(found)))
    yield _link("Draft", rows)
    result = "evaluate/result.json"
    rows = [(_of_hash(name), show.digest(found)) for name in ("draft_sha256", "draft_config_sha256", "prompts_sha256")
            if (found := records.value(result, name))]  # fmt: skip
    if found := records.number(result, "acceptance_length"):
        rows.append(("acceptance length", show.number(found, show.exact)))
    yield _link("Acceptance", rows)


def _hashes(records: Records, view: StageView, part: str, keys: Sequence[str]) -> list[Row]:
    return [
        (_of_hash(key), show.digest(found))
        for key in keys
        if view.file and (found := records.value(view.file, part, key))
    ]


def _of_hash(key: str) -> str:
    """`data_sha256` as people say it."""
    return f"{key.removesuffix('_sha256').replace('_', ' ')}, sha256"


def _link(name: str, rows: Sequence[Row]) -> list[Content]:
    if not rows:
        return [element("h3", name), element("p", "nothing of it can be told yet", class_="absent")]
    return [element("h3", name), show.pairs(rows)]


def _stacks(records: Records, views: Sequence[StageView]) -> Iterator[list[Content]]:
    """Environment, stack and patches, for each stack that stages ran on."""
    used: dict[tuple[str, str, str], list[StageView]] = {}
    for view in views:
        found = stages.inputs(records, view)
        if isinstance(found.get("stack"), str):
            key = (found["stack"], str(found.get("requirements")), str(found.get("speculators")))
            used.setdefault(key, []).append(view)
    for (name, requirements, wheel), ran in used.items():
        rows: list[Row] = [
            ("stages", ", ".join(view.name for view in ran)),
            ("environment: requirements.lock, sha256", show.digest(stages.entry(records, ran[0], "requirements"))),
            ("speculators' wheel, sha256", show.digest(stages.entry(records, ran[0], "speculators"))),
        ]
        rows += [(name, show.text(found)) for name, found in _surroundings(records, ran)]
        yield [
            element("h3", "Stack ", element("code", name)),
            show.pairs([*rows, *_in_checkout(name, requirements, wheel)]),
        ]


def _surroundings(records: Records, ran: Sequence[StageView]) -> Iterator[tuple[str, Value]]:
    """Python, machine and image that stages ran in, each told once."""
    seen = set()
    for view in ran:
        for key in records.mapping(view.file, "results", "ran_in"):
            found = stages.result(records, view, "ran_in", key)
            if found is not None and (key, str(found.value)) not in seen:
                seen.add((key, str(found.value)))
                yield key.replace("_", " "), found


def _in_checkout(name: str, requirements: str, wheel: str) -> list[Row]:
    """What this checkout says of a stack, as long as it is the very one that was used."""
    from draftkiln.stack import model

    try:
        stack = model.read(name)
        lock = stack.locked()
    except DraftkilnError as error:
        return [("in this checkout", element("span", error.what, class_="absent"))]
    if requirements != lock.requirements_sha256 or wheel != (lock.patched_wheel_sha256 or lock.base_wheel_sha256):
        return [("in this checkout", element("span", "the lock has changed since this run", class_="bad"))]
    engine, speculators = stack.file.engine, stack.file.speculators
    rows: list[Row] = [
        ("engine", element("code", f"{engine.package} {engine.version}")),
        ("speculators", element("code", lock.patched_version or speculators.version)),
        ("pristine wheel, sha256", element("code", lock.base_wheel_sha256, class_="hash")),
    ]
    if lock.patched_tree:
        rows.append(("patched tree", element("code", lock.patched_tree, class_="hash")))
    patches = _patches(speculators.series)
    if patches:
        rows.append(("patches", element("ul", [element("li", element("code", patch)) for patch in patches])))
    return rows


def _patches(series: str | None) -> list[str]:
    """Names of the patches of a series, in their order."""
    from draftkiln import checkout

    if series is None:
        return []
    file = checkout.root() / "patches" / "speculators" / "series" / series
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [line.split()[0] for line in lines if line.strip() and not line.lstrip().startswith("#")]


def stage_details(records: Records, view: StageView, linked: str | None) -> Element:
    """All that a stage's record holds.

    Args:
        records: of the run.
        view: of the stage.
        linked: prefix of links to files of the run; None where the page lies elsewhere.
    """
    body: list[Content] = []
    if view.failure is not None:
        body.append(element("pre", show.text(view.failure), class_="bad"))
    for part in ("inputs", "results"):
        rows = [[_path(keys), _shown(records.value(view.file, part, *keys))]
                for keys, _ in show.flat(records.mapping(view.file, part)) if keys]  # fmt: skip
        if rows:
            body += [element("h4", part), show.table([], rows, "record")]
    files = records.mapping(view.file, "files")
    if files:
        rows = [
            [_file(records, name, linked), show.number(records.number(view.file, "files", name), show.count)]
            for name in files
        ]
        body += [element("h4", "files"), show.table(["file", "bytes"], rows)]
    log = f"logs/{view.name}.log"
    if (records.path / log).exists():
        body.append(element("p", "Log: ", _file(records, log, linked)))
    summary = element("summary", element("b", view.name), f" {view.state}")
    return element("details", summary, body or "nothing is recorded", id=f"stage-{view.name}")


def _path(keys: Sequence[str | int]) -> str:
    return " / ".join(str(key) for key in keys)


def _shown(found: Value | None) -> Content:
    if found is None:
        return "null"
    value: Any = found.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return element("data", repr(value), value=repr(value), data_from=found.source)
    return show.text(found)


def _file(records: Records, name: str, linked: str | None) -> Content:
    """A file of the run; one that is there is linked to, where links are wanted."""
    from urllib.parse import quote

    if linked is None or not _inside(records.path, name):
        return element("code", name)
    return element("a", name, href=f"{linked}{quote(name)}")


def _inside(run: Path, name: str) -> bool:
    """Whether a record names a file of the run, and not one of elsewhere."""
    try:
        return (run / name).is_file() and (run / name).resolve().is_relative_to(run.resolve())
    except (OSError, ValueError):  # a name that no file can have
        return False
