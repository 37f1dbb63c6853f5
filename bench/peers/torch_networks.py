"""Attention and the published point networks in PyTorch, the other side of networks.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

K = 20


def attention(data: dict[str, Any], lengths: list[int], learn: bool) -> Callable[[], Any]:
    """scaled_dot_product_attention of rows (T, H, D): one call, or one per segment."""
    q, k, v, g = (data[f"arr_{i}"] for i in range(4))
    if len(set(lengths)) > 1:
        ends = np.cumsum(lengths).tolist()

        def ragged() -> Any:
            parts = [
                F.scaled_dot_product_attention(
                    *(x[e - n : e].transpose(0, 1)[None] for x in (q, k, v))
                )[0].transpose(0, 1)
                for n, e in zip(lengths, ends)
            ]
            return torch.cat(parts)

        return ragged
    shape = (len(lengths), lengths[0], *q.shape[1:])
    q, k, v, g = (x.reshape(shape).transpose(1, 2).contiguous() for x in (q, k, v, g))

    def rows(x: Any) -> Any:
        return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])

    if not learn:
        return lambda: rows(F.scaled_dot_product_attention(q, k, v))
    for x in (q, k, v):
        x.requires_grad_()

    def step() -> Any:
        y = F.scaled_dot_product_attention(q, k, v)
        return rows(torch.autograd.grad(y, (q, k, v), g)[1])

    return step


class Networks:
    """Point networks with the weights `data`; way: who searches neighbors."""

    def __init__(self, data: dict[str, Any], way: str) -> None:
        self.data, self.way = data, way

    def graph(self, x: Any) -> Any:  # (B, N, C) -> (B, N, K)
        if self.way == "faiss":
            import faiss

            faiss.omp_set_num_threads(1)
            found = []
            for cloud in x.numpy():
                index = faiss.IndexFlatL2(cloud.shape[1])
                index.add(cloud)
                found.append(torch.from_numpy(index.search(cloud, K)[1]))
            return torch.stack(found)
        return torch.cdist(x, x).topk(K, largest=False)[1]

    def norm(self, x: Any, name: str) -> Any:
        parts = [self.data[f"{name}.{part}"] for part in ("running_mean", "running_var")]
        return F.batch_norm(x, *parts, self.data[f"{name}.weight"], self.data[f"{name}.bias"])

    def edge_conv(self, x: Any, name: str) -> Any:  # (B, N, C)
        b, n, c = x.shape
        at = self.graph(x).reshape(b, n * K, 1).expand(-1, -1, c)
        others = x.gather(1, at).reshape(b, n, K, c)
        own = x[:, :, None].expand(-1, -1, K, -1)
        weight = torch.cat(
            [self.data[f"{name}own.weight"], self.data[f"{name}other.weight"]], dim=1
        )
        edges = F.linear(torch.cat([own, others - own], dim=-1), weight)
        edges = self.norm(edges.reshape(b * n * K, -1), f"{name}norm")
        return F.leaky_relu(edges, 0.2).reshape(b, n, K, -1).max(dim=2)[0]

    def dgcnn(self, x: Any) -> Any:
        found = []
        for i in range(4):
            x = self.edge_conv(x, f"layers.{i}.")
            found.append(x)
        local = F.linear(torch.cat(found, dim=-1), self.data["mix.weight"])
        y = F.leaky_relu(self.norm(local.flatten(0, 1), "mix_norm"), 0.2).reshape(local.shape)
        cloud = F.linear(
            torch.cat([y.max(dim=1)[0], y.mean(dim=1)], dim=-1), self.data["hidden.weight"]
        )
        return F.linear(
            F.leaky_relu(self.norm(cloud, "hidden_norm"), 0.2),
            self.data["head.weight"],
            self.data["head.bias"],
        )

    def shared(self, x: Any, name: str, layers: int) -> Any:
        shape = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1])
        for i in range(layers):
            x = F.relu(
                self.norm(F.linear(x, self.data[f"{name}.layers.{i}.weight"]), f"{name}.norms.{i}")
            )
        return x.reshape(*shape, -1)

    def farthest(self, p: Any, count: int) -> Any:
        b = len(p)
        found = torch.zeros(b, count, dtype=torch.int64)
        least = ((p - p[:, :1]) ** 2).sum(-1)
        for i in range(1, count):
            found[:, i] = least.argmax(1)
            center = p[torch.arange(b), found[:, i]][:, None]
            least = torch.minimum(least, ((p - center) ** 2).sum(-1))
        return found

    def pointnet2(self, p: Any) -> Any:
        x, batch = None, torch.arange(len(p))[:, None]
        for i, (share, radius) in enumerate(((0.5, 0.2), (0.25, 0.4))):
            centers = p[batch, self.farthest(p, round(p.shape[1] * share))]
            distance = torch.cdist(centers, p)
            near, at = distance.topk(32, largest=False)
            at = torch.where(near <= radius, at, at[:, :, :1])
            rows = batch[:, :, None]
            inputs = (p[rows, at] - centers[:, :, None]) / radius
            if x is not None:
                inputs = torch.cat([x[rows, at], inputs], dim=-1)
            x = self.shared(inputs, f"levels.{i}.mlp", 3).max(dim=2)[0]
            p = centers
        cloud = self.shared(torch.cat([x, p], dim=-1), "whole", 2).max(dim=1)[0]
        y = F.linear(cloud, self.data["hidden.weight"], self.data["hidden.bias"])
        return F.linear(
            F.relu(self.norm(y, "hidden_norm")), self.data["head.weight"], self.data["head.bias"]
        )
