"""What a user gets who installs the package."""

import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from proba import __version__
from proba.report import troubleshooting, troubleshooting_path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files of the wheel by name."""
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    (path,) = builder.build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_holds_what_the_package_reads(wheel):
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "proba").rglob("*.py")}
    assert sources | {"proba/py.typed", "proba/viewer/page.html"} <= wheel.keys()
    assert not [name for name in wheel if name.startswith(("tests", "docs"))]


def test_wheel_says_name_version_and_command(wheel):
    facts = f"proba_sfm-{__version__}.dist-info/"
    assert f"\nName: proba-sfm\nVersion: {__version__}\n" in wheel[facts + "METADATA"].decode()
    assert wheel[facts + "entry_points.txt"].decode().split() == ["[console_scripts]", "proba", "=", "proba.cli:main"]


def test_troubleshooting_is_found_in_a_wheel_and_in_a_checkout(wheel, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "troubleshooting.md").read_bytes()
    found = troubleshooting_path()
    assert found is not None and found.read_bytes() == page
    assert wheel["proba/report/troubleshooting.md"] == page
    monkeypatch.setattr(troubleshooting, "HERE", tmp_path / "site-packages" / "proba" / "report")
    assert troubleshooting_path() is None
    installed = tmp_path / "site-packages" / "proba" / "report" / "troubleshooting.md"
    installed.parent.mkdir(parents=True)
    installed.write_bytes(page)
    assert troubleshooting_path() == installed


def test_install_lines_name_this_package_and_extras_that_exist():
    """`pip install proba` would bring somebody else's package."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    lines = [line for path in texts for line in path.read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert lines
    for line in lines:
        assert not re.search(r"pip install[^`]*?[\s'\"]proba(?![\w-])", line), line
        for extra in re.findall(r"proba-sfm\[([\w,]+)\]", line):
            assert set(extra.split(",")) <= PROJECT["optional-dependencies"].keys(), line
