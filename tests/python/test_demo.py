"""The demo command: what it prints, the page it writes, and a user's mistakes."""

import pytest
from browser import CHROMIUM, browse
from mlx_lattice.cli.main import main
from mlx_lattice.cli.networks import NETWORKS

pytestmark = pytest.mark.slow

pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    assert main(["demo", "--quick", "--output", str(path)]) == 0
    return path


def test_quick_demo_learns_and_explains(tmp_path, capsys):
    assert main(["demo", "--quick", "--output", str(tmp_path / "demo.html")]) == 0
    text = capsys.readouterr().out
    losses = [float(line.split()[3]) for line in text.splitlines() if line.startswith("epoch")]
    assert len(losses) == 3 and losses[-1] < losses[0]
    for word in (
        "pedestrian",
        "mean",
        "chosen",
        "ms once its relations exist",
        str(tmp_path / "demo.html"),
    ):
        assert word in text


@pytest.mark.parametrize(
    "model, name", [("minkunet", "streets-minkunet14"), ("ptv3", "streets-ptv3")]
)
def test_the_demo_trains_by_its_recipe(model, name, tmp_path, monkeypatch, capsys):
    from mlx_lattice.cli import training_run

    seen = []

    def run(made, *arguments, run=training_run.run_by_recipe, **options):
        seen.append(made)
        return run(made, *arguments, **options)

    monkeypatch.setattr(training_run, "run_by_recipe", run)
    words = ["--quick", "--model", model, "--output", str(tmp_path / "demo.html")]
    assert main(["demo", *words]) == 0
    assert [r.name for r in seen] == [name]
    kind, sizes = NETWORKS[model]
    assert seen[0]["network"] == {"name": kind.__name__, "options": sizes}
    assert (
        seen[0]["train"]["average"] > 0 and seen[0]["augment"] and seen[0]["voxels"]["size"] == 0.5
    )


def test_page_holds_prediction_and_truth_and_fetches_nothing(page):
    text = page.read_text(encoding="utf-8")
    assert '"prediction"' in text and '"truth"' in text and '"vegetation"' in text
    assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the page is not drawn")
def test_page_draws_both_panels(page, tmp_path):
    from PIL import Image

    shot = tmp_path / "shot.png"
    result = browse(page, "--window-size=1000,600", f"--screenshot={shot}", milliseconds=4000)
    assert result.returncode == 0, result.stderr[-2000:]
    picture = Image.open(shot).convert("RGB")
    for half in (picture.crop((0, 60, 500, 600)), picture.crop((500, 60, 1000, 600))):
        assert len(half.getcolors(1 << 24)) > 200


def test_mistakes_have_no_stack_trace(tmp_path, capsys):
    for arguments, message in [
        (["--voxel", "-1"], "--voxel: found -1.0"),
        (["--quick", "--epochs", "-2"], "--epochs: found -2"),
        (["--quick", "--output", str(tmp_path / "demo.txt")], "demo.txt"),
        (["--quick", "--epochs", "1", "--output", str(tmp_path / "no" / "such.html")], "such.html"),
    ]:
        assert main(["demo", *arguments]) == 1
        assert message in capsys.readouterr().err
