"""The walls of the house: who may include whom, and what every topic must have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)

# Folder -> what its files may include besides the standard library and themselves; the first match
# counts.
RULES = {
    "lattice/kernels/portable": ["lattice/kernels/portable/"],
    "lattice/kernels/metal": [
        "lattice/kernels/metal/",
        "lattice/kernels/portable/",
        "metal_stdlib",
        "metal_simdgroup",
    ],
    "lattice/kernels/cpu": [
        "hwy/",
        "sanitizer/",
        "lattice/kernels/cpu/",
        "lattice/kernels/portable/",
    ],
    "lattice/graph": ["mlx/", "lattice/graph/"],
    "lattice/core": ["mlx/", "lattice/core/", "lattice/kernels/", "lattice/graph/dtype.h"],
    "lattice/ops": ["mlx/", "lattice/ops/", "lattice/core/", "lattice/graph/", "lattice/kernels/"],
    "python/bindings": [
        "mlx/",
        "nanobind/",
        "lattice/ops/",
        "lattice/core/",
        "lattice/graph/dtype.h",
    ],
    "tests/support": ["gtest/", "hwy/", "tests/support/", "lattice/kernels/"],
    "tests/kernels": ["gtest/", "hwy/", "tests/support/", "lattice/kernels/"],
}
# System headers that kernels may use for memory, threads and cache sizes.
SYSTEM = {"pthread.h", "sched.h", "sys/mman.h", "sys/sysctl.h", "sys/wait.h", "unistd.h"}

# Files of lattice/ops that are no topic of their own: the topic they belong to, or None.
PARTS = {
    "bilinear": "conv",
    "columns": "algebra",
    "geometry": "coords",
    "map": "points",
    "oracle_cases": None,
    "routes": None,
    "row_groups": "algebra",
}
NOT_TIMED = {"backend"}


def sources(folder):
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".h", ".cpp", ".metal"})


def includes(path):
    return [(m[1], m[2]) for m in INCLUDE.finditer(path.read_text(encoding="utf-8"))]


def is_standard(name):
    return "/" not in name and "." not in name


def breaches(folder, allowed):
    for path in sources(folder):
        for _quote, name in includes(path):
            beside = "/" not in name and (path.parent / name).is_file()
            if (
                is_standard(name)
                or name in SYSTEM
                or beside
                or any(name.startswith(a) for a in allowed)
            ):
                continue
            yield f"{path.relative_to(ROOT)} includes {name}"


@pytest.mark.parametrize("folder", RULES)
def test_layers(folder):
    assert not list(breaches(folder, RULES[folder]))


def test_rules_cover_the_library():
    folders = {"/".join(p.relative_to(ROOT).parts[:-1]) for p in sources("lattice")}
    assert {f for f in folders if not any(f == r or f.startswith(r + "/") for r in RULES)} == set()


@pytest.mark.parametrize("folder", ["lattice", "python/bindings", "tests/support"])
def test_headers(folder):
    """A header is guarded, and its .cpp includes it first, so that it stands alone."""
    for header in sources(folder):
        if header.suffix != ".h" or header.name.endswith("-inl.h"):
            continue
        assert "#pragma once" in header.read_text(encoding="utf-8"), header
        body = header.with_suffix(".cpp")
        if body.is_file():
            own = str(header.relative_to(ROOT))
            assert includes(body)[0][1] in (own, header.name), (
                f"{body.relative_to(ROOT)} does not include {own} first"
            )


def test_comment_at_the_top():
    for path in sources("lattice"):
        if path.suffix == ".cpp" and path.with_suffix(".h").is_file():
            continue  # its header speaks for both
        assert path.read_text(encoding="utf-8").startswith("//"), (
            f"{path.relative_to(ROOT)} does not say what it is for"
        )


def topics():
    found = set()
    for path in (ROOT / "lattice/ops").glob("*.cpp"):
        name = path.stem if path.stem in PARTS else path.stem.split("_")[0]
        found.add(PARTS.get(name, name))
    return sorted(found - {None})


@pytest.mark.parametrize("topic", topics())
def test_topic_is_complete(topic):
    rooms = ["tests/ops/{}_test.cpp", "python/bindings/{}.cpp", "docs/ops/{}.md"]
    if topic not in NOT_TIMED:
        rooms.append("bench/{}_bench.cpp")
    assert [r.format(topic) for r in rooms if not (ROOT / r.format(topic)).is_file()] == []


def test_bindings_are_called():
    text = (ROOT / "python/bindings/module.cpp").read_text(encoding="utf-8")
    for path in (ROOT / "python/bindings").glob("*.cpp"):
        if path.stem != "module" and not path.with_suffix(".h").is_file():
            assert f"bind_{path.stem}(m)" in text, path.name


def test_one_mlx_version():
    pin = (ROOT / "cmake/mlx_version.txt").read_text().strip()
    found = re.findall(r'"mlx(?:\[cpu\])?==([^;"]+);', (ROOT / "pyproject.toml").read_text())
    assert found == [pin] * 4


def test_one_version():
    cmake = re.search(r"project\(lattice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[
        1
    ]
    assert f'version = "{cmake}"' in (ROOT / "pyproject.toml").read_text()
