"""The documentation: every code block runs, every page is linked, figures and lists are current."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import mlx.nn
import mlx_lattice
import pytest
import trees
from mlx_lattice import models
from mlx_lattice.cli.main import build_parser, main
from mlx_lattice.transforms import TRANSFORMS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md")) + [ROOT / "README.md"]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)

# Pages that continue a thought: what their first block may take for granted.
TENSOR = """import mlx.core as mx, mlx.nn, mlx_lattice
from mlx_lattice import ops, samples
x, weight, coords = samples.tensor(), mx.ones((8, 3, 3, 3, 4)), samples.tensor().coords
"""
BEFORE = {
    "docs/ops/conv.md": TENSOR,
    "docs/ops/relations.md": TENSOR,
    "docs/devices.md": TENSOR,
    "docs/metal.md": TENSOR,
    "docs/cuda.md": TENSOR,
    "docs/ops/quantize.md": TENSOR
    + """from mlx_lattice import models
x, weight, bias = samples.tensor(32), mx.ones((8, 3, 3, 3, 32)), mx.zeros((8,))
def Model(): return models.SparseResNet(64, 64, depth=18, width=64)
model = Model()""",
    "docs/concepts.md": TENSOR + "from mlx_lattice import SparseTensor\nfeats = x.feats",
    "docs/models.md": "from mlx_lattice.core import GeometryPlan\n"
    "import mlx.core as mx\nfeats = mx.ones((3, 4))",
    "docs/commands.md": "from mlx_lattice import samples\ntruth = predicted = samples.scan(0)",
    "docs/transforms.md": "from mlx_lattice import samples\ncloud = samples.scan(0)",
    "docs/io.md": """import numpy as np
from mlx_lattice import io, samples
made = samples.scan(0)
columns = {**made.columns, "color": np.zeros((len(made), 3), np.uint8)}
io.write("scan.ply", io.PointCloud(made.points, columns))""",
    "docs/distributed.md": TENSOR
    + """from mlx_lattice import nn, training
model, optimizer, items = nn.Linear(4, 2), training.AdamW(1e-3), [x]
loss = lambda model, x: model(x).feats.square().mean()""",
}
# What stands for a data set that must be downloaded, and for hours of training.
SMALL = {"/data/SemanticKITTI": "kitti", "/fast/cache": "cache", "epochs=20": "epochs=1"}
SMALL["MinkUNet(pipeline.channels, len(data.classes))"] = (
    "MinkUNet(pipeline.channels, len(data.classes), depth=14, width=8)"
)
LANGUAGES = {"python", "sh", "json", "toml", "cpp", "cmake"}  # those that tests below run
# Text without a language: formulas and what a program prints.
PLAIN = {"docs/metal.md": 1, "docs/ops/entropy.md": 1}


def blocks(page, *languages):
    """(language, text, first line) of the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match[2] in languages:
            body = "\n".join(line[len(match[1]) :] for line in match[3].split("\n"))
            yield match[2], body, text[: match.start()].count("\n") + 2


def name(page):
    return str(page.relative_to(ROOT))


