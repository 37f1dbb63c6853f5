"""Recorded runs of published encoders, compared array by array."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lattice import SparseTensor, ops
from mlx_lattice.models import convert

FOLDER = Path(__file__).with_name("goldens")
# What a state dict does not say; everything else is read from the weights.
GIVEN = ("order", "stride", "enable_flash", "rope_base", "pdnorm_conditions") + tuple(
    f"{side}_{key}" for side in ("enc", "dec") for key in ("num_head", "patch_size", "rope_freq")
)


def batched(coords, offset):
    """Rows (batch, x, y, z) of voxels and the cumulative ends of their clouds."""
    cloud = np.searchsorted(offset, np.arange(len(coords)), side="right")
    return np.column_stack([cloud, coords]).astype(np.int32)


class Recording:
    """The arrays of a file, with a network of its weights and its input."""

    def __init__(self, name, folder=FOLDER, bound=1e-5, **options):
        self.data, self.bound, self.worst = np.load(folder / f"{name}.npz"), bound, 0.0
        self.family = str(self.data["family"]) if "family" in self.data.files else "v3m1"
        self.config = json.loads(str(self.data["config"]))
        self.state = {k[6:]: self.data[k] for k in self.data.files if k.startswith("param/")}
        self.net = self.network(**options)
        self.x = SparseTensor(batched(self["grid_coord"], self["offset"]), self["feat"])
        self.points = mx.array(self["coord"])
        self.positions = self.points if self.family == "v3m3" else None

    def network(self, **options):
        """The network of the recorded weights; options change what they do not say."""
        given = {key: self.config[key] for key in GIVEN if key in self.config}
        if self.family == "v3m1":
            given["conv_input"] = "sum"
        return convert.from_pointcept(self.state, **given | options)

    def __getitem__(self, key):
        value = self.data[key]
        while value.dtype.kind == "U" and str(value).startswith("= "):
            value = self.data[str(value)[2:]]
        return value

    def __contains__(self, key):
        return key in self.data.files

    def near(self, key, found):
        """Compares features with a recorded array, if there is one; of some, every third row."""
        if key not in self or (self.data[key].dtype.kind == "U" and str(self.data[key])[0] != "="):
            return
        expected = self[key]
        found = np.array(getattr(found, "feats", found))
        if len(found) != len(expected):
            found = found[::3]
        assert found.shape == expected.shape, key
        error = np.abs(found - expected).max() / (np.abs(expected).max() or 1.0)
        self.worst = max(self.worst, error)
        assert error <= self.bound, f"{key}: {error:.2e}"

    def same(self, key, found):
        """Compares integers exactly with a recorded array, if there is one."""
        if key in self:
            assert np.array_equal(np.array(found), self[key]), key

    def every_stage(self, prefix="", mask=None):
        """Walks through the network and compares everything on the way; returns the levels."""
        net = self.net
        levels = net.encode(self.x, positions=self.points, mask=mask)
        embedded = net._embed(self.x, mask)
        self.near(f"{prefix}embedding/feat", embedded)
        self._orders("serialized_", levels[0])
        for s, level in enumerate(levels):
            start = net._pooled(levels[s - 1], s) if s else level._replace(tensor=embedded)
            if s:
                self._pool(f"{prefix}pool{s}", f"pool{s}", start, levels[s - 1])
            self._blocks(prefix, f"enc.enc{s}", net.enc[s], start, None)
            self.near(f"{prefix}stage/enc{s}/feat", level.tensor)
        final = levels[-1].tensor
        for s in reversed(range(len(net.dec) if "dec" in net else 0)):
            start, branch = net.dec[s].up(final, levels[s].tensor, levels[s + 1].pooling)
            self.near(f"{prefix}unpool{s}/feat", start)
            self.near(f"{prefix}unpool{s}/conv_feat", start if net._rules.refreshed else branch)
            seen = None if net._rules.refreshed else branch
            at = levels[s]._replace(tensor=start)
            final = self._blocks(prefix, f"dec.dec{s}", net.dec[s], at, seen)
            self.near(f"{prefix}stage/dec{s}/feat", final)
        self.near(f"{prefix}final/feat", final)
        for s, tensor in enumerate(net.decode(levels) if "dec" in net else []):
            self.near(f"{prefix}trace/level{s}/feat", tensor)
        return levels

    def _pool(self, key, shared, level, before):
        x = level.tensor
        self.near(f"{key}/feat", x)
        if level.positions is not None:
            self.near(f"{shared}/coord", level.positions)
        for where in (key, shared):
            self.same(f"{where}/grid_coord", np.array(x.coords)[:, 1:])
            self.same(f"{where}/cluster", level.pooling.cluster)
            self.same(f"{where}/offset", np.cumsum(np.bincount(np.array(x.coords)[:, 0])))
        cluster = np.array(level.pooling.cluster)
        self.same(f"{shared}/idx_ptr", np.cumsum([0, *np.bincount(cluster)]))
        self._colors(shared, cluster)
        self._orders(f"{shared}/", level)

    def _colors(self, key, cluster):
        """Colors of a level are the means of those before it, pooled by the clusters we found."""
        if f"{key}/color" in self:
            before = "color" if key == "pool1" else f"pool{int(key[4:]) - 1}/color"
            total = np.zeros_like(self[f"{key}/color"], np.float64)
            np.add.at(total, cluster, self[before])
            self.near(f"{key}/color", total / np.bincount(cluster)[:, None])

    def _orders(self, prefix, level):
        for word in ("code", "order"):
            if f"{prefix}{word}" not in self:
                continue
            for i, curve in enumerate(level.orders):
                coords = level.tensor.coords
                made = ops.curve_sort_coords(coords, curve, depth=level.depth).order
                if word == "code":
                    made = ops.curve_codes(coords, curve, depth=level.depth)
                assert np.array_equal(made, self[f"{prefix}{word}"][i]), f"{prefix}{word} {curve}"
        if f"{prefix}depth" in self and level.depth is not None:
            assert level.depth == self[f"{prefix}depth"]

    def _blocks(self, prefix, stage, made, level, seen):
        """The blocks of a stage one by one, with their parts."""
        x = level.tensor
        for i, block in enumerate(made.blocks):
            order, name = level.orders[i % len(level.orders)], f"{stage}.block{i}"
            options = {"depth": level.depth}
            if self.net._rules.positions:
                options["positions"] = level.positions
            self._parts(f"{prefix}in_{name}/", block, x, seen, order, options)
            if f"{prefix}in_{name}/rope/q_in" in self:
                self._turned(f"{prefix}in_{name}/rope/", block.attention._rope)
            if "attention" in block and f"{prefix}blk/{name}/patch_size" in self:
                layout = block.attention.layout(x, order, level.depth)
                self.same(f"{prefix}blk/{name}/patch_size", layout.length)
                count = "patches" if f"{prefix}blk/{name}/patches" in self else "segments"
                self.same(f"{prefix}blk/{name}/{count}", layout.n_segments)
                self.same(f"{prefix}blk/{name}/order_index", i % len(level.orders))
                self._layout(f"{prefix}in_{name}/", layout, x, order, level.depth)
            x, branch = block.steps(x, order, seen, **options)
            seen = branch if self.net._rules.branch else None
            self.near(f"{prefix}in_{name}/out", x)
        return x

    def _turned(self, key, base):
        """Recorded queries and keys, turned by their positions; LitePT's heads come first."""
        heads_first = f"{key}grid_coord" in self
        at = self[f"{key}grid_coord" if heads_first else f"{key}coord"].astype(np.float32)
        for name in "qk":
            given = self[f"{key}{name}_in"]
            rows = np.ascontiguousarray(given.swapaxes(0, 1) if heads_first else given)
            found = ops.rotary(mx.array(rows), mx.array(at), base=base, halves=True)
            self.near(f"{key}{name}_out", found.swapaxes(0, 1) if heads_first else found)

    def _layout(self, key, layout, x, order, depth):
        if f"{key}pad" in self:
            made = ops.curve_sort_coords(x.coords, order, depth=depth)
            rows, inverse = np.array(made.order), np.array(made.inverse_rows)
            assert np.array_equal(layout.rows, rows[self[f"{key}pad"]])
            assert np.array_equal(layout.slots, self[f"{key}unpad"][inverse])
            self.same(f"{key}cu_seqlens", layout.offsets)

    def _parts(self, key, block, x, seen, order, options):
        self.near(f"{key}in", x)
        self.near(f"{key}conv_in", x if seen is None else seen)
        if "norm0" in block:
            x = block.norm0(x)
        elif "position" in block:
            branch = block.position(x if seen is None else seen)
            self.near(f"{key}cpe", branch)
            self.near(f"{key}conv", branch)
            x = x.with_feats(x.feats + branch.feats)
        if "attention" not in block:
            return
        attended = block.attention(block.norm1(x), order=order, **options)
        self.near(f"{key}attn", attended)
        x = x.with_feats(x.feats + attended.feats * block.get("scale1", 1))
        self.near(f"{key}mlp", block.mlp(block.norm2(x)))
