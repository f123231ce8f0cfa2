"""Photos, masks, weights and what earlier runs left: damaged ones are left out, made again, or refused."""

import contextlib
import json
import os

import numpy as np
import pytest
import torch
from fuzzing import counts, fuzz
from mutations import damaged_bytes
from PIL import ExifTags, Image

from proba.errors import InputError
from proba.io.colours import photo_colours
from proba.io.gps import read_gps
from proba.io.images import Photo, find_photos, load_pixels
from proba.matches import ImageInfo, PairMatches
from proba.matching.store import MatchStore, Record
from proba.matching.weight_files import fit_weights, read_weights
from proba.reconstruction import Camera

PILLOW_BYTES = 3 << 30
"""Pillow reserves, but does not touch, what a chunk of a PNG promises: at most two gigabytes."""


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (40, 48, 3), dtype=np.uint8))


@counts
@pytest.mark.parametrize("form", ["jpg", "png", "tif", "webp"])
def test_damaged_photos_are_left_out(tmp_path, form, count):
    for k in range(3):
        picture(k).save(tmp_path / f"{k}.{form}")
    content = (tmp_path / f"2.{form}").read_bytes()

    def damaged_photo(rng):
        (tmp_path / f"2.{form}").write_bytes(damaged_bytes(content, rng))
        for photo in find_photos(tmp_path):
            pixels = load_pixels(photo)
            assert (pixels.width, pixels.height) == (photo.info.width, photo.info.height)

    fuzz(count // 3, damaged_photo, memory=PILLOW_BYTES)


@counts
def test_photos_that_go_bad_after_matching_cost_only_their_colours(tmp_path, count):
    camera = Camera(model="SIMPLE_PINHOLE", width=48, height=40, params=np.array([50.0, 24.0, 20.0]))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    picture(0).save(tmp_path / "whole.jpg", exif=exif)
    content = (tmp_path / "whole.jpg").read_bytes()

    def late_photo(rng):
        (tmp_path / "a.jpg").write_bytes(damaged_bytes(content, rng))
        with contextlib.suppress(OSError):
            photo_colours(tmp_path / "a.jpg", camera, np.full((3, 2), 10.0))
        read_gps(tmp_path / "a.jpg")

    fuzz(count // 2, late_photo)


@pytest.mark.skipif(os.name != "posix", reason="names are text elsewhere")
def test_names_that_are_no_text_are_left_out_before_matching(tmp_path):
    for k in range(2):
        picture(k).save(tmp_path / f"{k}.png")
    picture(2).save(tmp_path / "2.png")
    try:
        os.rename(tmp_path / "2.png", os.fsencode(tmp_path) + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this disk takes no such names")
    picture(3).save(tmp_path / "two\nlines.png")
    with pytest.warns(UserWarning) as caught:
        photos = find_photos(tmp_path)
    assert [photo.info.name for photo in photos] == ["0.png", "1.png"]
    texts = sorted(str(warning.message) for warning in caught)
    assert "no UTF-8" in texts[0] and "control character" in texts[1]


def a_store(path, resume=False):
    infos = [ImageInfo(name=f"{k}.jpg", width=640, height=480) for k in range(4)]
    photos = [Photo(info=info, path=path, digest=f"{k:032x}") for k, info in enumerate(infos)]
    return MatchStore(path, photos, resume=resume)


def record(i: int, j: int) -> Record:
    points = np.random.default_rng(i * 10 + j).uniform(0, 400, (5, 5)).astype(np.float32)
    return Record(f"{i:032x}", f"{j:032x}", "s", "general", PairMatches(points[:, :2], points[:, 2:4], points[:, 4]))


@counts
def test_damaged_journals_lose_only_what_follows_the_damage(tmp_path, count):
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    with a_store(tmp_path / "m.h5") as store:
        for i, j in pairs:
            store.append(record(i, j))
    content = (tmp_path / "m.h5.partial").read_bytes()

    def damaged_journal(rng):
        (tmp_path / "m.h5.partial").write_bytes(damaged_bytes(content, rng))
        with a_store(tmp_path / "m.h5", resume=True) as store:
            for i, j in pairs:
                one, other = store.photos[i], store.photos[j]
                if store.has(one, other, "s"):
                    kept = store.read(one, other, "s").matches
                    for mine, true in zip(kept, record(i, j).matches, strict=True):
                        np.testing.assert_array_equal(mine, true)
                else:
                    store.append(record(i, j))
            assert store.finish(["s"], {}) == len(pairs)
        (tmp_path / "m.h5").unlink()

    fuzz(count, damaged_journal)


@counts
def test_damaged_finished_matches_are_not_resumed(tmp_path, count):
    with a_store(tmp_path / "m.h5") as store:
        store.append(record(0, 1))
        store.append(record(1, 2))
        store.finish(["s"], {})
    content = (tmp_path / "m.h5").read_bytes()

    def damaged_finished(rng):
        (tmp_path / "m.h5").write_bytes(damaged_bytes(content, rng))
        (tmp_path / "m.h5.partial").unlink(missing_ok=True)
        with a_store(tmp_path / "m.h5", resume=True):
            pass

    fuzz(count // 2, damaged_finished)


@counts
def test_weights_of_another_kind(tmp_path, count):
    model = torch.nn.Linear(3, 2)
    torch.save(model.state_dict(), tmp_path / "whole.pt")
    content = (tmp_path / "whole.pt").read_bytes()
    others = [[1, 2], {"a": 1}, {1: torch.zeros(2)}, {"weight": "text"}, torch.zeros(3), {"weight": torch.zeros(7)}, 5]

    def other_weights(rng):
        path = tmp_path / "w.pt"
        kind = rng.integers(4)
        if kind == 0:
            torch.save(others[rng.integers(len(others))], path)
        elif kind == 1:
            path.write_bytes(json.dumps(["no", "weights"]).encode())
        else:
            path.write_bytes(damaged_bytes(content, rng))
        fit_weights(torch.nn.Linear(3, 2), read_weights(path), matcher="xfeat")

    fuzz(count // 2, other_weights)


def test_weights_that_are_missing(tmp_path):
    with pytest.raises(InputError, match="--weights"):
        read_weights(tmp_path / "none.pt")
