"""The Python samples of the README and of docs/points.md run as they stand."""

import pathlib
import re


def test_the_python_samples_run(capsys):
    text = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    for sample in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(sample, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert (
        "True (4, 32) (1, 1, 1)" in printed and "cpu.tiles" in printed and "True (3, 4)" in printed
    )


def test_the_samples_of_points_run():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "points.md").read_text()
    names = {}
    for sample in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(sample, "docs/points.md", "exec"), names)
    assert (
        names["batch"].lengths.tolist() == [3, 1, 4, 0]
        and names["back"].shape == (8, 32)
        and len(names["history"]) == 3
    )
