"""The demo command: its table, its picture, and a user's mistakes."""

import pytest

from mlx_lattice.cli import main

pytest.importorskip("PIL")


def test_demo_prints_a_table_and_draws_a_picture(tmp_path, capsys):
    from PIL import Image

    path = tmp_path / "voxels.png"
    assert main(["demo", "--voxel-size", "0.5", "--output", str(path)]) == 0
    text = capsys.readouterr().out
    assert "submanifold 3x3x3" in text and "strided 2x2x2" in text and str(path) in text
    picture = Image.open(path)
    assert picture.size == (1600, 900) and len(picture.getcolors(1 << 24)) > 1000


def test_mistakes_have_no_stack_trace(tmp_path, capsys):
    assert main(["demo", "--voxel-size", "-1"]) == 1
    assert "--voxel-size must be positive" in capsys.readouterr().err
    assert main(["demo", "--voxel-size", "1", "--output", str(tmp_path / "no" / "such.png")]) == 1
    assert "such.png" in capsys.readouterr().err
