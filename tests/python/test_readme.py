"""The Python sample of the README runs as it stands."""

import pathlib
import re


def test_the_python_sample_runs(capsys):
    text = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    (sample,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(sample, "README.md", "exec"), {})  # noqa: S102
    printed = capsys.readouterr().out
    assert "True (4, 32) (1, 1, 1)" in printed and "cpu.tiles" in printed
