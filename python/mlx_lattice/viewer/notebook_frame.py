"""The page inside a notebook: one element that holds the whole page.

Nothing is fetched and nothing is written.
"""

from __future__ import annotations

import html
from typing import Any

from ..core._checks import integer, told
from .html_page import page
from .scene import Panels


class Frame:
    """A page that a notebook shows in place. `text` is the page, `height` the height in pixels."""

    def __init__(self, text: str, height: int = 480) -> None:
        if not isinstance(text, str):
            raise TypeError(f"[Frame] text must be the text of a page, found {told(text)}")
        self.text, self.height = text, integer(self, "height", height)

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.text)}" sandbox="allow-scripts" loading="lazy" '
            f'style="width:100%;height:{self.height}px;'
            'border:1px solid #8884;border-radius:6px">'
            "</iframe>"
        )

    def __repr__(self) -> str:
        return f"Frame({len(self.text):,} characters; a notebook shows it)"


def show(panels: Panels, *, height: int = 480, limit: int = 200_000, **options: Any) -> Frame:
    """Panels as a page inside a notebook.

    Args:
        panels: As for `page`: clouds, sparse tensors, arrays (N, 3) or panels.
        height: The height in pixels.
        limit: The number of points of all clouds together. A notebook stores what it shows.
        **options: Other options of `page`.

    Returns:
        A `Frame`; a notebook shows the frame when it is the last expression of a cell.

    Raises:
        ValueError: As `page`.
    """
    return Frame(page(panels, limit=limit, **options), height)
