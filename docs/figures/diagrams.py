"""Draws the diagrams of the documentation beside this file.

Plain SVG, the same bytes on every machine.

padding.svg   which inputs a kernel of size 3 and stride 2 reads, here and in PyTorch
kinds.svg     edges of the kinds of relations on a line
strides.svg   one coordinate on lattices of stride 1, 2 and 4
identity.svg  which operations keep the identity of coordinates
routes.svg    how a call finds its kernel
orders.svg    the four orders of attention, in two dimensions
patches.svg   how the last patch of a cloud borrows rows
windows.svg   windows of 4 voxels, without and with a shift of 2
programs.svg  a network, its program file, and who runs it
"""

import itertools
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INK, SOFT, BLUE, RED, PALE = "#4a5568", "#a0aec0", "#3182ce", "#dd6b20", "#edf2f7"


class Picture:
    """Collects shapes and writes them as SVG."""

    def __init__(self, width, height):
        self.parts, self.size = [], (width, height)

    def text(self, x, y, words, anchor="middle", color=INK, size=13):
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}"'
            f' font-size="{size}">{words}</text>'
        )

    def box(self, x, y, words, fill=PALE, w=30, h=26, color=INK):
        self.parts.append(
            f'<rect x="{x - w / 2:g}" y="{y - h / 2:g}" width="{w}" height="{h}" rx="4"'
            f' fill="{fill}" stroke="{SOFT}"/>'
        )
        self.text(x, y + 5, words, color=color)

    def line(self, x1, y1, x2, y2, color=BLUE, dash=""):
        style = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}"'
            f' stroke-width="1.6"{style}/>'
        )

    def save(self):
        w, h = self.size
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}"'
            f' height="{h}" font-family="system-ui, sans-serif"><rect width="{w}" height="{h}"'
            f' fill="#fff"/>\n{body}\n</svg>\n'
        )


def lattice(p, left, top, inputs, outputs, edges, title, step=36, out_step=None):
    """Inputs in the upper row, outputs below, a line per edge (input, output)."""
    p.text(left, top - 26, title, anchor="start")
    out_step = out_step or step
    x_in = {v: left + 15 + step * (v - min(inputs)) for v in inputs}
    x_out = {v: left + 15 + out_step * (v - min(outputs)) for v in outputs}
    for i, o in edges:
        p.line(x_in[i], top + 13, x_out[o], top + 77)
    for v, x in x_in.items():
        p.box(x, top, str(v))
    for v, x in x_out.items():
        p.box(x, top + 90, str(v), fill="#ebf8ff")


def padding():
    p = Picture(640, 190)
    line = range(7)
    here = [(i, o) for o in range(4) for i in (2 * o - 1, 2 * o, 2 * o + 1) if i in line]
    there = [(i, o) for o in range(4) for i in (2 * o, 2 * o + 1, 2 * o + 2) if i in line]
    lattice(p, 20, 60, line, range(4), here, "kernel 3, stride 2, padding 0: centered", out_step=72)
    lattice(p, 345, 60, line, range(4), there, "padding -1: what PyTorch does with 0", out_step=72)
    return p.save()


