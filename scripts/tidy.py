#!/usr/bin/env python3
"""clang-tidy on C++ files; needs a build, because clang-tidy reads its compile_commands.json.

tidy.py            files that differ from the branch main
tidy.py --all      all files with all checks of .clang-tidy; takes half an hour of two cores
tidy.py --spare    also other files while time is left; the commit says with which file to begin

--quick leaves out the static analyzer. --seconds S stops after S seconds and counts what is left. A
file that passed is checked again when the file, its header or the checks change, or with --all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASSED = ROOT / "build/tidy"
PLACES = ("lattice", "python/bindings")


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def all_files() -> list[str]:
    return [f for f in git("ls-files", *PLACES) if f.endswith(".cpp")]


def changed_files() -> list[str]:
    """Sources that differ from main, and sources whose own header does."""
    base = git("merge-base", "HEAD", "main") or git("merge-base", "HEAD", "origin/main")
    named = git("diff", "--name-only", (base or ["HEAD"])[0], "--", *PLACES)
    named += git("ls-files", "--others", "--exclude-standard", *PLACES)
    stems = {f.rsplit(".", 1)[0] for f in named if f.endswith((".cpp", ".h"))}
    return sorted(s + ".cpp" for s in stems if (ROOT / (s + ".cpp")).exists())


def rotated(files: list[str]) -> list[str]:
    """The list from a place on that every commit chooses anew."""
    commit = (git("rev-parse", "HEAD") or ["0"])[0]
    start = int(commit[:8], 16) % len(files)
    return files[start:] + files[:start]


class Tidy:
    def __init__(self, options: argparse.Namespace) -> None:
        self.build = ROOT / os.environ.get("BUILD", "build/release")
        self.end = time.monotonic() + options.seconds if options.seconds else None
        self.all = options.all
        self.quick = ["--checks=-clang-analyzer-*"] if options.quick else []
        self.tool = subprocess.check_output([ROOT / "scripts/lint_tools.sh"], text=True).strip()
        self.checked = self.failed = self.left = 0

    def stamp(self, file: str) -> Path:
        digest = hashlib.sha256(" ".join(self.quick).encode())
        for path in (ROOT / ".clang-tidy", ROOT / file, (ROOT / file).with_suffix(".h")):
            digest.update(path.read_bytes() if path.exists() else b"")
        return PASSED / digest.hexdigest()[:32]

    def check(self, file: str) -> None:
        stamp = self.stamp(file)
        if stamp.exists() and not self.all:
            return
        if self.end and time.monotonic() > self.end:
            self.left += 1
            return
        words = [f"{self.tool}/clang-tidy", "--quiet", "-p", str(self.build), *self.quick]
        done = subprocess.run(
            [*words, "--warnings-as-errors=*", file], cwd=ROOT, capture_output=True, text=True
        )
        self.checked += 1
        if done.returncode == 0:
            PASSED.mkdir(parents=True, exist_ok=True)
            stamp.touch()
        else:
            self.failed += 1
            print(done.stdout, done.stderr[-2000:] if not done.stdout else "", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--spare", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    tidy = Tidy(options)
    if not (tidy.build / "compile_commands.json").exists():
        print("clang-tidy: skipped, because there is no build yet; `make build` makes one")
        return 0
    files = all_files() if options.all else changed_files()
    if options.spare:
        files += rotated([f for f in all_files() if f not in files])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(tidy.check, files))
    left = f", no time for {tidy.left}" if tidy.left else ""
    print(f"clang-tidy: {tidy.checked} files checked, {tidy.failed} with findings{left}")
    return 1 if tidy.failed else 0


if __name__ == "__main__":
    sys.exit(main())
