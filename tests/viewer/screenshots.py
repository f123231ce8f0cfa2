"""Pictures for the documentation, see `make screenshots`. Arguments: a result of `proba demo`, a folder to write to."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from browser import open_page
from PIL import Image

from proba.viewer.film import FilmOptions, film
from proba.viewer.page import write_page
from proba.viewer.scene import PieceScene, load_scene
from proba.viewer.server import Viewer

WIDTH, HEIGHT = 1200, 720


def save(png: bytes | Image.Image, path: Path) -> None:
    """As JPEG: the pictures are photos more than drawings."""
    image = Image.open(io.BytesIO(png)) if isinstance(png, bytes) else png
    image.convert("RGB").save(path, quality=85, optimize=True)
    print(f"{path}: {path.stat().st_size // 1000} kB")


def page_pictures(pieces: list[PieceScene], out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        write_page(file, pieces, title="demo")
        with open_page(file.as_uri(), width=WIDTH, height=HEIGHT) as page:
            page.wait_for_selector("body[data-photos]", state="attached")
            x, y, _ = page.evaluate("proba.at(3)")
            page.mouse.click(x, y)
            page.wait_for_timeout(1500)
            save(page.screenshot(), out / "page.jpg")
            page.keyboard.press("Escape")
            page.uncheck("#show-truth")
            page.evaluate("() => { const s = document.getElementById('slider'); s.value = 0.14; s.oninput(); }")
            page.wait_for_timeout(1500)
            save(page.screenshot(), out / "page_history.jpg")


def viewer_picture(pieces: list[PieceScene], out: Path) -> None:
    viewer = Viewer()
    try:
        viewer.show(pieces)
        with open_page(viewer.url, width=WIDTH, height=HEIGHT) as page:
            page.wait_for_selector("text=click a camera")
            page.wait_for_timeout(15_000)
            viewer.select(3)
            page.wait_for_timeout(5_000)
            close = page.locator(".mantine-Notification-closeButton")
            for _ in range(close.count()):
                close.first.click()
            page.wait_for_timeout(1_500)
            save(page.screenshot(), out / "viewer.jpg")
    finally:
        viewer.stop()


def film_pictures(scene: PieceScene, out: Path) -> None:
    options = FilmOptions(width=960, height=540, fps=8)
    frames = list(film(scene, options))
    solve = round(options.seconds * options.fps)
    chosen = [0, round(0.12 * solve), round(0.4 * solve), len(frames) - 1]
    sheet = Image.new("RGB", (1200, 676))
    for k, index in enumerate(chosen):
        sheet.paste(frames[index].resize((599, 337)), (601 * (k % 2), 339 * (k // 2)))
    save(sheet, out / "film.jpg")


def main(result: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    pieces = load_scene(result, gt=result / "gt.json")
    film_pictures(pieces[0], out)
    page_pictures(pieces, out)
    viewer_picture(pieces, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
