import pytest

from draftkiln.containers import engine, pins
from draftkiln.containers.locked import Locked
from draftkiln.containers.pins import Candidate, Pin, State
from draftkiln.errors import ExitCode, PinError, StackError

IMAGE = "registry.example.org/vllm/vllm-openai@sha256:" + "a" * 64
ONE = Locked("x", "1.0", frozenset({"a" * 64, "b" * 64}))
TWO = Locked("y", "2.0", frozenset({"c" * 64}))


@pytest.mark.parametrize(
    ("says", "state"),
    [
        ("reading manifest sha256:aaa in registry.example.org/vllm: manifest unknown", State.GONE),
        ("toomanyrequests: You have reached your pull rate limit", State.RATE_LIMIT),
        ("received unexpected HTTP status: 429 Too Many Requests", State.RATE_LIMIT),
        ("dial tcp: lookup registry.example.org: no such host", State.NO_NETWORK),
        ("something else", State.UNKNOWN),
    ],
)
@pytest.mark.parametrize("name", ["podman", "docker"])
def test_case_15_gone_rate_limit_and_no_network_are_told_apart(stub, name, says, state):
    asked = stub(name, says=says, code=125)
    found, note = pins.image_state(engine.ask(name), IMAGE)
    assert found is state
    # Asked once, by the pinned digest: no other tag, no pull.
    assert asked.calls == [["manifest", "inspect", IMAGE]]
    if state is State.GONE:
        assert "refresh" in note


def test_case_15_a_pin_that_is_there(stub):
    stub("podman")
    assert pins.image_state(engine.ask("podman"), IMAGE) == (State.PRESENT, "")


def test_case_15_each_state_has_its_exit_code():
    def of(*states):
        return pins.verdict([Pin("package", "x", "", state) for state in states])

    assert of(State.PRESENT, State.LOCAL) is ExitCode.OK
    assert of(State.PRESENT, State.GONE, State.NO_NETWORK) is ExitCode.PIN
    assert of(State.MOVED) is ExitCode.PIN
    assert of(State.RATE_LIMIT) is of(State.NO_NETWORK) is ExitCode.NETWORK


def test_packages_by_the_hashes_that_the_index_offers(monkeypatch):
    monkeypatch.setattr(pins, "offered_hashes", lambda _: {"x": frozenset({"a" * 64}), "y": frozenset({"d" * 64})})
    one, two = pins.package_pins([ONE, TWO])
    assert (one.state, one.note) == (State.PRESENT, "1 of its files are gone")
    assert two.state is State.MOVED


def test_a_version_that_is_gone_does_not_hide_the_others(monkeypatch):
    def offered(names):
        if "y==2.0" in names:
            raise StackError("x", why="Because there is no version of y==2.0 and you require y==2.0, we can conclude")
        return {"x": ONE.hashes}

    monkeypatch.setattr(pins, "offered_hashes", offered)
    assert [pin.state for pin in pins.package_pins([ONE, TWO])] == [State.PRESENT, State.GONE]


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("Request failed after 3 retries\ncause: Failed to fetch: http://127.0.0.1:9/simple/x/", State.NO_NETWORK),
        ("Failed to fetch: HTTP status client error (429 Too Many Requests)", State.RATE_LIMIT),
    ],
)
def test_an_index_that_cannot_be_asked_says_nothing_about_pins(monkeypatch, why, state):
    def offered(_):
        raise StackError("x", why=why)

    monkeypatch.setattr(pins, "offered_hashes", offered)
    assert {pin.state for pin in pins.package_pins([ONE, TWO])} == {state}


def test_case_42_the_same_digest_is_no_news():
    pinned = Candidate("sha256:1", "0.20.2", "2026-05-10")
    assert pins.refresh_verdict(pinned, pinned) == "same"
    assert pins.refresh_verdict(pinned, Candidate("sha256:2", "0.21.0", "2026-06-01")) == "newer"


@pytest.mark.parametrize("found", [("0.20.1", "2026-06-01"), ("0.20.2", "2026-05-09")])
def test_case_42_a_new_digest_of_an_older_build_is_refused(found):
    with pytest.raises(PinError, match="older build"):
        pins.refresh_verdict(Candidate("sha256:1", "0.20.2", "2026-05-10"), Candidate("sha256:2", *found))
