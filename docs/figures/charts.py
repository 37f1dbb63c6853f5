#!/usr/bin/env python3
"""Draws the charts of docs/performance.md and docs/notebook.md from the tables on these pages.

    docs/figures/charts.py      writes docs/figures/{performance,share,neighbors_growth}.svg

performance.svg shows "Compared with other code". A bar ends at the lower measured ratio; its pale
end reaches to the higher one. The axis is logarithmic. share.svg shows "Share of a dense product",
neighbors_growth.svg the table "CPU ns per point" of the notebook.
"""

import html
import math
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
LEFT, RIGHT, TOP, ROW, WIDTH = 350, 70, 34, 26, 820
TICKS = (1, 2, 5, 10, 20, 50)


def rows(page):
    """(operation, compared with, low, high) of the table."""
    table = page.split("## Compared with other code", 1)[1].split("\n## ", 1)[0]
    for line in table.splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
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


def shares(page):
    """(column titles, [(name, shares)]) of the table "... beside other libraries".

    The rows of one machine are shown; those that name another machine are not.
    """
    table = page.split("beside other libraries\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in table.splitlines() if line[:1] == "|" and " on Ice Lake" not in line]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return cells[0][1:], [(row[0], [float(v) for v in row[1:]]) for row in cells[2:]]


def share_chart(page):
    """Groups of bars: the share of the speed of a dense product by channels."""
    titles, found = shares(page)
    colors = ("#1565c0", "#ef6c00", "#9e9e9e")
    left, top, height, bar = 60, 60, 220, 34
    group = bar * len(found) + 40
    width, bottom = left + group * len(titles) + 20, top + height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 36}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{bottom + 36}" fill="white"/>',
        '<text x="12" y="18">3x3x3 sparse convolution of a LiDAR sweep, one CPU thread: '
        "share of the speed of a dense product</text>",
    ]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - height * tick
        parts += [
            f'<line x1="{left}" x2="{width - 20}" y1="{y:g}" y2="{y:g}" stroke="#ddd"/>',
            f'<text x="{left - 8}" y="{y + 4:g}" text-anchor="end">{tick:.0%}</text>',
        ]
    for number, (name, values) in enumerate(found):
        x = left + 8 + sum(7 * len(other) + 40 for other, _ in found[:number])
        parts += [
            f'<rect x="{x}" y="30" width="12" height="12" fill="{colors[number]}"/>',
            f'<text x="{x + 18}" y="40">{html.escape(name)}</text>',
        ]
        for place, value in enumerate(values):
            x, tall = left + 20 + group * place + bar * number, height * value
            parts += [
                f'<rect x="{x}" y="{bottom - tall:.1f}" width="{bar - 4}" height="{tall:.1f}" '
                f'fill="{colors[number]}"/>',
                f'<text x="{x + bar / 2 - 2:g}" y="{bottom - tall - 4:.1f}" text-anchor="middle" '
                f'font-size="11">{value:g}</text>',
            ]
    for place, title in enumerate(titles):
        x = left + 20 + group * place + bar * len(found) / 2
        parts.append(f'<text x="{x:g}" y="{bottom + 18}" text-anchor="middle">{title}</text>')
    return "\n".join([*parts, "</svg>", ""])


def growth_chart(notebook):
    """Time per point of kNN by the number of points, and log N through the third of them."""
    found = re.search(r"^\| points \|(.*)\|$\n.*\n^\| CPU ns per point \|(.*)\|$", notebook, re.M)
    counts, times = ([float(v.replace(",", "")) for v in row.split("|")] for row in found.groups())
    left, top, right, bottom, most = 64, 28, 620, 272, 1600
    low, high = math.log(25_000), math.log(10_000_000)

    def at(count, time):
        x = left + (math.log(count) - low) / (high - low) * (right - left)
        return f"{x:.1f}", f"{bottom - time / most * (bottom - top):.1f}"

    def line(points, look):
        return f'<polyline fill="none" {look} points="{" ".join(map(",".join, points))}"/>'

    steps = [25_000 * 2**i for i in range(9)]
    ideal = [at(n, times[2] * math.log(n) / math.log(counts[2])) for n in steps]
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 320" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="640" height="320" fill="white"/>',
        f'<text x="{left}" y="16">CPU ns per point, k = 16, build plus query, one thread; '
        "dashed: proportional to log N</text>",
    ]
    for tick in range(0, most + 1, 400):
        _, y = at(1e6, tick)
        parts += [
            f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" stroke="#ddd"/>',
            f'<text x="{left - 8}" y="{float(y) + 4:.1f}" text-anchor="end">{tick}</text>',
        ]
    parts.append(line(ideal, 'stroke="#999" stroke-dasharray="5 4"'))
    parts.append(line(list(map(at, counts, times)), 'stroke="#1565c0" stroke-width="2"'))
    for count, time in zip(counts, times):
        x, y = at(count, time)
        parts += [
            f'<circle cx="{x}" cy="{y}" r="4" fill="#1565c0"/>',
            f'<text x="{x}" y="{float(y) - 10:.1f}" text-anchor="middle">{time:g}</text>',
            f'<text x="{x}" y="290" text-anchor="middle">{count:,.0f}</text>',
        ]
    parts.append('<text x="352" y="312" text-anchor="middle">points</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    text = (DOCS / "performance.md").read_text()
    (DOCS / "figures" / "performance.svg").write_text(chart(text))
    (DOCS / "figures" / "share.svg").write_text(share_chart(text))
    notebook = (DOCS / "notebook.md").read_text()
    (DOCS / "figures" / "neighbors_growth.svg").write_text(growth_chart(notebook))
