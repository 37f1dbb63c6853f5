"""One line on a terminal, nothing elsewhere."""

import io

from mlx_lattice.training.progress import Progress, progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_where_nobody_looks():
    stream = io.StringIO()
    assert list(progress(range(5), "work", stream=stream)) == [0, 1, 2, 3, 4]
    assert stream.getvalue() == ""


def test_one_line_that_is_wiped():
    stream = Terminal()
    with Progress("train", 10, "batches", stream=stream) as bar:
        bar.advance(5, "loss 0.5")
        assert bar.line().startswith(
            "train  [##########..........]  50%  5/10 batches"
        ) and bar.line().endswith("loss 0.5")
    text = stream.getvalue()
    assert "loss 0.5" in text and "\n" not in text and text.endswith("\r\x1b[K")


def test_rate_and_time_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    bar = Progress("read", 6_000_000, "points", stream=io.StringIO())
    bar.advance(2_000_000)
    now[0] += 4
    assert bar.line().endswith("2,000,000/6,000,000 points  0:04  500k points/s  0:08 left")


def test_without_a_total():
    bar = Progress("read", unit="bytes", stream=io.StringIO())
    bar.advance(12345)
    assert bar.line() == "read  12,345 bytes  0:00"
    assert list(progress(iter("ab"), "letters", stream=Terminal())) == ["a", "b"]
