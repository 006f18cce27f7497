import shutil

import pytest

from draftkiln.containers import engine
from draftkiln.containers.engine import Kind
from draftkiln.errors import ContainerError, ExitCode, SystemMissingError


def test_podman_installed_as_docker_is_told_by_its_answer(stub):
    stub("docker", kind="podman")
    assert engine.ask("docker").kind is Kind.PODMAN


def test_facts_come_from_the_engine(stub):
    stub("podman", rootless=True, selinux=True)
    found = engine.find()
    assert (found.kind, found.rootless, found.selinux) == (Kind.PODMAN, True, True)


def test_case_32_podman_before_cdi_is_refused_with_the_reason(stub):
    stub("podman", version="3.4.4")
    with pytest.raises(ContainerError, match=r"podman 3\.4\.4 is too old") as caught:
        engine.ask("podman")
    assert "CDI" in caught.value.why
    assert caught.value.code is ExitCode.CONTAINER


def test_old_docker_is_refused(stub):
    stub("docker", version="19.03.8")
    with pytest.raises(ContainerError, match="too old"):
        engine.ask("docker")


def test_an_engine_that_cannot_be_used_gives_way_to_one_that_can(stub):
    stub("podman", version="3.0.1")
    stub("docker")
    assert engine.find().kind is Kind.DOCKER


def test_no_engine_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DRAFTKILN_ENGINE", raising=False)
    with pytest.raises(SystemMissingError, match="no container engine") as caught:
        engine.find()
    assert "podman" in caught.value.fix
    assert caught.value.code is ExitCode.SYSTEM


def test_a_chosen_engine_that_is_absent_is_not_replaced_by_another(stub, monkeypatch):
    stub("podman")
    monkeypatch.setenv("DRAFTKILN_ENGINE", "docker-of-my-own")
    with pytest.raises(SystemMissingError, match="docker-of-my-own"):
        engine.find()


def test_a_program_that_is_no_engine_is_refused():
    with pytest.raises(ContainerError, match="not a container engine"):
        engine.ask(shutil.which("ls"))


def test_settings_for_podman_without_systemd_are_ours_unless_chosen(monkeypatch, stub):
    stub("podman")
    monkeypatch.setattr(engine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine.Path, "exists", lambda _self: False)
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    assert engine.ask("podman").environment["CONTAINERS_CONF"].endswith("containers/containers.conf")
    monkeypatch.setenv("CONTAINERS_CONF", "/mine")
    assert "CONTAINERS_CONF" not in engine.ask("podman").environment


def test_bootstrap_installs_what_images_need():
    import runpy

    bootstrap = runpy.run_path(str(engine.checkout.root() / "bootstrap.py"))
    assert bootstrap["IMAGE_PROGRAMS"] == engine.PACKAGES
    assert bootstrap["image_packages"](["nox", "-s", "tests"]) == []
    assert bootstrap["browser_packages"](["nox", "-s", "tests"]) == []
