"""Checks a built site: check_site.py <folder>.

No page asks another host for anything, and every local link exists. Every name of the API reference
has its example, as code.
"""

import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?([^"'\s>]+)|<link\b[^>]*>""",
    re.I,
)
LINK = re.compile(r"""<a\b[^>]*\bhref=["']?([^"'\s>]+)""", re.I)


def problems(site):
    """What is wrong, one line each."""
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # a server shows it, with addresses from its root
            continue
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(site)
        for match in FETCHED.finditer(text):
            address = match[1]
            if (
                address is None
            ):  # <link>: a style sheet, an icon; a canonical address fetches nothing
                tag = match[0]
                if 'rel="canonical"' in tag or "rel=canonical" in tag:
                    continue
                found = re.search(r"""href=["']?([^"'\s>]+)""", tag)
                address = found[1] if found else ""
            if re.match(r"(https?:)?//", address):
                yield f"{name}: fetches {address}"
        for match in LINK.finditer(text):
            address = unescape(match[1]).split("#")[0].split("?")[0]
            if not address or re.match(r"[a-z]+:|//", address):
                continue
            if not (page.parent / unquote(address)).exists():
                yield f"{name}: link to {address}, which does not exist"
    for page in sorted(site.glob("api/*.html")):
        _, *names = page.read_text(encoding="utf-8").split('class="doc doc-heading">')
        for part in names:
            if "&gt;&gt;&gt;" not in part:
                shown = re.sub(r"<[^>]*>", " ", part).split()
                yield f"{page.relative_to(site)}: {shown[0]} has no example"
    for sheet in sorted(site.rglob("*.css")):
        for address in re.findall(r"url\(['\"]?(https?://[^)'\"]+)", sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site)}: fetches {address}"


def main(folder):
    found = list(problems(Path(folder)))
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
