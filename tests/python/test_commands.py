"""Commands about routes, devices and benchmarks, and the page that is made from the table."""

import importlib
import json
import pathlib

import mlx.core as mx
import mlx_lattice as ml
import pytest
from mlx_lattice import _ext, cli, routes
from mlx_lattice.cli import routes as route_commands

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_the_routes_page_is_current():
    assert (DOCS / "routes.md").read_text() == route_commands.markdown()


def test_routes(capsys):
    assert cli.main(["routes", "--all"]) == 0
    printed = " ".join(capsys.readouterr().out.split())  # lines are wrapped
    assert all(r.name in printed and " ".join(r.predicate.split()) in printed for r in routes())
    assert cli.main(["routes"]) == 0
    here = capsys.readouterr().out
    assert "cpu.tiles" in here and (mx.is_available(mx.gpu) or "metal." not in here)
    assert max(map(len, here.splitlines())) <= 120 and "next: " in here


def test_devices_page_lists_what_the_probe_lists(capsys):
    assert cli.main(["devices"]) == 0
    page = (DOCS / "devices.md").read_text()
    for line in capsys.readouterr().out.splitlines()[2:-1]:
        name, answer = (part.strip() for part in line.split("|")[1:3])
        assert f"| {name} | {answer} |" in page


@pytest.mark.slow
def test_selftest(capsys):
    assert cli.main(["selftest"]) == 0
    assert "cpu.reference" in capsys.readouterr().out


def test_quick_selftest_runs_every_route():
    quick, routes = ml.selftest("cpu", quick=True), ml.routes()
    names = {(operation, route) for operation, _, route in quick.routes}
    integers = ("cpu.vnni512", "cpu.vnni256", "cpu.avx2", "cpu.sdot")  # no machine has all
    products = {("integer_conv", name) for name in integers}
    products |= {("conv", "cpu.bf16"), ("linear", "cpu.bf16")}
    missing = {(r.operation, r.name) for r in routes if r.device == "cpu"} - names
    assert quick.ok and missing <= products
    assert len(quick.rows) < 10 * len(names)


def test_selftest_report(capsys, tmp_path, monkeypatch):
    report = importlib.import_module("mlx_lattice._explain").SelftestReport(
        _ext.selftest_rows("cpu", "cpu.reference", 50)
    )
    monkeypatch.setattr(route_commands, "selftest", lambda *_: report)
    for name in ("report.txt", "report.json"):
        assert cli.main(["selftest", "--device", "cpu", "--report", str(tmp_path / name)]) == 0
    text = (tmp_path / "report.txt").read_text()
    assert "cpu.reference" in text and "library.metal_status: kernels are compiled" in text
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["ok"] and content["library"]["version"] == ml.__version__
    assert {e["route"] for e in content["routes"]} == {"cpu.reference"} and all(
        e["cases"] > 0 for e in content["routes"]
    )
    if not mx.is_available(mx.gpu):
        assert cli.main(["selftest", "--device", "gpu"]) == 1
        assert "found no GPU" in capsys.readouterr().err


def test_explain(capsys):
    assert (
        cli.main(
            ["explain", "subm_conv3d", "--channels", "5", "7", "--side", "3", "--dtype", "float16"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert (
        "chosen          cpu.tiles" in out
        and "5 -> 7 channels, float16" in out
        and "27 -> 27 rows" in out
    )
    assert cli.main(["explain", "linear", "--channels", "0", "7"]) == 1
    assert "channels must be positive" in capsys.readouterr().err


@pytest.mark.slow
def test_bench_model(capsys):
    small = ["--depth", "14", "--width", "2", "--voxel", "2", "--threads", "1", "--repeat", "1"]
    assert cli.main(["bench", "model", *small]) == 0
    out = capsys.readouterr().out
    assert "MinkUNet-14, width 2" in out and "/ plain MLX" in out
    assert [line.split("  ")[0] for line in out.splitlines()[-5:-1]] == [
        "plan from coordinates",
        "inference, warm plan",
        "its convolutions alone",
        "forward and backward",
    ]
    assert cli.main(["bench", "model", *small, "--no-plain", "--layers"]) == 0
    *lines, following = capsys.readouterr().out.splitlines()
    assert following == "next: mlx-lattice bench program"
    header = next(i for i, line in enumerate(lines) if line.startswith("stride"))
    assert (
        len(lines) - header - 2 == 1 + 4 + 4 + 8 * 2 + 7 and "norm and ReLU" in lines[-1]
    )  # stem, down, up, blocks, projections
    assert cli.main(["bench", "model", "--depth", "15"]) == 1
    assert "depth must be one of" in capsys.readouterr().err


@pytest.mark.slow
def test_bench_conv(capsys):
    assert (
        cli.main(
            [
                "bench",
                "conv",
                "--channels",
                "4",
                "--voxel",
                "2",
                "--threads",
                "1",
                "2",
                "--repeat",
                "1",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.count("forward") == 2 and printed.count("weight grad") == 2


def test_a_mistake_is_one_line_and_status_1(capsys):
    assert cli.main(["bench", "conv", "--channels", "0"]) == 1
    assert "expected a positive number" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["bench", "nothing"])
