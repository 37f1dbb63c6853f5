"""Fails when a source distribution lacks a file of the build: check_sdist.py FILE.tar.gz"""

import subprocess
import sys
import tarfile

NEEDED = (
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "cmake/",
    "lattice/",
    "python/",
)


def main(path: str) -> int:
    with tarfile.open(path) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    tracked = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"], capture_output=True, text=True, check=True
    ).stdout
    missing = [
        name for name in tracked.splitlines() if name.startswith(NEEDED) and name not in held
    ]
    extra = [name for name in held if name.startswith(("build/", ".venv/", ".git/"))]
    if missing or extra:
        print(f"[check_sdist] {path} lacks {missing}, and should not have {extra}", file=sys.stderr)
        return 1
    print(f"source distribution: {path}, {len(held)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
