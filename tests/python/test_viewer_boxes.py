"""Boxes in the viewer: edges and headings in the colors of classes, scores as words."""

import re

import numpy as np
import pytest
from browser import CHROMIUM, browse
from mlx_lattice import viewer
from test_viewer import data_of

CLOUD = np.random.default_rng(0).uniform(-9, 9, (500, 3)) + [1000, 0, 0]
BOXES = np.array([[1002, 0, 0, 4, 2, 1.5, 0.3], [996, 4, 0, 0.6, 0.6, 1.8, -2]])


def test_edges_of_boxes():
    drawn = viewer.with_boxes(CLOUD, BOXES, [1, 2], [0.9, 0.8])
    kinds, points = drawn.columns["box"], drawn.points
    assert np.array_equal(points[kinds == 0], CLOUD)
    assert set(np.unique(drawn.columns["score"])) == {0, np.float32(0.9), np.float32(0.8)}
    c, s = np.cos(0.3), np.sin(0.3)
    local = (points[kinds == 1] - BOXES[0, :3]) @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    inside = np.abs(local) <= np.array([2, 1, 0.75]) + 1e-9
    front = local[~inside.all(1)]  # the line of the heading, one meter beyond the box
    assert len(front)
    assert np.allclose(front[:, 1:], [0, 0.75])
    assert front[:, 0].max() == pytest.approx(3)


def test_panels_of_boxes():
    names = ["Car", "Pedestrian <b>"]
    found, truth = viewer.compare_boxes(
        CLOUD, (BOXES, [1, 2]), (BOXES, [1, 2], [0.876, 0.5]), classes=names
    )
    assert (found.title, truth.title, truth.marks) == ("found", "truth", [])
    assert found.marks[0] == (1002, 0, 0.75, "Car 0.88")
    data = data_of(viewer.page([found, truth], classes=viewer.box_classes(names)))
    layer = next(layer for layer in data["layers"] if layer["name"] == "box")
    assert [entry[1] for entry in layer["entries"]] == ["scan", *names]
    place = np.array(data["panels"][0]["marks"][1][:3]) + data["center"]
    assert np.allclose(place, [996, 4, 0.9])
    image = viewer.picture([found], classes=viewer.box_classes(names))
    plain = viewer.picture([viewer.box_panel(CLOUD, BOXES, [1, 2], classes=names, title="found")],
                           classes=viewer.box_classes(names))  # fmt: skip
    assert (np.array(image) != np.array(plain)).any()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_writes_the_scores(tmp_path):
    panel = viewer.box_panel(CLOUD, BOXES, [1, 2], [0.9, 0.5], classes=["Car", "Person <b>"])
    viewer.write(tmp_path / "boxes.html", panel, classes=viewer.box_classes(["Car", "Person"]))
    page = browse(tmp_path / "boxes.html", "--dump-dom").stdout
    assert len(re.findall(r'class="mark" x="\d', page)) == 2
    assert ">Car 0.90</text>" in page
    assert ">Person &lt;b&gt; 0.50</text>" in page


def test_bad_boxes_and_marks():
    with pytest.raises(ValueError, match="boxes must be finite"):
        viewer.box_panel(CLOUD, [[np.nan] * 7])
    with pytest.raises(ValueError, match="scores must have one value for each of 2 boxes"):
        viewer.box_panel(CLOUD, BOXES, None, [0.5])
    with pytest.raises(ValueError, match=r"expected \(x, y, z, text\)"):
        viewer.Panel(CLOUD, marks=[(1, 2, "a")])
    with pytest.raises(TypeError, match="marks"):
        viewer.Panel(CLOUD, marks=[(1, 2, 3, 4)])
    assert len(viewer.with_boxes(CLOUD, np.zeros((0, 7)))) == len(CLOUD)
