"""Texts: the rules of "How we write", names in the docs that exist, constants that the code has."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md", ROOT / "ARCHITECTURE.md"]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_text = script("check_text")
LONG = " ".join(["as"] * 25) + " it."


@pytest.mark.parametrize(
    ("name", "text", "line", "finding"),
    [
        ("a.md", "Fine.\n" + "x" * 101, 2, "101 columns"),
        ("a.cpp", "// the neighbour of a row", 1, "'neighbour', expected 'neighbor'"),
        ("a.py", "# it normalises rows", 1, "'normalises', expected '-ize'"),
        ("a.md", "It takes 8 bytes a row.", 1, "bytes per row"),
        ("a.h", "// one thread an element", 1, "thread per element"),
        ("a.md", "Short.\n\n" + LONG, 3, "26 words"),
        ("a.md", f"- {LONG}", 1, "26 words"),
        ("a.py", f'"""Top.\n\n{LONG[:60]}\n{LONG[60:]}\n"""\n', 3, "26 words"),
        ("a.h", f"int a;\n// {LONG[:60]}\n// {LONG[60:]}\n", 2, "26 words"),
    ],
)
def test_mistakes_are_found(name, text, line, finding):
    found = list(check_text.findings(name, text))
    assert [number for number, _ in found] == [line] and finding in found[0][1], found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "| " + "x" * 120 + " |"),
        ("a.md", "https://example.org/" + "x" * 120),
        ("a.md", "```\n" + LONG[:90] + "\n" + LONG[90:] + "\n```"),
        ("a.md", 'Not "a thread an element", but one thread per element.'),
        ("a.md", "Ten words here. " * 5),
        ("a.py", "x = 1  # a short comment\n"),
    ],
)
def test_good_text_passes(name, text):
    assert not list(check_text.findings(name, text))


def test_all_texts_follow_the_rules(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert check_text.main([]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_names_in_docs_exist(page):
    """Every dotted name in backticks that begins with mlx_lattice can be imported."""
    for name in set(re.findall(r"`(mlx_lattice(?:\.\w+)+)", page.read_text())):
        parts = name.split(".")
        value = importlib.import_module(parts[0])
        for at, part in enumerate(parts[1:], 1):
            if not hasattr(value, part):
                importlib.import_module(".".join(parts[: at + 1]))
            value = getattr(value, part)


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_files_and_links_in_docs_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(
        r"`((?:lattice|tests|scripts|docs|examples|bench|cmake)/[\w/.-]+)`", text
    ):
        assert list(ROOT.glob(path + "*")), path


def constant(name):
    """The value of the C++ constant `name`, wherever the library defines it."""
    files = [*ROOT.glob("lattice/**/*.h"), *ROOT.glob("lattice/**/*.cpp")]
    found = {v for f in files for v in re.findall(rf"\b{name} = ([^;]+);", f.read_text())}
    assert len(found) == 1, f"{name}: found {found or 'no definition'}, expected one"
    return eval(re.sub(r"\w+\{(\d+)\}", r"\1", found.pop()), {})


@pytest.mark.parametrize(
    ("page", "sentence", "names"),
    [
        (
            "docs/ops/segments.md",
            "more than {:,} rows is summed in pieces of {} rows",
            ("kLongSegment", "kSegmentPiece"),
        ),
        (
            "docs/ops/pool.md",
            "More than {:,} rows of a batch item are summed in pieces of {}",
            ("kLongSegment", "kSegmentPiece"),
        ),
        (
            "docs/ops/points.md",
            "more than {:,} points is summed in pieces of {}",
            ("kLongSegment", "kSegmentPiece"),
        ),
        ("docs/ops/entropy.md", "Below {} rows rANS uses one state", ("kManyRows",)),
        ("docs/ops/neighbors.md", "with leaves of {} points", ("kLeaf",)),
        ("docs/metal.md", "If some offset has more than {:,} edges", ("kPartEdges",)),
    ],
)
def test_constants_in_docs_are_those_of_the_code(page, sentence, names):
    text = " ".join((ROOT / page).read_text().split())
    assert sentence.format(*map(constant, names)) in text


def test_budget_of_the_manager():
    gib = constant("kDefaultBudget") >> 30
    assert f"byte budget ({gib} GiB)" in (ROOT / "docs/concepts.md").read_text()


def test_chart_is_that_of_the_page():
    charts, page = script("performance_chart"), (ROOT / "docs/performance.md").read_text()
    assert (ROOT / "docs/figures/performance.svg").read_text() == charts.chart(page)
    assert (ROOT / "docs/figures/share.svg").read_text() == charts.share_chart(page)
    growth = charts.growth_chart((ROOT / "docs/notebook.md").read_text())
    assert (ROOT / "docs/figures/neighbors_growth.svg").read_text() == growth
