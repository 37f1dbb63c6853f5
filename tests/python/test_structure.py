"""The walls of the house: who may include whom, and what every topic must have."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlx_lattice
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
        "metal_tensor",
        "MetalPerformancePrimitives/",
    ],
    "lattice/kernels/cuda": ["lattice/kernels/cuda/", "lattice/kernels/metal/"],
    "lattice/kernels/cpu": [
        "hwy/",
        "immintrin.h",  # instructions that Highway has no name for
        "arm_neon.h",
        "cpuid.h",  # whether the processor has them
        "sys/auxv.h",
        "sanitizer/",
        "lattice/kernels/cpu/",
        "lattice/kernels/portable/",
    ],
    "lattice/graph": [
        "mlx/",
        "lattice/graph/",
        "lattice/kernels/metal/text.h",
        "lattice/kernels/cpu/base/",
    ],
    "lattice/core": [
        "mlx/",
        "lattice/core/",
        "lattice/kernels/",
        "lattice/graph/dtype.h",
        "lattice/graph/array_memory.h",
    ],
    "lattice/routes": [
        "mlx/",
        "lattice/routes/",
        "lattice/core/",
        "lattice/graph/",
        "lattice/kernels/",
    ],
    "lattice/ops": [
        "mlx/",
        "lattice/ops/",
        "lattice/routes/",
        "lattice/core/",
        "lattice/graph/",
        "lattice/kernels/",
    ],
    "lattice/io": [
        "mlx/",
        "lattice/io/",
        "lattice/ops/",
        "lattice/core/",
    ],
    "lattice/program": [
        "mlx/",
        "lattice/program/",
        "lattice/lattice_c.h",
        "lattice/ops/",
        "lattice/core/",
        "lattice/graph/dtype.h",
        "lattice/kernels/cpu/base/",
    ],
    "lattice/selftest": [
        "mlx/",
        "lattice/selftest/",
        "lattice/ops/",
        "lattice/routes/",
        "lattice/core/",
        "lattice/graph/",
        "lattice/kernels/cpu/base/",
    ],
    "python/bindings": [
        "mlx/",
        "nanobind/",
        "lattice/ops/",
        "lattice/routes/capability.h",
        "lattice/routes/decide.h",
        "lattice/routes/table.h",
        "lattice/io/",
        "lattice/program/",
        "lattice/selftest/selftest.h",
        "lattice/core/",
        "lattice/graph/dtype.h",
    ],
    "tests/support": ["gtest/", "hwy/", "tests/support/", "lattice/kernels/"],
    "tests/kernels": ["gtest/", "hwy/", "tests/support/", "tests/kernels/", "lattice/kernels/"],
}
# System headers that kernels may use for memory, threads and cache sizes.
SYSTEM = {"pthread.h", "sched.h", "sys/mman.h", "sys/sysctl.h", "sys/wait.h", "unistd.h"}


def sources(folder):
    return sorted(
        p for p in (ROOT / folder).rglob("*") if p.suffix in {".h", ".cpp", ".metal", ".cuh"}
    )


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
                or name == "lattice/api.h"  # LATTICE_API
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
    folders.remove("lattice")  # lattice.h, extend.h, lattice_c.h and api.h
    assert {f for f in folders if not any(f == r or f.startswith(r + "/") for r in RULES)} == set()


def public_headers():
    """lattice.h, extend.h, lattice_c.h and what they include: all that is installed."""
    found, todo = set(), ["lattice/lattice.h", "lattice/extend.h", "lattice/lattice_c.h"]
    while todo:
        header = todo.pop()
        if header not in found:
            found.add(header)
            todo.extend(n for _quote, n in includes(ROOT / header) if n.startswith("lattice/"))
    return found


def test_public_headers_show_no_internals():
    kernels = {f"lattice/kernels/cpu/base/{name}.h" for name in ("choices", "threads")}
    inside = ("lattice/kernels/", "lattice/routes/", "lattice/selftest/")
    assert {h for h in public_headers() if h.startswith(inside)} == kernels
    package = Path(mlx_lattice.__file__).parent / "include"
    assert {str(p.relative_to(package)) for p in package.rglob("*.h")} == public_headers()


def test_library_shows_no_kernel():
    """-fvisibility=hidden: functions of lattice::cpu are not exported, but for the threads."""
    if not shutil.which("nm"):
        pytest.skip("needs nm")
    library = next((Path(mlx_lattice.__file__).parent / "lib").glob("liblattice.*"))
    kind = "-DC" if sys.platform == "linux" else "-gC"
    command = ["nm", kind, "--defined-only", library]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    names = re.findall(r" [TWVBDR] (lattice::cpu::\w+)", run.stdout)
    assert set(names) == {
        f"lattice::cpu::{name}" for name in ("parallel_run", "set_thread_count", "thread_count")
    }
    assert "lattice::subm_conv3d(" in run.stdout


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


def unit_of(path):
    """A .h with its .cpp is one unit; an -inl.h is a part of the .cpp that its name begins with."""
    if not path.name.endswith("-inl.h"):
        return str(path.relative_to(ROOT).with_suffix(""))
    stem = path.name.removesuffix("-inl.h")
    while not (path.parent / f"{stem}.cpp").is_file() and "_" in stem:
        stem = stem.rpartition("_")[0]
    return str((path.parent / stem).relative_to(ROOT))


def units():
    """Every unit of the library and the units that it includes."""
    found = {}
    for path in sources("lattice"):
        named = [path.parent / n if "/" not in n else ROOT / n for _quote, n in includes(path)]
        used = {unit_of(p) for p in named if p.is_file()}
        found.setdefault(unit_of(path), set()).update(used - {unit_of(path)})
    return found


def cycles(graph):
    """Sets of more than one unit that include each other (Tarjan 1972)."""
    order, low, stack, found = {}, {}, [], []

    def visit(unit):
        order[unit] = low[unit] = len(order)
        stack.append(unit)
        for other in sorted(graph.get(unit, ())):
            if other not in order:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], order[other])
        if low[unit] == order[unit]:
            at = stack.index(unit)
            found.append(stack[at:])
            del stack[at:]

    for unit in sorted(graph):
        if unit not in order:
            visit(unit)
    return [sorted(c) for c in found if len(c) > 1]


def test_no_cycle_of_units():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]
    assert cycles(units()) == []


def test_only_routes_decide():
    """A choice of algorithm is a row of a table; nobody else asks for names of rows.

    Operations with one way per device stand in lattice/ops and ask for the device only.
    """
    names = r'starts_with\("(?:metal|cpu|gpu)|operation\s*[!=]=\s*"|\bCode::'
    for folder in ("lattice", "python/bindings"):
        for path in sources(folder):
            if path.parent == ROOT / "lattice/routes":
                continue
            asks = names if path.parent == ROOT / "lattice/ops" else names + r"|\bon_gpu\("
            found = re.search(asks, path.read_text(encoding="utf-8"))
            assert not found, f"{path.relative_to(ROOT)}: {found[0]}"
    devices = re.compile(r"default_device\(\)\s*[!=]=")
    for path in (ROOT / "python/mlx_lattice").rglob("*.py"):
        assert not devices.search(path.read_text(encoding="utf-8")), path.relative_to(ROOT)


def topics():
    """A page of docs/ops is a topic."""
    return sorted(path.stem for path in (ROOT / "docs/ops").glob("*.md"))


@pytest.mark.parametrize("topic", topics())
def test_topic_is_complete(topic):
    rooms = [
        "lattice/ops/{}.h",
        "lattice/ops/{}.cpp",
        "tests/ops/{}_test.cpp",
        "python/bindings/{}.cpp",
    ]
    header = ROOT / f"lattice/ops/{topic}.h"
    if header.is_file() and "mx::" in header.read_text(encoding="utf-8"):
        rooms.append("bench/{}_bench.cpp")  # it computes arrays, so somebody times it
    assert [r.format(topic) for r in rooms if not (ROOT / r.format(topic)).is_file()] == []


def test_ops_are_topics_or_serve_them():
    """Whatever Python binds is a topic; every other file of lattice/ops serves one."""
    graph = units()
    reached, todo = set(), [f"lattice/ops/{t}" for t in topics()]
    while todo:
        unit = todo.pop()
        if unit not in reached:
            reached.add(unit)
            todo.extend(graph.get(unit, ()))
    named = {u for u in graph if u.startswith("lattice/ops/")}
    parts = {f"{t}_" for t in topics()}
    alone = {u for u in named - reached if not any(Path(u).name.startswith(p) for p in parts)}
    assert alone == set()


def test_bindings_are_called():
    text = (ROOT / "python/bindings/module.cpp").read_text(encoding="utf-8")
    for path in (ROOT / "python/bindings").glob("*.cpp"):
        if path.stem != "module" and not path.with_suffix(".h").is_file():
            assert f"bind_{path.stem}(m)" in text, path.name


def test_one_mlx_version():
    pin = (ROOT / "cmake/mlx_version.txt").read_text().strip()
    found = re.findall(r'"mlx(?:\[\w+\])?==([^;"]+)', (ROOT / "pyproject.toml").read_text())
    assert found == [pin] * 6  # two for the build, one to run, three extras
    assert f"mlx=={pin}" in (ROOT / ".pre-commit-config.yaml").read_text()


def test_one_version():
    project = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "(\d+\.\d+\.\d+)"', project, re.MULTILINE)[1]
    assert mlx_lattice.__version__ == version
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{version}] - " in (ROOT / "CHANGELOG.md").read_text()


def test_no_lane_layout_of_matrices_is_assumed():
    """Which lane holds which element is not documented: thread_elements() is for tests only."""
    texts = {
        path.name: path.read_text() for path in (ROOT / "lattice/kernels/metal").glob("*.metal")
    }
    assert "tiles.metal" in texts
    assert [name for name, text in texts.items() if "thread_elements" in text] == []
