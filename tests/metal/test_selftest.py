"""`selftest --device gpu --report` as a user runs it, on both emulated GPUs."""

import json

import pytest
from metal.host import CudaHost, MetalHost
from mlx_lattice import routes
from mlx_lattice.cli.main import main

pytestmark = pytest.mark.usefixtures("needs_host")

HOSTS = {"metal": (MetalHost, "neural_accelerator"), "cuda": (CudaHost, "unavailable")}


def report_of(backend, file, change=None, tier=None, tf32=False):
    """Status of the command, and its report."""
    host, highest = HOSTS[backend]
    with host(tier=tier or highest, change=change, tf32=tf32):
        status = main(["selftest", "--device", "gpu", "--quick", "--report", str(file)])
    return status, json.loads(file.read_text())


@pytest.mark.parametrize("backend", HOSTS)
def test_every_route_of_the_gpu_is_right(backend, tmp_path):
    status, report = report_of(backend, tmp_path / "report.json")
    # Operations with one way on each device stand in no table; their way is called "gpu".
    tried = {(e["operation"], e["route"]) for e in report["routes"]}
    found = {(operation, route) for operation, route in tried if route != "gpu"}
    names = {(r.operation, r.name) for r in routes() if r.device == "gpu"}
    other = next(name for name in HOSTS if name != backend)
    assert found == {(o, n) for o, n in names if not n.startswith(f"{other}.")}
    assert status == 0 and report["ok"]
    assert all(e["cases"] > 0 and not e["failed"] for e in report["routes"])
    assert report["library"]["capabilities"][backend]


@pytest.mark.parametrize("backend", HOSTS)
def test_a_wrong_kernel_is_named(backend, tmp_path):
    """A sum over a segment that is too large: only routes with such sums fail."""
    change = lambda text: text.replace("value[j] += w * v;", "value[j] += w * v + 1.0f;")
    status, report = report_of(backend, tmp_path / "report.json", change)
    failed = {(e["operation"], e["route"]) for e in report["routes"] if e["failed"]}
    assert status == 1 and not report["ok"]
    assert ("segments", f"{backend}.rows") in failed and ("pool", f"{backend}.rows") in failed
    assert {route.split(".")[0] for _, route in failed} == {backend}
    assert ("conv", f"{backend}.rows") not in failed


@pytest.mark.parametrize(
    ("backend", "tier", "said"),
    [
        ("metal", "gpu", "float32"),
        ("metal", "neural_accelerator", "tf32"),
        ("cuda", "unavailable", "tf32"),
    ],
)
def test_products_of_fewer_bits(backend, tier, said, tmp_path):
    """MLX's products round to TF32: right where the library says so, wrong where it does not."""
    status, report = report_of(backend, tmp_path / "report.json", tier=tier, tf32=True)
    assert report["library"]["float32_products"] == said
    failed = {e["route"] for e in report["routes"] if e["failed"]}
    assert (status, failed) == ((1, {"gpu.mlx"}) if said == "float32" else (0, set()))
