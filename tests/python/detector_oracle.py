"""Detectors in float64 NumPy, written from the papers and from what was recorded of the originals.

`Oracle(config, columns, widths, rng)` computes a network and invents its weights on the way, each
with the name and shape that OpenPCDet gives it. So a test needs no file: `run` the oracle, give its
`state` to `detection.from_state`, and compare.
"""

import numpy as np
from mlx_lattice import ops

SUBM = (1, 1, 1)


def triple(value, dims):
    return (value,) * dims if isinstance(value, int) else tuple(value)


def voxelize(points, low, high, size, max_points, max_voxels):
    """(slots, cells as z y x, counts) of one frame, in the float32 of the original."""
    low, size = np.array(low, np.float32), np.array(size, np.float32)
    grid = np.round((np.array(high) - np.array(low, float)) / size).astype(int)
    voxels = {}
    for p in points.astype(np.float32):
        cell = np.floor((p[:3] - low) / size)
        if (cell < 0).any() or (cell >= grid).any():
            continue
        key = tuple(int(c) for c in cell[::-1])
        if key not in voxels:
            if len(voxels) == max_voxels:
                continue
            voxels[key] = []
        if len(voxels[key]) < max_points:
            voxels[key].append(p)
    slots = np.zeros((len(voxels), max_points, points.shape[1]))
    for i, inside in enumerate(voxels.values()):
        slots[i, : len(inside)] = inside
    counts = np.array([len(inside) for inside in voxels.values()], int)
    return slots, np.array(list(voxels), int).reshape(-1, 3), counts


class Rows:
    """Rows (batch, ...) with features inside of a shape."""

    def __init__(self, index, feats, shape):
        self.index, self.feats, self.shape = index, feats, tuple(shape)

    def keys(self, index):
        """One number per row; -1 outside of the shape."""
        inside = ((index[:, 1:] >= 0) & (index[:, 1:] < self.shape)).all(1)
        made = index[:, 0]
        for axis, size in enumerate(self.shape):
            made = made * size + index[:, 1 + axis]
        return np.where(inside, made, -1)


