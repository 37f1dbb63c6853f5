"""Files of the Hugging Face hub: from its cache, or by the optional package huggingface_hub.

The cache is <HF_HUB_CACHE, or HF_HOME/hub, or ~/.cache/huggingface/hub>, with
models--<owner>--<name>/refs/main and .../snapshots/<commit>/<file>.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

WHO = "models.pretrained"
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def hub_file(name: str, file: str) -> Path:
    """The path of a file of a repository such as "facebook/sonata", downloaded if necessary.

    Raises:
        FileNotFoundError: It is neither a file nor in the cache, and cannot be downloaded; the
            message says what to download and where to put it.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise FileNotFoundError(
            f"[{WHO}] {name} does not exist, and is no name of the Hugging Face hub such as "
            "facebook/sonata"
        )
    cached = _cached(name, file)
    if cached is not None:
        return cached
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise FileNotFoundError(
            _advice(name, file, "huggingface_hub is not installed: pip install 'lattice-mlx[hub]'")
        ) from None
    try:
        got = Path(hf_hub_download(name, file))
        if file == "model.safetensors":
            hf_hub_download(name, "config.json")
    except Exception as error:  # the package raises many kinds: network, name, permission
        raise FileNotFoundError(_advice(name, file, f"the hub says: {error}")) from None
    return got


def _cached(name: str, file: str) -> Path | None:
    home = os.environ.get("HF_HOME", os.path.expanduser("~/.cache/huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", os.path.join(home, "hub")))
    folder = cache / ("models--" + name.replace("/", "--"))
    try:
        commit = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    path = folder / "snapshots" / commit / file
    return path if re.fullmatch(r"\w+", commit) and path.is_file() else None


def _advice(name: str, file: str, reason: str) -> str:
    return (
        f"[{WHO}] {file} of {name} is neither here nor in the cache of the hub ({reason}). "
        f"Download https://huggingface.co/{name}/resolve/main/{file} with a browser, put it into "
        f"this folder, and call pretrained({file!r})"
    )