def script(title):
    spec = importlib.util.spec_from_file_location(title, ROOT / f"scripts/{title}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WITH_PYTHON = [p for p in PAGES if any(True for _ in blocks(p, "python"))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    if name(page) in ("docs/metal.md", "docs/cuda.md"):
        from metal.host import missing

        if reason := missing():
            pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    for golden in (Path(__file__).with_name("goldens")).glob("*.npz"):
        shutil.copy(golden, tmp_path)
    (tmp_path / "kitti").mkdir()
    trees.semantic_kitti(tmp_path / "kitti", scans=1, n=100)
    names = {"__name__": "docs"}
    exec(BEFORE.get(name(page), ""), names)
    for _language, body, line in blocks(page, "python"):
        for large, small in SMALL.items():
            body = body.replace(large, small)
        exec(compile("\n" * (line - 1) + body, str(page), "exec"), names)
        if name(page) == "docs/ops/quantize.md":
            names["model"] = names[
                "Model"
            ]()  # each block begins with the network as it was trained


def test_no_block_escapes():
    """Every block of code has a language that a test of this file runs."""
    for page in PAGES:
        found = [match[1] for match in re.finditer(r"^ *```(\S*)", page.read_text(), re.MULTILINE)]
        opened = found[::2]
        assert set(opened) - {""} <= LANGUAGES, name(page)
        assert opened.count("") == PLAIN.get(name(page), 0), name(page)


def test_tables_of_transforms_are_right():
    tomllib = pytest.importorskip("tomllib")
    from mlx_lattice import transforms

    found = [body for page in PAGES for _, body, _ in blocks(page, "toml")]
    assert found
    for body in found:
        assert transforms.build(tomllib.loads(body)["augment"]).transforms


def test_the_quick_start_runs_as_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (_, body, _), *_ = blocks(DOCS / "start/quick.md", "sh")
    for text in body.replace("--epochs 10", "--epochs 2").strip().split("\n"):
        assert main(shlex.split(text, comments=True)[1:]) == 0, text
    assert (tmp_path / "yard.html").is_file() and (tmp_path / "look.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_json_are_right(page):
    parser = build_parser()
    for _language, body, line in blocks(page, "sh"):
        for text in body.replace("\\\n", " ").split("\n"):
            words = shlex.split(text, comments=True)
            if words[:1] == ["mlx-lattice"]:
                words = words[1:]
            elif words[:3] == ["python", "-m", "mlx_lattice"]:
                words = words[3:]
            else:
                continue
            try:
                parser.parse_args(words)
            except SystemExit as stop:
                assert stop.code == 0, f"{name(page)}:{line}: {text}"
    for _language, body, _line in blocks(page, "json"):
        json.loads(body)


def test_no_page_is_an_orphan():
    nav = re.findall(r"([\w/]+\.md)", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    found = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}
    assert found - set(nav) == set() and set(nav) - found == set()
    assert len(nav) == len(set(nav))


def test_every_command_is_on_the_commands_page():
    text = (DOCS / "commands.md").read_text()
    parser = build_parser()
    action = next(a for a in parser._actions if a.dest == "command")
    assert [c for c in action.choices if not re.search(rf"`{c}\b", text)] == []


def test_figures_and_lists_are_up_to_date():
    assert script("figures").main(check=True) == 0
    assert script("api_pages").main(check=True) == 0


def test_every_figure_is_made_by_the_project():
    """A script or command makes each file of docs/figures, and a page shows it."""
    made = {f"{name}.svg" for name in script("figures").FIGURES}
    made |= set(re.findall(r"(?:performance|share|neighbors_growth)(?=[,}])", charts_text()))
    made = {n if n.endswith(".svg") else f"{n}.svg" for n in made}
    made |= {f"transforms/{name}.png" for name in TRANSFORMS}
    if "mlx-lattice demo --output docs/figures/street.png" in (DOCS / "index.md").read_text():
        made.add("street.png")
    folder = DOCS / "figures"
    found = {str(p.relative_to(folder)) for p in folder.rglob("*.*")}
    assert found == made
    text = "".join(page.read_text() for page in PAGES)
    assert {f for f in found if f"figures/{f}" not in text} == set()


def charts_text():
    return (ROOT / "scripts/performance_chart.py").read_text().split('"""')[1]


def test_keys_of_backend_info_are_on_its_page():
    text = (DOCS / "ops/backend.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.M)) == set(mlx_lattice.backend_info())


def test_the_check_of_the_site_finds_what_it_looks_for(tmp_path):
    (tmp_path / "a.html").write_text(
        '<script src="https://cdn.example/x.js"></script><a href="b.html">b</a>'
        '<a href="a.html">a</a>'
    )
    problems = list(script("check_site").problems(tmp_path))
    assert len(problems) == 2 and "cdn.example" in problems[0] and "b.html" in problems[1]


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")
def test_cpp_blocks_run(tmp_path):
    """All programs of the pages in one, built by the CMake file of the page."""
    ((_, project, _),) = [b for page in PAGES for b in blocks(page, "cmake")]
    (tmp_path / "CMakeLists.txt").write_text(project)
    parts, calls = [], []
    for page in PAGES:
        for _language, body, line in blocks(page, "cpp"):
            given = "(2, arguments)" if "char**" in body else "()"
            calls.append(f"if (main_{len(parts)}{given}) return {len(parts) + 1};")
            body = body.replace("int main(", f"int main_{len(parts)}(")
            parts.append(f'#line {line} "{name(page)}"\n{body}')
    assert parts
    weights = tmp_path / "net.safetensors"
    net = models.SparseResNet(32, 8, depth=18, width=32)
    mlx.nn.quantize(net, group_size=32, bits=8)
    net.save(weights)
    calls.insert(0, f'char path[] = "{weights}"; char* arguments[] = {{path, path}};')
    parts.append("int main() {\n" + "\n".join([*calls, "return 0;"]) + "\n}\n")
    (tmp_path / "mine.cpp").write_text("\n".join(parts))
    package = Path(mlx_lattice.__file__).parent
    for command in (
        ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={package}"],
        ["cmake", "--build", "build"],
        ["build/mine"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert "QuantizedWeight(dense_5d" in done.stdout
