"""`view --output`: chunks hold every point once, and a browser draws them from a folder."""

import base64
import json
import re

import numpy as np
import pytest
from browser import CHROMIUM, browse
from mlx_lattice import io
from mlx_lattice.cli.main import main
from mlx_lattice.viewer import large_page


def town(n):
    rng = np.random.default_rng(0)
    points = np.c_[rng.uniform(0, 200, n), rng.uniform(0, 120, n), rng.normal(0, 0.2, n)]
    points[: n // 4, 2] = rng.uniform(0, 20, n // 4)
    label = (np.arange(n) < n // 4).astype(np.uint8)
    columns = {"label": label, "intensity": rng.integers(0, 99, n).astype(np.uint16)}
    return io.PointCloud(points + [450000, 5400000, 100], columns)


def chunks(folder):
    """The data of the page, and (positions, columns) of all chunks."""
    page = (folder / "index.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    places, values = [], []
    for name, count in data["nodes"].items():
        text = re.fullmatch(r'chunk\("(\w+)","(.*)"\)', (folder / f"{name}.js").read_text())
        assert text[1] == name
        made = base64.b64decode(text[2])
        low, side = np.zeros(3), data["side"]
        for digit in name[1:]:
            side /= 2
            low += side * np.array([int(digit) >> 2 & 1, int(digit) >> 1 & 1, int(digit) & 1])
        at = np.frombuffer(made, "<u2", 3 * count).reshape(-1, 3)
        places.append(low + (at + 0.5) / 65536 * side + data["low"])
        columns = np.frombuffer(made, "<f4", offset=9 * count)
        values.append(columns.reshape(len(data["columns"]), count).T)
    return data, np.concatenate(places), np.concatenate(values)


@pytest.mark.parametrize("in_memory", [1000, 2_000_000])
def test_every_point_is_in_one_chunk(tmp_path, monkeypatch, in_memory):
    monkeypatch.setattr(large_page, "IN_MEMORY", in_memory)
    cloud = town(100_000)
    io.write(tmp_path / "town.npy", cloud)
    assert main(["view", str(tmp_path / "town.npy"), "--output", str(tmp_path / "page")]) == 0
    data, places, values = chunks(tmp_path / "page")
    assert len(places) == len(cloud) and len(data["nodes"]) > 8
    assert not list((tmp_path / "page").glob("*.rows"))
    assert data["columns"] == ["label", "intensity"]
    for name, found in zip(data["columns"], values.T):
        assert np.array_equal(np.sort(found), np.sort(cloud.columns[name]))
    # Equal order along x up to the rounding of 16 bits in a node.
    order, expected = np.sort(places[:, 0]), np.sort(cloud.points[:, 0])
    assert np.abs(order - expected).max() < 0.01
    # A node keeps one point for each cell of its grid.
    made = base64.b64decode((tmp_path / "page" / "r.js").read_text().split('"')[3])
    root = np.frombuffer(made, "<u2", 3 * data["nodes"]["r"]).reshape(-1, 3)
    assert len(np.unique(root >> 10, axis=0)) == len(root)


def test_a_far_point_leaves_a_cube_that_is_divided_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(large_page, "IN_MEMORY", 5000)
    monkeypatch.setattr(large_page, "LEAF", 2000)
    cloud = town(30_000)
    cloud.points[7, 0] += 1e6
    io.write(tmp_path / "town.npy", cloud)
    read = []
    monkeypatch.setattr(
        large_page.Octree, "_divide", counted(large_page.Octree._divide, read.append)
    )
    for _ in range(2):  # over the page of before
        assert main(["view", str(tmp_path / "town.npy"), "--output", str(tmp_path / "page")]) == 0
    _, places, values = chunks(tmp_path / "page")
    assert len(places) == len(cloud) and max(read) <= 5000
    order, expected = np.sort(places[:, 0]), np.sort(cloud.points[:, 0])
    assert np.abs(order - expected)[:-1].max() < 0.5
    assert np.array_equal(np.sort(values[:, 1]), np.sort(cloud.columns["intensity"]))


def counted(divide, tell):
    def run(octree, name, rows):
        tell(len(rows))
        divide(octree, name, rows)

    return run


def test_a_small_cloud_and_one_point(tmp_path):
    for n in (1, 50):
        io.write(tmp_path / "few.ply", town(100)[:n])
        assert main(["view", str(tmp_path / "few.ply"), "--output", str(tmp_path / "page")]) == 0
        assert len(chunks(tmp_path / "page")[1]) == n


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("town.ply", "other.ply", "--output", "page"), "one file or one folder"),
        (("none.ply", "--output", "page"), "No such file"),
        (("town.ply", "--output", "page", "--color", "nothing"), "--color"),
        (("town.ply", "--output", "full"), "kept.txt, which is no file of such a page"),
        (("town.ply", "--output", "site"), "index.html, which is no file of such a page"),
    ],
)
def test_mistakes_are_named(tmp_path, capsys, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    for name in ("town.ply", "other.ply"):
        io.write(tmp_path / name, town(100))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept.txt").write_text("mine")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("mine")
    assert main(["view", *words]) == 1
    assert told in capsys.readouterr().err
    assert (tmp_path / "full" / "kept.txt").exists()
    assert (tmp_path / "site" / "index.html").read_text() == "mine"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_draws_the_folder(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    io.write(tmp_path / "town.ply", town(200_000))
    words = ["--output", str(tmp_path / "page"), "--classes", "0=ground,1=tree"]
    assert main(["view", str(tmp_path / "town.ply"), *words]) == 0
    page = tmp_path / "page" / "index.html"
    # A click in the middle, after the chunks have come.
    click = """<script>setTimeout(() => { for (const kind of ["pointerdown", "pointerup"])
      canvas.dispatchEvent(new PointerEvent(kind, {clientX: 400, clientY: 300, pointerId: 1,
      button: 0})); }, 2000); canvas.setPointerCapture = () => {};</script></body>"""
    page.write_text(page.read_text().replace("</body>", click))
    shot = tmp_path / "shot.png"
    done = browse(page, f"--screenshot={shot}", "--window-size=800,600", milliseconds=6000)
    assert shot.exists(), done.stderr
    pixels = np.array(Image.open(shot).convert("RGB")).astype(int)
    colors = [(86, 156, 214), (230, 159, 0)]  # of the two classes
    for color in colors:
        assert (np.abs(pixels - color).sum(axis=2) < 12).sum() > 2000
    body = browse(page, "--dump-dom", "--window-size=800,600", milliseconds=6000).stdout
    drawn = int(re.search(r'data-drawn="(\d+)"', body)[1])
    assert 50_000 < drawn <= 200_000
    assert "ground" in body and "tree" in body
    assert re.search(r'data-picked="x[\d.]+y[\d.]+z[\d.]+label\d \w+intensity\d+"', body)
