"""Pages in a browser without a window, for tests that look at what it draws."""

import shutil
import subprocess

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def browse(page, *options, milliseconds=3000):
    """What Chromium says of a page after some time of the page's own clock."""
    drawing = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    clock = f"--virtual-time-budget={milliseconds}"
    command = [CHROMIUM, "--headless", "--no-sandbox", *drawing, clock, *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)
