"""What the samples of docs/points.md compute; test_docs.py runs the samples of all pages."""

import pathlib
import re


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
