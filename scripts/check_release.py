"""Refuses a release whose version, changelog, citation and tag differ.

    check_release.py v0.1.0 [--notes FILE]

--notes writes the section of the changelog, which becomes the text of the release.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def section(changelog: str, version: str) -> str | None:
    """The text under `## [version] - date`, up to the next heading of that level."""
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    return found[1].strip() if found else None


def mistakes(tag: str, root: pathlib.Path = ROOT) -> list[str]:
    """One sentence per difference; an empty list when the release may go."""
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    if version is None:
        return ["pyproject.toml has no version."]
    number, found = version[1], []
    if tag != f"v{number}":
        found.append(f"The tag is {tag}, pyproject.toml has version {number}; expected v{number}.")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {number}\n" not in citation:
        found.append(f"CITATION.cff does not say `version: {number}`.")
    if not section((root / "CHANGELOG.md").read_text(encoding="utf-8"), number):
        found.append(f"CHANGELOG.md has no section `## [{number}] - YYYY-MM-DD` with text.")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag")
    parser.add_argument("--notes", type=pathlib.Path)
    arguments = parser.parse_args()
    found = mistakes(arguments.tag)
    for sentence in found:
        print(f"[check_release] {sentence}", file=sys.stderr)
    if not found and arguments.notes:
        text = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), arguments.tag[1:])
        arguments.notes.write_text(f"{text}\n", encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
