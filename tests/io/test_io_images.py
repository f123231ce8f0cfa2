"""Photos: which are usable, what EXIF tells, and their pixels."""

import os

import numpy as np
import pytest
from PIL import Image

from proba.errors import InputError
from proba.io import images
from proba.io.images import Pixels, find_photos, load_pixels, read_frame, tells_focal

RANDOM = np.random.default_rng(0)
ORIENTATION, MAKE, MODEL, EXIF_IFD = 0x0112, 0x010F, 0x0110, 0x8769
FOCAL_MM, FILM_MM, PLANE_X, PLANE_UNIT = 0x920A, 0xA405, 0xA20E, 0xA210
TAKEN_WIDTH, TAKEN_HEIGHT = 0xA002, 0xA003


def picture(height=48, width=64, channels=3) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "a.png", picture())
    save(tmp_path / "b.png", picture())
    return tmp_path


def found(folder, **options) -> dict:
    return {photo.info.name: photo for photo in find_photos(folder, **options)}


def test_finds_all_formats_sorted_with_subfolders_and_ignores_the_rest(tmp_path):
    for name in ("z.jpg", "sub/a.JPG", "b.tif", "c.webp", "d.png"):
        save(tmp_path / name, picture())
    (tmp_path / "notes.txt").write_text("not a photo")
    save(tmp_path / ".thumbs" / "x.png", picture())
    assert list(found(tmp_path)) == ["b.tif", "c.webp", "d.png", "sub/a.JPG", "z.jpg"]


