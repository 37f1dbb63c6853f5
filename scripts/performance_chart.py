#!/usr/bin/env python3
"""Draws the chart of docs/performance.md from the table "Compared with other code" on that page.

    scripts/performance_chart.py          writes docs/figures/performance.svg

A bar ends at the lower measured ratio; its pale end reaches to the higher one. The axis is
logarithmic.
"""

import html
import math
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
LEFT, RIGHT, TOP, ROW, WIDTH = 300, 40, 34, 26, 760
TICKS = (1, 2, 5, 10, 20, 50)


def rows(page):
    """(operation, compared with, low, high) of the table."""
    table = page.split("## Compared with other code", 1)[1].split("\n## ", 1)[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        ratio = (
            re.fullmatch(r"(\d[\d.]*)(?: to (\d[\d.]*))?", cells[-1]) if line[:1] == "|" else None
        )
        if ratio:
            low = float(ratio.group(1))
            yield cells[0], cells[1], low, float(ratio.group(2) or low)


def chart(page):
    """The text of the SVG file."""
    found = list(rows(page))
    scale = (WIDTH - LEFT - RIGHT) / math.log(max(TICKS[-1], *(high for *_, high in found)))
    bottom = TOP + ROW * len(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{bottom + 30}" fill="white"/>',
        f'<text x="{LEFT}" y="16">times as fast as the other code, one CPU thread</text>',
    ]
    for tick in TICKS:
        x = LEFT + scale * math.log(tick)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick}</text>')
    for number, (operation, other, low, high) in enumerate(found):
        y = TOP + ROW * number
        ends = [scale * math.log(value) for value in (low, high)]
        label = html.escape(f"{operation} / {other}")
        value = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end" font-size="11">{label}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{ends[1]:.1f}" height="16" fill="#90caf9"/>',
            f'<rect x="{LEFT}" y="{y}" width="{ends[0]:.1f}" height="16" fill="#1565c0"/>',
            f'<text x="{LEFT + ends[1] + 5:.1f}" y="{y + 12}" font-size="11">{value}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    (DOCS / "figures" / "performance.svg").write_text(chart((DOCS / "performance.md").read_text()))