def kinds():
    p = Picture(660, 330)
    line = [0, 1, 2, 4]
    own = [(i, o) for o in line for i in (o - 1, o, o + 1) if i in line]
    lattice(p, 20, 60, line, line, own, "submanifold, kernel 3: the input's own rows")
    down = [(i, i // 2) for i in line]
    lattice(p, 345, 60, line, [0, 1, 2], down, "forward, kernel 2, stride 2", out_step=72)
    up = [(o // 2, o) for o in line]
    p2 = [0, 1, 2]
    lattice(
        p, 20, 215, p2, line, up, "target-transposed: back onto given rows", step=72, out_step=36
    )
    made = [(i, 2 * i + k) for i in (0, 2) for k in (0, 1)]
    lattice(
        p,
        345,
        215,
        [0, 2],
        [0, 1, 4, 5],
        made,
        "generative: every place that is reached",
        step=72,
        out_step=36,
    )
    return p.save()


def strides():
    p = Picture(640, 200)
    for row, stride in enumerate((1, 2, 4)):
        y = 40 + 60 * row
        p.text(10, y + 5, f"stride {stride}", anchor="start")
        for v in range(-4, 8, stride):
            w = 38 * stride - 4
            x = 100 + 38 * (v + 4) + w / 2
            p.box(
                x, y, str(v // stride), fill="#fefcbf" if v // stride == 5 // stride else PALE, w=w
            )
    p.text(
        100,
        190,
        "x = 5 at stride 1 is x = 2 at stride 2 and x = 1 at stride 4: floor division",
        anchor="start",
    )
    return p.save()


def identity():
    p = Picture(640, 190)
    p.box(70, 95, "x", w=70, h=36)
    for k, (words, kept) in enumerate(
        (
            ("subm_conv3d, linear, relu, norm, x * 2, replace(feats=)", True),
            ("conv3d stride 2, pool3d: a new set, the same for equal kernels", False),
            ("conv_transpose3d(..., coordinates=x): x's own again", True),
        )
    ):
        y = 40 + 55 * k
        p.line(105, 95, 180, y, BLUE if kept else RED, "" if kept else "5 4")
        p.box(400, y, words, fill="#ebf8ff" if kept else "#fffaf0", w=440, h=34)
    return p.save()


def routes():
    p = Picture(640, 120)
    names = ("call", "check", "table of routes", "kernel", "lazy MLX node")
    for k, words in enumerate(names):
        x = 65 + 128 * k
        p.box(x, 50, words, w=112, h=40)
        if k:
            p.line(x - 72, 50, x - 56, 50)
    p.text(
        320,
        105,
        "explain() prints the row that was chosen and the rows that were not, with the reason",
        size=12,
    )
    return p.save()


def z_place(x, y, bits=3):
    return sum((x >> b & 1) << (2 * b + 1) | (y >> b & 1) << (2 * b) for b in range(bits))


def hilbert_place(x, y, bits=3):
    """Along the Hilbert curve of the square (Hilbert 1891)."""
    place = 0
    for b in reversed(range(bits)):
        right, upper = x >> b & 1, y >> b & 1
        place += (3 * right ^ upper) << (2 * b)
        if not upper:
            if right:
                x, y = ~x, ~y
            x, y = y, x
    return place


def orders():
    p, step, side = Picture(720, 210), 18, 8
    curves = (
        ("z", z_place),
        ("z-trans", lambda x, y: z_place(y, x)),
        ("hilbert", hilbert_place),
        ("hilbert-trans", lambda x, y: hilbert_place(y, x)),
    )
    for k, (name, place) in enumerate(curves):
        left, top = 28 + 178 * k, 44
        p.text(left + step * 3.5, 22, name)
        cells = sorted((place(x, y), x, y) for x in range(side) for y in range(side))
        spots = [(left + step * x, top + step * (side - 1 - y)) for _, x, y in cells]
        for i, ((x1, y1), (x2, y2)) in enumerate(itertools.pairwise(spots)):
            p.line(x1, y1, x2, y2, color=BLUE if i // 16 % 2 == 0 else RED)
    p.text(360, 200, "colors: patches of 16 voxels along each order", size=12)
    return p.save()


def patches():
    p, step = Picture(640, 150), 40
    p.text(30, 24, "a cloud of 10 rows, patches of 4: 12 slots", anchor="start")
    for slot in range(12):
        row = slot if slot < 10 else slot - 4
        x = 60 + step * slot + 14 * (slot // 4)
        p.box(x, 62, row, fill=PALE if slot < 10 else "#fbd38d", w=34)
        p.text(x, 94, slot, size=11, color=SOFT)
    for patch in range(3):
        p.text(120 + (4 * step + 14) * patch, 118, f"patch {patch}", size=12)
    p.text(
        30,
        142,
        "rows 6 and 7 are borrowed: keys and queries once more, their results dropped",
        anchor="start",
        size=12,
    )
    return p.save()


def windows():
    p, step = Picture(560, 250), 24
    voxels = [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (6, 5), (7, 6), (2, 6)]
    voxels.append((1, 7))
    for k, shift in enumerate((0, 2)):
        left, top = 50 + 260 * k, 40
        p.text(left + 4 * step, 24, f"window 4, shift {shift}")
        groups = sorted({((x + shift) // 4, (y + shift) // 4) for x, y in voxels})
        fills = ("#bee3f8", "#fbd38d", "#c6f6d5", "#e9d8fd", "#fed7d7", "#edf2f7")
        for x, y in voxels:
            group = groups.index(((x + shift) // 4, (y + shift) // 4))
            at = left + step * x + step / 2, top + step * (7 - y) + step / 2
            p.box(*at, "", fill=fills[group % 6], w=step - 2, h=step - 2)
        borders = [b for b in range(9) if (b + shift) % 4 == 0]
        for b in borders:
            p.line(left + step * b, top, left + step * b, top + 8 * step, INK)
            p.line(left, top + step * (8 - b), left + 8 * step, top + step * (8 - b), INK)
    return p.save()


def programs():
    """A network in Python, the file, and who runs it."""
    p = Picture(720, 190)
    p.box(95, 95, "network in Python", w=150, h=40)
    p.box(330, 95, "net.lattice.safetensors", fill="#ebf8ff", w=190, h=40)
    p.text(330, 130, "graph, weights, example", color=SOFT)
    p.line(170, 95, 235, 95)
    p.text(202, 85, "export", color=BLUE)
    users = ("Python: Program.load", "C++: lattice::Segmenter", "C, Swift, Rust: lattice_c.h")
    for i, user in enumerate(users):
        p.line(425, 95, 500, 35 + 60 * i)
        p.box(605, 35 + 60 * i, user, w=210, h=36)
    return p.save()


FIGURES = {
    "padding": padding,
    "kinds": kinds,
    "strides": strides,
    "identity": identity,
    "routes": routes,
    "orders": orders,
    "patches": patches,
    "windows": windows,
    "programs": programs,
}


def main():
    for name, draw in FIGURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