@pytest.mark.filterwarnings("ignore:left out")
def test_folders_without_two_photos_are_refused_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    save(tmp_path / "one" / "a.png", picture())
    save(tmp_path / "tiny" / "a.png", picture(1, 1))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("hello")
    for name, message in (
        ("empty", "it is empty"),
        ("one", "has 1 usable image;"),
        ("tiny", "has 0 usable images"),
        ("text", "none of its 1 files is an image"),
        ("none", "There is no folder"),
        ("one/a.png", "is a file"),
    ):
        with pytest.raises(InputError, match=message) as error:
            find_photos(tmp_path / name)
        assert "\n" not in str(error.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(folder):
    folder.chmod(0)
    with pytest.raises(InputError, match="permissions"):
        find_photos(folder)
    folder.chmod(0o700)


def test_damaged_tiny_empty_and_double_files_are_named_and_left_out(folder):
    save(folder / "whole.jpg", picture(200, 300))
    content = (folder / "whole.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(content[: len(content) // 2])
    (folder / "text.jpg").write_text("not a photo")
    (folder / "empty.png").touch()
    save(folder / "dot.png", picture(1, 1))
    (folder / "copy.jpg").write_bytes(content)
    with pytest.warns(UserWarning) as caught:
        names = list(found(folder))
    assert names == ["a.png", "b.png", "copy.jpg"]
    texts = [str(w.message) for w in caught]
    for name in ("cut.jpg", "text.jpg", "empty.png", "dot.png", "whole.jpg"):
        assert any(name in text and "left out" in text for text in texts)
    assert any("whole.jpg" in text and "copy of copy.jpg" in text for text in texts)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_orientation_is_applied_to_size_and_pixels(folder, orientation):
    upright = picture(40, 60)
    turns = {3: 2, 6: 1, 8: 3}[orientation]  # quarter turns counter-clockwise that the camera was held at
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    save(folder / "turned.png", np.rot90(upright, turns), exif=exif)
    photo = found(folder)["turned.png"]
    assert (photo.info.width, photo.info.height) == (60, 40)
    np.testing.assert_array_equal(load_pixels(photo).rgb, upright)


def exif_of(tags: dict, details: dict) -> Image.Exif:
    exif = Image.Exif()
    exif.update(tags)
    exif.get_ifd(EXIF_IFD).update(details)
    return exif


def test_exif_gives_camera_and_focal(folder):
    camera = {MAKE: "Maker", MODEL: "One"}
    save(folder / "film.jpg", picture(60, 80), exif=exif_of(camera, {FILM_MM: 50, FOCAL_MM: 8.0}))
    plane = {FOCAL_MM: 10.0, PLANE_X: 100.0, PLANE_UNIT: 3}  # 100 pixels a centimetre
    save(folder / "plane.jpg", picture(60, 80), exif=exif_of(camera, plane))
    save(folder / "zero.jpg", picture(60, 80), exif=exif_of(camera, {FILM_MM: 0, FOCAL_MM: 0.0}))
    photos = found(folder)
    assert photos["film.jpg"].info.focal_px == pytest.approx(50 / np.hypot(36, 24) * 100)
    assert photos["plane.jpg"].info.focal_px == pytest.approx(100.0)
    assert photos["zero.jpg"].info.focal_px is None
    assert photos["a.png"].info.camera_key == "" and photos["a.png"].info.focal_px is None
    assert "Maker One" in photos["film.jpg"].info.camera_key
    assert photos["film.jpg"].info.camera_key != photos["plane.jpg"].info.camera_key  # another zoom


@pytest.mark.parametrize(
    ("taken", "known"),
    [
        ((80, 60), True),
        ((4000, 3000), True),  # a smaller copy
        ((4033, 3024), True),  # the same, rounded
        ((60, 80), True),  # a program turned the pixels and not the tags
        ((0, 0), True),  # not told
        ((4000, 2250), False),
        ((80, 70), False),
        ((100, 60), False),
    ],
)
def test_a_cropped_photo_has_no_known_focal(folder, taken, known):
    size = {TAKEN_WIDTH: taken[0], TAKEN_HEIGHT: taken[1]}
    plane = {FOCAL_MM: 10.0, PLANE_X: 100.0, PLANE_UNIT: 3}
    camera = {MAKE: "Maker", MODEL: "One"}
    save(folder / "film.jpg", picture(60, 80), exif=exif_of(camera, {FILM_MM: 50, **size}))
    save(folder / "plane.jpg", picture(60, 80), exif=exif_of(camera, plane | size))
    film, plane_photo = (found(folder)[name].info for name in ("film.jpg", "plane.jpg"))
    assert film.camera_key and plane_photo.camera_key
    assert tells_focal(folder) == known
    if known:
        assert film.focal_px == pytest.approx(50 / np.hypot(36, 24) * 100)
        assert plane_photo.focal_px == pytest.approx(100.0 * 80 / (max(taken) or 80))
    else:
        assert film.focal_px is None and plane_photo.focal_px is None


@pytest.mark.parametrize("orientation", range(1, 9))
def test_stored_places_are_found_in_the_shown_photo(folder, orientation):
    stored = np.zeros((40, 50, 3), np.uint8)
    stored[7, 31] = 255
    save(folder / "marked.png", stored, exif=exif_of({ORIENTATION: orientation}, {}))
    frame = read_frame(folder / "marked.png")
    shown = load_pixels(found(folder)["marked.png"]).rgb
    assert frame.shown_size == shown.shape[1::-1]
    (column, row), *_ = np.floor(frame.to_shown(np.array([[31.5, 7.5], [0.5, 0.5]]))).astype(int)
    assert shown[row, column].tolist() == [255, 255, 255]


def test_grey_deep_and_transparent_pictures(folder):
    grey = picture(channels=1)
    save(folder / "grey.png", grey)
    Image.fromarray(grey.astype(np.uint16) * 257).save(folder / "deep.png")
    Image.fromarray(grey).convert("P").save(folder / "palette.png")
    rgba = picture(channels=4)
    rgba[..., 3] = 255
    rgba[:, :20, 3] = 0
    save(folder / "alpha.png", rgba)
    photos = found(folder)
    for name in ("grey.png", "deep.png", "palette.png"):
        np.testing.assert_array_equal(load_pixels(photos[name]).rgb, np.repeat(grey[..., None], 3, axis=2))
    pixels = load_pixels(photos["alpha.png"])
    assert pixels.mask is not None and not pixels.mask[:, :20].any() and pixels.mask[:, 20:].all()


@pytest.mark.parametrize("mask_name", ["a.png", "a.png.png", "a.jpg"])
def test_masks_white_counts_black_is_ignored(folder, mask_name):
    mask = np.zeros((24, 32), np.uint8)  # half the photo's size
    mask[:, 16:] = 255
    save(folder.parent / "masks" / mask_name, mask)
    with pytest.warns(UserWarning, match="1 images have no mask.*b.png"):
        photos = found(folder, masks=folder.parent / "masks")
    pixels = load_pixels(photos["a.png"])
    visible = pixels.visible(np.array([[10.0, 10.0], [50.0, 10.0], [-1.0, 10.0], [50.0, 48.5]]))
    assert visible.tolist() == [False, True, False, False]
    assert photos["a.png"].digest != found(folder)["a.png"].digest


def test_missing_mask_folder(folder):
    with pytest.raises(InputError, match="no masks folder"):
        find_photos(folder, masks=folder / "none")


def test_reduced_pixels_keep_original_coordinates():
    pixels = Pixels(rgb=picture(50, 100), mask=None, width=400, height=200)
    np.testing.assert_allclose(pixels.to_original(np.array([[0.0, 0.0], [99.0, 49.0]])), [[2, 2], [398, 198]])


def test_reduction_bounds_the_longest_side(folder):
    save(folder / "big.png", picture(300, 200))
    pixels = load_pixels(found(folder)["big.png"], max_side_px=150)
    assert pixels.rgb.shape == (150, 100, 3) and (pixels.width, pixels.height) == (200, 300)


@pytest.mark.parametrize("orientation", [1, 6])
def test_huge_jpegs_are_decoded_reduced(tmp_path, monkeypatch, orientation):
    small = np.random.default_rng(0).integers(0, 255, (12, 16, 3)).astype(np.uint8)
    image = Image.fromarray(small).resize((1600, 1200), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    for name in "ab":
        image.save(tmp_path / f"{name}.jpg", quality=95, exif=exif)
        image = image.transpose(Image.Transpose.ROTATE_180)
    photo = found(tmp_path)["a.jpg"]
    whole = load_pixels(photo, max_side_px=200)
    sizes = []
    reduce = images._reduced
    monkeypatch.setattr(images, "_reduced", lambda image, *rest: sizes.append(image.size) or reduce(image, *rest))
    monkeypatch.setattr(images, "HUGE_PX", 10**6)
    quick = load_pixels(photo, max_side_px=200)
    assert max(sizes[0]) == 800  # the smallest that has three times the pixels that are wanted
    assert (quick.width, quick.height) == (whole.width, whole.height) == photo.info.camera[1:]
    assert quick.rgb.shape == whole.rgb.shape
    assert np.abs(quick.rgb.astype(int) - whole.rgb).max() <= 4
