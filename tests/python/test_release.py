"""What a release must agree about, and that hosted workflows only call what is here."""

import importlib.util
import re
import shutil
from pathlib import Path

import mlx_lattice
import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = mlx_lattice.__version__


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("check", ROOT / "scripts/check_release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path):
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_this_version_may_be_released(check, project):
    assert check.mistakes(f"v{VERSION}", project) == []
    assert check.section((ROOT / "CHANGELOG.md").read_text(), VERSION).startswith("### Added")


def test_another_tag_is_refused(check, project):
    assert check.mistakes("v9.9.9", project) == [
        f"The tag is v9.9.9, pyproject.toml has version {VERSION}; expected v{VERSION}."
    ]


def test_a_missing_section_and_a_stale_citation_are_refused(check, project):
    replace(project / "CHANGELOG.md", f"## [{VERSION}] - ", "## [0.0.0] - ")
    replace(project / "CITATION.cff", f"version: {VERSION}", "version: 0.0.0")
    assert check.mistakes(f"v{VERSION}", project) == [
        f"CITATION.cff does not say `version: {VERSION}`.",
        f"CHANGELOG.md has no section `## [{VERSION}] - YYYY-MM-DD` with text.",
    ]


def test_workflows_call_what_is_here():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert len(workflows) >= 4
    for path in workflows:
        for command in re.findall(r"run: (.*)", path.read_text()):
            words = command.split()
            if words[0] == "make":
                assert words[1] in targets, command
            elif words[0] == "python3":
                assert (ROOT / words[1]).is_file(), command
            elif words[0] not in ("brew", "gh"):
                assert (ROOT / words[0]).stat().st_mode & 0o100, command
