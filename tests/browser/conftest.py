import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

import chromium
import made_run

from draftkiln.report import command

RUNS = {
    "made up": {"hub": "moonshotai/Kimi-K2.6"},
    "hostile": {"name": '<img src="x">\u202e' + "n" * 300, "word": '"><script>alert(1)</script>' + "w" * 200},
    "half done": {"until": "validate"},
}


def pytest_addoption(parser):
    parser.addoption("--run", type=Path, help="also look at the page of this run")
    parser.addoption("--pictures", type=Path, help="folder to keep what the browser drew")


@pytest.fixture(scope="session")
def browser():
    """A real browser, or the reason why there is none."""
    found = next((path for name in chromium.PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium here: python3 bootstrap.py --apt nox -s report_tests installs Debian's (100 MB)")
    return chromium.Browser(found)


@pytest.fixture(scope="session", params=[*RUNS, "given"])
def run(request, tmp_path_factory):
    """A run directory; its page is `report.html` beside it or in it."""
    if request.param != "given":
        return made_run.write(tmp_path_factory.mktemp(request.param.replace(" ", "-")) / "run", **RUNS[request.param])
    given = request.config.getoption("--run")
    if given is None:
        pytest.skip("no run was named with --run")
    return given


@pytest.fixture(scope="session")
def page(request, run, tmp_path_factory):
    """The page of the run; somebody's own run is left as it is."""
    given = run == request.config.getoption("--run")
    return command.write(run, tmp_path_factory.mktemp("page") / "report.html" if given else None)[0]
