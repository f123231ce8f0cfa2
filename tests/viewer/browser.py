"""A headless browser for the tests and the screenshots."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
NASTY = "<img src=x onerror=alert(1)>.png"  # a file name that tries to be a script
# WebGL without a graphics card; the sandbox does not work for root, as whom containers run.
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
LOAD_MS = 120_000  # drawing in software on a busy machine takes its time


@contextmanager
def open_page(url: str, *, width: int = 1000, height: int = 640) -> Iterator:
    """A page of headless Chromium; anything that fails in it, or asks for another machine, fails here."""
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(LOAD_MS)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
            page.on("request", lambda request: None if _is_local(request.url) else complaints.append(request.url))
            page.goto(url)
            yield page
        finally:
            browser.close()
    assert not complaints, complaints


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))


def pixels(page) -> np.ndarray:  # [h, w, 3] uint8
    """What the page looks like now."""
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))


def drawn(rgb: np.ndarray) -> int:
    """Number of pixels that differ from the most frequent colour."""
    flat = rgb.reshape(-1, 3).astype(int) @ [65536, 256, 1]
    return int(len(flat) - np.unique(flat, return_counts=True)[1].max())


def different(a: np.ndarray, b: np.ndarray) -> float:
    """Share of pixels that differ clearly."""
    return float((np.abs(a.astype(int) - b.astype(int)).max(-1) > 24).mean())
