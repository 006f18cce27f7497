import pytest
from packaging.version import Version

from draftkiln.containers.engine import Engine, Kind
from draftkiln.containers.reproduce import Fingerprint, differences, inventory, reproduce
from draftkiln.errors import ContainerError

ONE = Fingerprint("id1", {"blob1": 10}, {"Created": "a"}, {"etc/x": "-rw-r--r-- 0:0 @1 3 aaaa", "bin": "drwx"})


def test_the_same_build_has_no_differences():
    assert list(differences(ONE, ONE)) == []


def test_differences_name_identity_blobs_configuration_and_files():
    files = {"etc/x": "-rw-r--r-- 0:0 @1 3 bbbb", "bin": "drwx", "etc/new": "-rw"}
    lines = list(differences(ONE, Fingerprint("id2", {"blob2": 11}, {"Created": "b"}, files)))
    assert "image id: id1 and id2" in lines
    assert "blob only in the first: blob1 (10 bytes)" in lines
    assert "blob only in the second: blob2 (11 bytes)" in lines
    assert "configuration Created: 'a' and 'b'" in lines
    assert "/etc/x: -rw-r--r-- 0:0 @1 3 aaaa and -rw-r--r-- 0:0 @1 3 bbbb" in lines
    assert "/etc/new: absent and -rw" in lines
    assert not [line for line in lines if line.startswith("/bin")]


def test_equal_files_in_other_blobs_are_a_difference():
    assert list(differences(ONE, Fingerprint("id1", {"blob9": 10}, ONE.config, ONE.files)))


def test_an_inventory_sees_mode_target_and_content(tmp_path):
    (tmp_path / "a").write_text("one")
    (tmp_path / "l").symlink_to("a")
    before = dict(inventory(tmp_path))
    (tmp_path / "a").chmod(0o600)
    changed = dict(inventory(tmp_path))
    assert before["a"] != changed["a"]
    assert before["l"].endswith("-> a")
    assert before["l"] == changed["l"]


def test_docker_is_refused_with_the_reason():
    with pytest.raises(ContainerError, match="bit-identical") as caught:
        reproduce(Engine(Kind.DOCKER, "docker", Version("27.0")), "light")
    assert "podman" in caught.value.fix
