"""Import, versions and the command line."""

import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lattice
import pytest
from mlx_lattice import cli

PACKAGE = Path(mlx_lattice.__file__).parent


def test_backend_info():
    info = mlx_lattice.backend_info()
    assert info["version"] == mlx_lattice.__version__
    assert info["mlx"] == {"built": mx.__version__, "running": mx.__version__}
    assert info["capabilities"]["cpu"] is True
    assert info["capabilities"]["metal"] == mx.metal.is_available()
    assert info["capabilities"]["metal"] == mx.metal.is_available()
    assert info["tensor_ops"] == "unavailable" or info["capabilities"]["metal"]
    assert info["tensor_ops"] in {"unavailable", "gpu", "neural_accelerator"}
    assert info["simd"] and info["threads"] >= 1


def run_with_simd(name: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LATTICE_SIMD": name},
        capture_output=True,
        text=True,
        check=False,
    )


def test_simd_is_limited_by_the_environment():
    simd = mlx_lattice.backend_info()["simd"]
    done = run_with_simd(simd.lower(), "import mlx_lattice as ml; print(ml.backend_info()['simd'])")
    assert done.stdout.strip() == simd, done.stderr


def test_import_loads_what_it_needs():
    """NumPy and the modules that need it are loaded when they are used."""
    code = (
        "import sys, mlx_lattice as ml; print(*sys.modules); ml.io; print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, with_io = done.stdout.splitlines()
    late = {f"mlx_lattice.{name}" for name in mlx_lattice._WITH_NUMPY}
    assert not {"numpy", *late} & set(loaded.split()) and with_io == "True"


def test_wrong_simd_is_an_error_at_import():
    done = run_with_simd("AVX9", "import mlx_lattice")
    assert done.returncode != 0
    assert '[LATTICE_SIMD] found "AVX9"; this machine and this build have' in done.stderr
    assert mlx_lattice.backend_info()["simd"] in done.stderr


def test_bench_takes_an_instruction_set(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "--simd", "AVX9", "conv"])
    assert "AVX9" in capsys.readouterr().err


def test_thread_count_errors():
    with pytest.raises(ValueError):
        mlx_lattice._ext.set_thread_count(0)
    with pytest.raises(TypeError):
        mlx_lattice._ext.set_thread_count("2")


def test_info_command(capsys):
    assert cli.main(["info"]) == 0
    printed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert printed["version"] == mlx_lattice.__version__
    assert printed["mlx.running"] == mx.__version__


def test_unknown_command(capsys):
    with pytest.raises(SystemExit) as error:
        cli.main(["no-such-command"])
    assert error.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_users_mistake_is_one_line(monkeypatch, capsys):
    def fail(_arguments):
        raise ValueError("[demo] size: found -1, expected a positive number")

    monkeypatch.setattr("mlx_lattice.cli.info._info", fail)
    assert cli.main(["info"]) == 1
    assert (
        capsys.readouterr().err
        == "mlx_lattice info: [demo] size: found -1, expected a positive number\n"
    )


def test_module_runs():
    result = subprocess.run(
        [sys.executable, "-m", "mlx_lattice", "--version"], capture_output=True, text=True
    )
    assert result.returncode == 0 and mlx_lattice.__version__ in result.stdout


def test_cpp_package_is_in_the_wheel():
    assert (PACKAGE / "share/cmake/lattice/latticeConfig.cmake").is_file()
    assert (PACKAGE / "lib/pkgconfig/lattice.pc").is_file()
    assert (PACKAGE / "include/lattice/lattice.h").is_file()
    assert list((PACKAGE / "lib").glob("liblattice.*"))
