"""The documentation: every code block runs, and the names and files that pages mention exist."""

import importlib
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
from recordings import Recording
from torch_files import save

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md")) + [ROOT / "README.md"]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)

# A block whose first line says what it needs runs with that, or is left out if it is not there.
DATA, CLONE = "# needs a data set: SemanticKITTI", "# needs a clone"
WEIGHTS = "# needs published weights: sonata_small.pth"
# What stands for a data set that must be downloaded, and for hours of training on it.
SMALL = {
    "/data/SemanticKITTI": "kitti",
    "/fast/cache": "cache",
    "epochs=20": "epochs=1",
    "MinkUNet(pipeline.channels, len(data.classes))": (
        "MinkUNet(pipeline.channels, len(data.classes), depth=14, width=8)"
    ),
}


def blocks(page, *languages):
    """(language, text, first line) of the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match[2] in languages:
            body = "\n".join(line[len(match[1]) :] for line in match[3].split("\n"))
            yield match[2], body, text[: match.start()].count("\n") + 2


def name(page):
    return str(page.relative_to(ROOT))


WITH_PYTHON = [p for p in PAGES if any(True for _ in blocks(p, "python"))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_blocks_run_as_they_stand(page, tmp_path, monkeypatch, capsys):
    """From the first block to the last, in a folder that is empty but for what a block needs."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "docs"}
    for _language, body, line in blocks(page, "python"):
        first = body.split("\n", 1)[0]
        if first.startswith("# needs"):
            assert first.startswith((DATA, CLONE, WEIGHTS)), f"{name(page)}:{line}: {first}"
        if first.startswith(CLONE):
            (tmp_path / "tests").symlink_to(ROOT / "tests")
            if "metal.host" in body and (reason := host_missing()):
                pytest.skip(reason)
        if first.startswith(WEIGHTS):  # a small network of the same kind
            made = Recording("encoder_sonata")
            save("sonata_small.pth", {"config": made.config, "state_dict": made.state})
        if first.startswith(DATA):
            if not (tmp_path / "kitti").exists():
                (tmp_path / "kitti").mkdir()
                trees.semantic_kitti(tmp_path / "kitti", scans=1, n=100)
            for large, small in SMALL.items():
                body = body.replace(large, small)
        exec(compile("\n" * (line - 1) + body, str(page), "exec"), names)


def host_missing():
    from metal.host import missing

    return missing()


def test_tables_of_transforms_are_right():
    tomllib = pytest.importorskip("tomllib")
    from mlx_lattice import transforms

    found = [body for page in PAGES for _, body, _ in blocks(page, "toml")]
    assert found
    for body in found:
        assert transforms.build(tomllib.loads(body)["augment"]).transforms


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *ROOT.glob("*.md")} - {ROOT / "CHANGELOG.md"}), ids=name
)
def test_names_and_files_exist(page):
    """Dotted names in backticks that begin with mlx_lattice, paths in backticks, and links."""
    text = page.read_text(encoding="utf-8")
    for found in set(re.findall(r"`(mlx_lattice(?:\.\w+)+)", text)):
        parts = found.split(".")
        value = importlib.import_module(parts[0])
        for at, part in enumerate(parts[1:], 1):
            if not hasattr(value, part):
                importlib.import_module(".".join(parts[: at + 1]))
            value = getattr(value, part)
    folders = "lattice|tests|scripts|docs|examples|bench|cmake"
    for path in re.findall(rf"`((?:{folders})/[\w/.-]+)`", text):
        assert list(ROOT.glob(path + "*")), path
    if page.parent == ROOT:  # mkdocs checks links of the site
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text):
            assert (ROOT / target).exists(), target


def test_every_command_is_on_the_commands_page():
    text = (DOCS / "commands.md").read_text()
    parser = build_parser()
    action = next(a for a in parser._actions if a.dest == "command")
    assert [c for c in action.choices if not re.search(rf"`{c}\b", text)] == []


@pytest.mark.slow
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
            body = body.replace("int main(", f"int main_{len(parts)}(").rstrip()
            assert body.endswith("}")  # only main itself may end without a return
            parts.append(f'#line {line} "{name(page)}"\n{body[:-1]}return 0; }}\n')
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
