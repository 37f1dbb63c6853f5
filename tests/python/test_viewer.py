"""The HTML page and the PNG: what is inside, and that a browser draws it."""

import base64
import html
import json
import re

import numpy as np
import pytest
from browser import CHROMIUM, browse
from mlx_lattice import viewer
from mlx_lattice.io import PointCloud
from mlx_lattice.viewer import Panel


def a_cloud(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((n, 3)) * [10, 10, 2] + [400000, 5800000, 100]
    return PointCloud(
        points,
        {
            "color": rng.integers(0, 256, (n, 3), dtype=np.uint8),
            "label": rng.integers(0, 3, n).astype(np.uint8),
            "intensity": rng.random(n).astype(np.float32),
            "id": np.arange(n),
        },
    )


def data_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )


def array(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


def test_the_page_holds_the_points_and_their_layers():
    cloud = a_cloud()
    data = data_of(viewer.page(cloud, color="intensity", classes=["road", "car", "tree"]))
    panel = data["panels"][0]
    points = array(panel["points"], "<f4").reshape(-1, 3) + np.array(data["center"])
    assert np.abs(points - cloud.points).max() < 1e-5
    kinds = {layer["name"]: layer["kind"] for layer in data["layers"]}
    assert kinds == {
        "height": "height",
        "rgb": "rgb",
        "label": "class",
        "intensity": "scalar",
        "id": "scalar",
    }
    entries = data["layers"][list(kinds).index("label")]["entries"]
    assert [e[:2] for e in entries] == [[0, "road"], [1, "car"], [2, "tree"]] and len(
        {tuple(e[2]) for e in entries}
    ) == 3
    assert np.array_equal(array(panel["values"]["label"], "<u2"), cloud.columns["label"])
    assert np.array_equal(
        array(panel["values"]["rgb"], "u1").reshape(-1, 3), cloud.columns["color"]
    )
    layer = data["layers"][list(kinds).index("intensity")]
    shown = (
        array(panel["values"]["intensity"], "<u2") / 65535 * (layer["high"] - layer["low"])
        + layer["low"]
    )
    assert (
        np.abs(shown - np.clip(cloud.columns["intensity"], layer["low"], layer["high"])).max()
        < 1e-4
    )
    assert data["first"] == "intensity" and (panel["shown"], panel["total"], panel["bad"]) == (
        2000,
        2000,
        0,
    )


def test_the_page_is_alone_and_safe():
    page = viewer.page(Panel(a_cloud(10), "</script><b>x"), title="<img src=x>")
    assert not re.search(r'(?:src|href)\s*=\s*["\']|https?://|@import|fetch\(|XMLHttpRequest', page)
    assert "</script><b>" not in page and "<img" not in page
    assert data_of(page)["panels"][0]["title"] == "</script><b>x"


def test_panels_share_sample_colors_and_ranges():
    a, b = a_cloud(), a_cloud()
    b = PointCloud(
        b.points,
        {"label": np.where(b.columns["label"] == 2, 7, b.columns["label"]).astype(np.int32)},
    )
    data = data_of(viewer.page([Panel(a, "truth"), Panel(b, "prediction")], limit=1000))
    first, second = data["panels"]
    assert first["points"] == second["points"] and first["shown"] == 500 and first["total"] == 2000
    label = next(layer for layer in data["layers"] if layer["name"] == "label")
    assert [e[0] for e in label["entries"]] == [0, 1, 2, 7]
    assert "rgb" not in second["values"]


def test_names_and_colors_of_classes():
    cloud = a_cloud()
    cloud.columns["instance"] = cloud.columns["label"] + 5
    layers = {
        x["name"]: x
        for x in data_of(viewer.page(cloud, classes={0: "road", 1: ("car", (1, 2, 3)), 9: "tree"}))[
            "layers"
        ]
    }
    assert [e[:2] for e in layers["label"]["entries"]] == [
        [0, "road"],
        [1, "car"],
        [2, "2"],
        [9, "tree"],
    ]
    assert layers["label"]["entries"][1][2] == [1, 2, 3]
    assert [e[1] for e in layers["instance"]["entries"]] == ["5", "6", "7"]


def test_points_that_are_not_finite_and_empty_clouds():
    points = np.array([[0, 0, 0], [np.nan, 0, 0], [1, np.inf, 0], [1, 1, 1]], np.float32)
    panel = data_of(viewer.page(points))["panels"][0]
    assert (panel["shown"], panel["bad"]) == (2, 2)
    nothing = PointCloud(
        np.zeros((0, 3)), {"label": np.zeros(0, np.uint8), "color": np.zeros((0, 3), np.uint8)}
    )
    assert data_of(viewer.page(nothing))["panels"][0]["shown"] == 0
    bad = PointCloud(np.zeros((2, 3)), {"v": np.array([np.nan, np.nan])})
    assert data_of(viewer.page(bad, color="v"))["first"] == "v"


def test_mistakes(tmp_path):
    with pytest.raises(
        ValueError, match="color: found 'none', expected one of height, rgb, label, intensity, id"
    ):
        viewer.page(a_cloud(), color="none")
    with pytest.raises(ValueError, match=r"expected .html or .png"):
        viewer.write(tmp_path / "a.gif", a_cloud())
    with pytest.raises(ValueError, match="panels: found 0"):
        viewer.page([])
    with pytest.raises(ValueError, match="classes: found 'road', expected integers as keys"):
        viewer.page(a_cloud(), classes={"road": 0})
    with pytest.raises(ValueError, match="limit must be >= 1, found 0"):
        viewer.page(a_cloud(), limit=0)


def test_png(tmp_path):
    image = pytest.importorskip("PIL.Image")
    viewer.write(
        tmp_path / "a.png",
        [Panel(a_cloud(), "one"), Panel(a_cloud(), "two")],
        color="label",
        size=(400, 300),
    )
    picture = np.asarray(image.open(tmp_path / "a.png").convert("RGB"), int)
    assert picture.shape == (300, 400, 3)
    center = slice(60, 220)
    assert np.array_equal(
        picture[center, 20:180], picture[center, 220:380]
    )  # same cloud, same camera
    assert (np.abs(picture[center, 20:180] - [13, 17, 27]).sum(axis=2) > 60).mean() > 0.05
    viewer.write(tmp_path / "b.png", np.zeros((0, 3)), size=(100, 100))
    with pytest.raises(ValueError, match="size must be >= 64"):
        viewer.picture(a_cloud(), size=(10, 10))


def test_png_shows_the_nearest_point():
    pytest.importorskip("PIL")
    from mlx_lattice.viewer.raster import RIGHT, TOWARD, UP

    line = np.outer([5.0, 0.0, -5.0], TOWARD)  # one behind the other, the nearest first
    frame = np.concatenate([10 * np.outer([1, -1], axis) for axis in (RIGHT, UP)])
    color = np.concatenate([[[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.full((4, 3), 200)]).astype(
        np.uint8
    )
    cloud = PointCloud(np.concatenate([line, frame]), {"color": color})
    picture = np.asarray(viewer.picture(cloud, size=(64, 64), point_size=8), int)
    assert picture[32, 32].argmax() == 0 and picture[32, 32, 0] > 150


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the page is not drawn")
def test_a_browser_draws_the_page(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    red = PointCloud(
        rng.random((20000, 3)), {"color": np.tile(np.array([[255, 0, 0]], np.uint8), (20000, 1))}
    )
    blue = PointCloud(red.points, {"color": np.tile(np.array([[0, 0, 255]], np.uint8), (20000, 1))})
    viewer.write(tmp_path / "a.html", [Panel(red), Panel(blue)], color="rgb")
    result = browse(
        tmp_path / "a.html", "--window-size=600,400", f"--screenshot={tmp_path / 'a.png'}"
    )
    assert (tmp_path / "a.png").is_file(), result.stderr
    picture = np.asarray(image.open(tmp_path / "a.png").convert("RGB"), int)[100:300]
    left, right = picture[:, :300], picture[:, 300:]
    is_red, is_blue = (
        lambda p: (p[..., 0] > 150) & (p[..., 2] < 80),
        lambda p: (p[..., 2] > 150) & (p[..., 0] < 80),
    )
    assert is_red(left).mean() > 0.1 and not is_blue(left).any()
    assert is_blue(right).mean() > 0.1 and not is_red(right).any()


USE = """<script>
const fire = (type, id, x, y, more) => canvas.dispatchEvent(new PointerEvent(
  type, {pointerId: id, clientX: x, clientY: y, buttons: 1, ...more}));
canvas.setPointerCapture = () => {};
const seen = [];
const note = () => seen.push([camera.yaw, camera.pitch, camera.dist, ...camera.at]);
note();  // turn
fire("pointerdown", 1, 100, 100); fire("pointermove", 1, 150, 120); fire("pointerup", 1, 150, 120);
note();  // move
fire("pointerdown", 1, 100, 100, {buttons: 2}); fire("pointermove", 1, 150, 120, {buttons: 2});
fire("pointerup", 1, 150, 120);
note(); canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -100}));
note();  // pinch
fire("pointerdown", 1, 100, 100); fire("pointerdown", 2, 200, 100);
fire("pointermove", 2, 300, 100);
fire("pointerup", 1, 0, 0); fire("pointerup", 2, 0, 0);
note(); document.querySelector(".entry").click(); $("reset").click(); note();
document.body.dataset.seen = JSON.stringify(seen);
document.body.dataset.off = document.querySelectorAll(".entry.off").length;
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the page is not used")
def test_mouse_fingers_and_legend(tmp_path):
    (tmp_path / "a.html").write_text(
        viewer.page(a_cloud(), color="label").replace("</body>", USE + "</body>")
    )
    result = browse(tmp_path / "a.html", "--dump-dom")
    body = re.search(r'<body[^>]*data-seen="([^"]*)"[^>]*>', result.stdout)
    assert body, result.stdout[-2000:] + result.stderr[-2000:]
    start, turned, moved, wheeled, pinched, again = np.array(json.loads(body[1]))
    assert (turned[:2] != start[:2]).all() and np.array_equal(turned[2:], start[2:])
    assert np.array_equal(moved[:3], turned[:3]) and (moved[3:] != turned[3:]).all()
    assert wheeled[2] < moved[2] and np.array_equal(wheeled[:2], moved[:2])
    assert abs(pinched[2] / wheeled[2] - 0.5) < 1e-9 and np.array_equal(pinched[:2], wheeled[:2])
    assert np.array_equal(again, start) and 'data-off="1"' in body[0]


def compared(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    prediction = np.where(rng.random(n) < 0.2, (truth + 1) % 3, truth)
    truth[:7] = -1
    return rng.random((n, 3)) * [40, 20, 5] + [100, 200, 300], truth, prediction


def test_errors_and_the_table_of_iou():
    points, truth, prediction = compared()
    panels = viewer.compare(points, truth, prediction)
    data = data_of(viewer.page(panels, classes=["road", "car", "tree"]))
    assert [p["color"] for p in data["panels"]] == ["label", "truth", "errors"]
    assert [p.get("same") for p in data["panels"]] == [None, 0, 0]
    values = data["panels"][0]["values"]
    errors = array(values["errors"], "<u2")
    assert np.array_equal(errors == 1, (truth != prediction) & (truth >= 0))
    assert (errors == 2).sum() == 7
    layers = {layer["name"]: layer for layer in data["layers"]}
    assert layers["label"]["entries"] == layers["truth"]["entries"]  # the same colors
    (score,) = data["scores"]
    kept = truth >= 0
    for name, value in (("road", 0), ("car", 1), ("tree", 2)):
        a, b = (truth == value) & kept, (prediction == value) & kept
        row = next(r for r in score["rows"] if r[0] == name)
        assert row[1] == a.sum() and abs(row[2] - (a & b).sum() / (a | b).sum()) < 1e-12
    assert abs(score["mean"] - np.mean([r[2] for r in score["rows"]])) < 1e-12
    assert data_of(viewer.page(points))["scores"] == []
    with pytest.raises(ValueError, match=r"prediction: found int64 of shape \(3,\), expected"):
        viewer.compare(points, truth, prediction[:3])


COVERED = """<script>
const boxes = ["legend", "scores", "bar", "help"].map(id => $(id).getBoundingClientRect());
document.body.dataset.covered = cells.filter(c => boxes.some(b => b.width && b.left < c.x + c.w &&
    b.right > c.x && b.top < c.y + c.h && b.bottom > c.y)).length;
const buttons = ["reset", "theme"].map(id => $(id).getBoundingClientRect());
const help = $("help").getBoundingClientRect();
document.body.dataset.hidden = buttons.filter(b => help.width && b.left < help.right &&
    b.right > help.left && b.top < help.bottom && b.bottom > help.top).length;
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the page is not laid out")
@pytest.mark.parametrize("size", ["1300,800", "1500,800", "1024,640", "500,900"])
def test_no_box_covers_a_panel_or_a_button(tmp_path, size):
    points, truth, prediction = compared(300)
    title = "A street that the network has not seen before, in the evening"
    page = viewer.page(viewer.compare(points, truth, prediction), title=title)
    (tmp_path / "a.html").write_text(page.replace("</body>", COVERED + "</body>"))
    result = browse(tmp_path / "a.html", f"--window-size={size}", "--dump-dom")
    for fact in ('data-covered="0"', 'data-hidden="0"'):
        assert fact in result.stdout, result.stdout[-2000:] + result.stderr[-2000:]


def test_page_and_png_look_from_the_same_direction():
    pytest.importorskip("PIL")
    from mlx_lattice.viewer import raster

    yaw, pitch = data_of(viewer.page(a_cloud()))["view"]
    toward = [np.cos(yaw) * np.cos(pitch), np.sin(yaw) * np.cos(pitch), np.sin(pitch)]
    assert np.allclose(toward, raster.TOWARD)


def test_frames_of_a_notebook():
    import mlx.core as mx
    import mlx_lattice as ml

    cloud = a_cloud(50)
    for text in (cloud._repr_html_(), viewer.show(cloud)._repr_html_()):
        assert "<iframe srcdoc=" in text and "<script>" not in text
    x = ml.SparseTensor(mx.array([[0, 0, 0, 0], [0, 1, 0, 0]]), mx.ones((2, 3)))
    text = x._repr_html_()
    assert "(2, 3) float32" in text and "<iframe" in text
    assert (
        "<iframe" not in ml.SparseTensor(mx.zeros((0, 4), mx.int32), mx.ones((0, 3)))._repr_html_()
    )
    relation = ml.ops.submanifold_kernel_relation(x)
    assert "submanifold" in relation._repr_html_() and "KernelRelation" in relation._repr_html_()
    assert "neighbors per query" in ml.ops.knn_relation(x, k=1)._repr_html_()
    told = ml.explain(ml.ops.subm_conv3d, x, mx.ones((4, 3, 3, 3, 3)))
    assert "conv" in told._repr_html_()


LOOK = """<script>
const seen = {};
const frame = () => {  // clip coordinates of all points of the first panel
  const c = cells[0], m = matrix(c.w / c.h), p = data.panels[0].points;
  let inside = 0, front = 0, n = data.panels[0].shown;
  for (let i = 0; i < 3 * n; i += 3) {
    const at = k => m[k] * p[i] + m[k + 4] * p[i + 1] + m[k + 8] * p[i + 2] + m[k + 12], w = at(3);
    if (w > 0) front++;
    if (w > 0 && Math.abs(at(0)) <= w && Math.abs(at(1)) <= w) inside++;
  }
  return [inside / n, front / n];
};
seen.frame = frame();
const p = data.panels[0].points, m = matrix(cells[0].w / cells[0].h);
let best = 0;  // the point nearest to the eye lies on top
for (let i = 0; i < data.panels[0].shown; i++) {
  const w = k => m[3] * p[3*k] + m[7] * p[3*k+1] + m[11] * p[3*k+2] + m[15];
  if (w(i) < w(best)) best = i;
}
const w = m[3] * p[3*best] + m[7] * p[3*best+1] + m[11] * p[3*best+2] + m[15];
const [px, py, pz] = [p[3 * best], p[3 * best + 1], p[3 * best + 2]], cell = cells[0];
const x = cell.x + ((m[0] * px + m[4] * py + m[8] * pz + m[12]) / w + 1) / 2 * cell.w;
const y = cell.y + (1 - (m[1] * px + m[5] * py + m[9] * pz + m[13]) / w) / 2 * cell.h;
canvas.setPointerCapture = () => {};
for (const type of ["pointerdown", "pointerup"])
  canvas.dispatchEvent(new PointerEvent(
    type, {pointerId: 1, clientX: x, clientY: y, buttons: 1}));
seen.best = best; seen.tip = $("tip").textContent;
seen.scores = $("scores").textContent; seen.legend = $("legend").textContent;
seen.open = document.querySelector("#legend details").open;
const shown = document.documentElement;
seen.theme = [shown.dataset.theme]; $("theme").click(); seen.theme.push(shown.dataset.theme);
seen.wide = shown.scrollWidth <= innerWidth && $("bar").getBoundingClientRect().right <= innerWidth;
overlay(); seen.axes = $("axes").textContent; seen.scale = +document.body.dataset.scale;
document.body.dataset.seen = JSON.stringify(seen);
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the page is not looked at")
@pytest.mark.parametrize("size", ["1200,800", "500,850"])
def test_first_view_values_table_and_theme(tmp_path, size):
    points, truth, prediction = compared()
    panels = viewer.compare(points, truth, prediction)
    text = viewer.page(panels, classes=["road", "car", "tree"], unit="m", theme="dark")
    (tmp_path / "a.html").write_text(text.replace("</body>", LOOK + "</body>"))
    result = browse(tmp_path / "a.html", f"--window-size={size}", "--dump-dom")
    body = re.search(r'<body[^>]*data-seen="([^"]*)"', result.stdout)
    assert body, result.stdout[-2000:] + result.stderr[-2000:]
    seen = json.loads(html.unescape(body[1]))
    inside, front = seen["frame"]
    assert inside > 0.97 and front == 1  # the whole cloud, seen from outside
    told = re.match(r"position([\d.]+)  ([\d.]+)  ([\d.]+)label", seen["tip"])
    assert told and np.allclose([float(v) for v in told.groups()], points[seen["best"]], atol=1e-3)
    for word in ("label", "truth", "errors"):
        assert word in seen["tip"]
    assert "mean" in seen["scores"] and "tree" in seen["scores"]
    assert "prediction compared with truth" in seen["legend"] and "click to hide" in seen["legend"]
    assert seen["open"] == size.startswith("1200")  # folded on a phone
    assert seen["theme"] == ["dark", "light"] and seen["wide"]
    assert "xyz" in seen["axes"] and " m" in seen["axes"] and 0 < seen["scale"] < 60