def reached(x, weight, stride, padding):
    """A convolution onto all cells that it reaches: rows in the order in which taps meet them."""
    sizes = weight.shape[1:-1]
    shape = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape, padding, sizes, stride)]
    out, found = Rows(None, None, shape), []
    for tap in np.ndindex(*sizes):
        moved = x.index[:, 1:] + np.array(padding) - tap
        hits = np.flatnonzero((moved % stride == 0).all(1))
        cells = np.concatenate([x.index[hits, :1], moved[hits] // stride], 1)
        keys = out.keys(cells)
        found += [(tap, hits[keys >= 0], cells[keys >= 0], keys[keys >= 0])]
    every = np.concatenate([f[3] for f in found])
    distinct, first = np.unique(every, return_index=True)
    rank = np.empty(len(first), int)
    rank[np.argsort(first)] = np.arange(len(first))
    out.index = np.concatenate([f[2] for f in found])[np.sort(first)]
    out.feats = np.zeros((len(distinct), weight.shape[0]))
    one = weight.reshape(weight.shape[-1], -1) if len(found) == 1 and set(stride) == {1} else None
    for tap, hits, _, keys in found:
        w = weight[(slice(None), *tap)].T if one is None else one
        np.add.at(out.feats, rank[np.searchsorted(distinct, keys)], x.feats[hits] @ w)
    return out


def submanifold(x, weight):
    sizes = weight.shape[1:-1]
    if np.prod(sizes) == 1:  # the memory of the weight is read as (C_in, C_out)
        return Rows(x.index, x.feats @ weight.reshape(weight.shape[-1], -1), x.shape)
    own = x.keys(x.index)
    order = np.argsort(own)
    feats = np.zeros((len(own), weight.shape[0]))
    for tap in np.ndindex(*sizes):
        moved = x.index.copy()
        moved[:, 1:] += np.array(tap) - np.array(sizes) // 2
        keys = x.keys(moved)
        at = np.minimum(np.searchsorted(own[order], keys), len(own) - 1)
        hit = (own[order][at] == keys) & (keys >= 0)
        feats[hit] += x.feats[order[at[hit]]] @ weight[(slice(None), *tap)].T
    return Rows(x.index, feats, x.shape)


def dense_conv(x, weight, stride=1):
    """(B, C, H, W) with weights (C_out, C_in, k, k) and a padding of k // 2."""
    k = weight.shape[2]
    x = np.pad(x, [(0, 0), (0, 0), (k // 2, k // 2), (k // 2, k // 2)])
    h, w = ((n - k) // stride + 1 for n in x.shape[2:])
    made = 0
    for i, j in np.ndindex(k, k):
        part = x[:, :, i : i + h * stride : stride, j : j + w * stride : stride]
        made = made + np.einsum("bchw,oc->bohw", part[:, :, :h, :w], weight[:, :, i, j])
    return made


class Oracle:
    def __init__(self, config, columns, widths=None, seed=0):
        self.config, self.model = config, config["model"]
        self.columns, self.widths = columns, widths
        self.rng, self.state = np.random.default_rng(seed), {}

    def weight(self, name, *shape, scale=None):
        """A weight of the file, made when it is first asked for."""
        if name not in self.state:
            scale = scale or 1.2 / np.sqrt(np.prod(shape[1:]))
            self.state[name] = (self.rng.normal(size=shape) * scale).astype(np.float32)
        assert self.state[name].shape == shape, name
        return self.state[name].astype(np.float64)

    def norm(self, feats, name, eps):
        """Batch norm of evaluation; channels are the last axis. Statistics are near those here."""
        c = feats.shape[-1]
        if f"{name}.weight" not in self.state:
            rows, draw = feats.reshape(-1, c), self.rng.uniform
            made = {"weight": draw(0.8, 1.3, c), "bias": draw(-0.3, 0.3, c)}
            made["running_var"] = (rows.var(0) + 1e-3) * draw(0.7, 1.5, c)
            made["running_mean"] = rows.mean(0) + draw(-0.3, 0.3, c) * rows.std(0)
            self.state |= {f"{name}.{k}": v.astype(np.float32) for k, v in made.items()}
        gain, shift, var, mean = (
            self.state[f"{name}.{k}"].astype(np.float64)
            for k in ("weight", "bias", "running_var", "running_mean")
        )
        return (feats - mean) / np.sqrt(var + eps) * gain + shift

    def sparse(self, x, name, c_out, size, stride=SUBM, padding=None, bias=False):
        """A convolution of rows; padding None: submanifold."""
        dims = len(x.shape)
        shape = (c_out, *triple(size, dims), x.feats.shape[1])
        w = self.weight(f"{name}.weight", *shape, scale=1.5 / np.sqrt(3 * shape[-1]))
        if padding is None:
            y = submanifold(x, w)
        else:
            y = reached(x, w, triple(stride, dims), triple(padding, dims))
        if bias:
            y.feats = y.feats + self.weight(f"{name}.bias", c_out, scale=0.1)
        return y

    def layer(self, x, name, *args, eps=1e-3, **options):
        y = self.sparse(x, f"{name}.0", *args, **options)
        y.feats = np.maximum(self.norm(y.feats, f"{name}.1", eps), 0)
        return y

    def residual(self, x, name, bias):
        y = self.sparse(x, f"{name}.conv1", x.feats.shape[1], 3, bias=bias)
        y.feats = np.maximum(self.norm(y.feats, f"{name}.bn1", 1e-3), 0)
        y = self.sparse(y, f"{name}.conv2", x.feats.shape[1], 3, bias=bias)
        feats = self.norm(y.feats, f"{name}.bn2", 1e-3) + x.feats
        return Rows(y.index, np.maximum(feats, 0), y.shape)

    def stage(self, x, name, blocks, bias):
        """The layers behind the first of a stage."""
        for j in blocks:
            if bias is None:
                x = self.layer(x, f"{name}.{j}", x.feats.shape[1], 3)
            else:
                x = self.residual(x, f"{name}.{j}", bias)
        return x

    def backbone(self, x):
        config, w = self.model["BACKBONE_3D"], self.widths
        plain = config["NAME"] == "VoxelBackBone8x"
        next_ = config["NAME"].endswith("VoxelNeXt")
        bias = None if plain else True if next_ else config.get("USE_BIAS", True)
        b = "backbone_3d."
        x = self.layer(x, f"{b}conv_input", w[0], 3)
        x = self.stage(x, f"{b}conv1", (0,) if plain else (0, 1), bias)
        stages = {"conv1": x}
        sizes = config.get("SPCONV_KERNEL_SIZES", [3] * 4) if next_ else [3] * 3
        sizes = [*sizes, sizes[-1]] if next_ else sizes
        for i, k in enumerate(sizes):
            name = f"conv{i + 2}"
            padding = k // 2 if next_ or i < 2 else (0, 1, 1)
            x = self.layer(x, f"{b}{name}.0", w[i + 1], k, 2, padding)
            stages[name] = x = self.stage(x, f"{b}{name}", (1, 2), bias)
        if not next_:
            out = self.layer(x, f"{b}conv_out", w[4], (3, 1, 1), (2, 1, 1), (0, 0, 0))
            return {**stages, "conv_out": out}
        index, feats = [], []
        for i, name in enumerate(("conv4", "conv5", "conv6")):
            index.append(stages[name].index * [1, *(3 * [2**i])])
            feats.append(stages[name].feats)
        flat = np.concatenate(index)[:, [0, 2, 3]]
        rows, inverse = np.unique(flat, axis=0, return_inverse=True)
        total = np.zeros((len(rows), w[5]))
        np.add.at(total, inverse.reshape(-1), np.concatenate(feats))
        seen = Rows(rows, total, stages["conv4"].shape[1:])
        out = self.layer(seen, f"{b}conv_out", w[6], 3, 1, 1)
        shared = self.layer(out, f"{b}shared_conv", w[6], 3, bias=True, eps=1e-5)
        return {**stages, "conv_out": out, "shared_conv": shared}

    def pillars(self, slots, counts, cells):
        config = self.model["VFE"]
        size, low = np.array(self.config["voxel_size"]), np.array(self.config["point_cloud_range"])
        xyz = slots[:, :, :3]
        mean = xyz.sum(1, keepdims=True) / np.maximum(counts, 1)[:, None, None]
        center = (cells[:, None, ::-1] + 0.5) * size + low[:3]
        parts = [slots if config["USE_ABSLOTE_XYZ"] else slots[..., 3:], xyz - mean, xyz - center]
        if config["WITH_DISTANCE"]:
            parts.append(np.linalg.norm(xyz, axis=2, keepdims=True))
        x = np.concatenate(parts, 2) * (np.arange(slots.shape[1]) < counts[:, None])[..., None]
        filters = config["NUM_FILTERS"]
        for i, c in enumerate(filters):
            last, name = i == len(filters) - 1, f"vfe.pfn_layers.{i}"
            w = self.weight(f"{name}.linear.weight", c if last else c // 2, x.shape[2])
            x = np.maximum(self.norm(x @ w.T, f"{name}.norm", 1e-3), 0)
            top = x.max(1, keepdims=True)
            x = top if last else np.concatenate([x, np.broadcast_to(top, x.shape)], 2)
        return x[:, 0]

    def from_above(self, x):
        """(B, C, H, W) -> (B, C', H', W'): the levels of BaseBEVBackbone."""
        config, made = self.model["BACKBONE_2D"], []
        ups = config.get("UPSAMPLE_STRIDES", [])
        for i, (count, stride, c) in enumerate(
            zip(config["LAYER_NUMS"], config["LAYER_STRIDES"], config["NUM_FILTERS"])
        ):
            for j in range(count + 1):
                name = f"backbone_2d.blocks.{i}.{1 + 3 * j}"
                w = self.weight(f"{name}.weight", c, x.shape[1], 3, 3)
                x = dense_conv(x, w, stride if j == 0 else 1)
                x = self.relu_norm(x, f"backbone_2d.blocks.{i}.{2 + 3 * j}")
            if ups:
                made.append(self.up(x, i, ups[i], config["NUM_UPSAMPLE_FILTERS"][i]))
        return np.concatenate(made, 1) if ups else x

    def up(self, x, i, by, c):
        w = self.weight(f"backbone_2d.deblocks.{i}.0.weight", x.shape[1], c, by, by)
        y = np.einsum("bchw,coij->bohiwj", x, w)
        b, _, h, _, wide, _ = y.shape
        return self.relu_norm(y.reshape(b, c, h * by, wide * by), f"backbone_2d.deblocks.{i}.1")

    def relu_norm(self, x, name, eps=1e-3):
        return np.maximum(np.moveaxis(self.norm(np.moveaxis(x, 1, -1), name, eps), -1, 1), 0)

    def dense(self, x, name, c_out, bias, size=3):
        w = self.weight(f"{name}.weight", c_out, x.shape[1], size, size)
        y = dense_conv(x, w)
        return y + self.weight(f"{name}.bias", c_out, scale=0.3)[:, None, None] if bias else y

    def anchor_head(self, x):
        config = self.model["DENSE_HEAD"]
        sets = config["ANCHOR_GENERATOR_CONFIG"]
        per_cell = sum(len(s["anchor_sizes"]) * len(s["anchor_rotations"]) for s in sets)
        widths = {"cls": len(self.config["class_names"]), "box": 7}
        if config["USE_DIRECTION_CLASSIFIER"]:
            widths["dir_cls"] = config["NUM_DIR_BINS"]
        made = {}
        for name, width in widths.items():
            y = self.dense(x, f"dense_head.conv_{name}", per_cell * width, True, 1)
            made[f"{name}_preds"] = np.moveaxis(y, 1, -1).reshape(len(x), -1, width)
        return made

    def center_head(self, x):
        """Rows (B H W, width) by output, for each group; x is a map or `Rows`."""
        config, sparse = self.model["DENSE_HEAD"], isinstance(x, Rows)
        bias, eps = config["USE_BIAS_BEFORE_NORM"], 1e-5 if sparse else config.get("BN_EPS", 1e-5)
        if not sparse:
            x = self.dense(x, "dense_head.shared_conv.0", config["SHARED_CONV_CHANNEL"], bias)
            x = self.relu_norm(x, "dense_head.shared_conv.1", eps)
        groups = []
        for g, names in enumerate(config["CLASS_NAMES_EACH_HEAD"]):
            heads = dict(config["SEPARATE_HEAD_CFG"]["HEAD_DICT"])
            heads["hm"] = {"out_channels": len(names), "num_conv": config["NUM_HM_CONV"]}
            made = {}
            for out, entry in heads.items():
                y, name = x, f"dense_head.heads_list.{g}.{out}"
                for j in range(entry["num_conv"] - 1):
                    if sparse:
                        size = config["KERNEL_SIZE_HEAD"]
                        c = y.feats.shape[1]
                        y = self.layer(y, f"{name}.{j}", c, size, bias=bias, eps=eps)
                    else:
                        y = self.dense(y, f"{name}.{j}.0", y.shape[1], bias)
                        y = self.relu_norm(y, f"{name}.{j}.1", eps)
                last, width = f"{name}.{entry['num_conv'] - 1}", entry["out_channels"]
                if sparse:
                    made[out] = self.sparse(y, last, width, 1, bias=True).feats
                else:
                    y = np.moveaxis(self.dense(y, last, width, True), 1, -1)
                    made[out] = y.reshape(-1, width)
            groups.append(made)
        return groups

    def run(self, frames):
        """The outputs of the head, and the stages before it."""
        c = self.config
        limits = c["point_cloud_range"][:3], c["point_cloud_range"][3:], c["voxel_size"]
        parts = [voxelize(f, *limits, c["max_points_per_voxel"], c["max_voxels"]) for f in frames]
        slots, counts = (np.concatenate([p[i] for p in parts]) for i in (0, 2))
        index = np.concatenate([np.insert(p[1], 0, b, axis=1) for b, p in enumerate(parts)])
        ends = zip(*limits)
        nx, ny, nz = (round((high - low) / size) for low, high, size in ends)
        if self.model["VFE"]["NAME"] == "PillarVFE":
            x = np.zeros((len(frames), self.model["VFE"]["NUM_FILTERS"][-1], ny, nx))
            found = self.pillars(slots, counts, index[:, 1:])
            x[index[:, 0], :, index[:, 2], index[:, 3]] = found
            stages = {"vfe": found}
        else:
            mean = slots.sum(1) / np.maximum(counts, 1)[:, None]
            stages = self.backbone(Rows(index, mean, (nz + 1, ny, nx)))
            last = stages["conv_out"]
            if len(last.shape) == 2:
                return self.center_head(stages["shared_conv"]), stages
            x = np.zeros((len(frames), last.feats.shape[1], *last.shape))
            x[last.index[:, 0], :, last.index[:, 1], last.index[:, 2], last.index[:, 3]] = (
                last.feats
            )
            x = x.reshape(len(frames), -1, *last.shape[1:])  # channel c D + z
        stages["backbone_2d"] = x = self.from_above(x)
        if self.model["DENSE_HEAD"]["NAME"] == "AnchorHeadSingle":
            return self.anchor_head(x), stages
        return self.center_head(x), stages


def greedy(boxes, scores, threshold, pre, post, kind="nms_gpu"):
    """Suppression, one box after the other; rows that stay, by falling score."""
    order = np.argsort(-scores, kind="stable")[: pre if pre > 0 else None]
    kept = []
    for i in order:
        if kind == "circle_nms":
            away = ((boxes[kept, :2] - boxes[i, :2]) ** 2).sum(1)
            falls = (away <= threshold).any()
        else:
            how = "upright" if kind == "nms_normal_gpu" else "bev"
            pair = ops.box_overlap(boxes[i : i + 1, :7], boxes[kept, :7], kind=how)
            falls = (np.array(pair) > threshold).any()
        if not falls:
            kept.append(i)
    return np.array(kept[: post if post >= 0 else None], int)
