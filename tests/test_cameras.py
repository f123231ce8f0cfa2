"""Which images have one camera, and what is known of it."""

import numpy as np
import pytest

from proba.cameras import CameraOptions, check_known_focals, focal_notes, make_setup
from proba.errors import InputError
from proba.matches import ImageInfo

THREE = [
    ImageInfo(name="a/0.jpg", width=640, height=480, camera_key="x"),
    ImageInfo(name="a/1.jpg", width=640, height=480, camera_key="y"),
    ImageInfo(name="b/2.jpg", width=480, height=640, camera_key="x"),
]


def alike(*focals_px: float | None, key: str = "") -> list[ImageInfo]:
    return [
        ImageInfo(name=f"{k}.jpg", width=640, height=480, camera_key=key, focal_px=focal)
        for k, focal in enumerate(focals_px)
    ]


def test_sharing_of_intrinsics():
    def groups(share):
        return make_setup(THREE, CameraOptions(share=share)).camera_of_image.tolist()

    assert len(set(groups("camera"))) == 3
    assert len(set(groups("none"))) == 3
    a, b, c = groups("folder")
    assert a == b != c
    a, b, c = groups("all")
    assert a == b != c, "images of different size cannot share a camera"


def test_equal_sizes_mean_nothing_in_a_collection():
    def cameras(*sizes, key=""):
        images = [ImageInfo(name=f"{k}", width=w, height=h, camera_key=key) for k, (w, h) in enumerate(sizes)]
        return make_setup(images).n_cameras

    mixed = (64, 48), (64, 48), (64, 47), (64, 46)
    assert cameras(*mixed) == 4
    assert cameras(*mixed, key="exif") == 3
    assert cameras((64, 48), (64, 48), (64, 48), (64, 46)) == 2
    assert cameras((64, 48), (64, 48), (48, 64)) == 2, "a photo on end is no sign of another camera"


def test_known_focals_are_ignored_where_they_are_free():
    setup = make_setup(alike(900, None, 1100), CameraOptions(focal="free"))
    assert setup.n_cameras == 1
    assert not setup.known.any() and not setup.held.any()


@pytest.mark.parametrize("focal", ["init", "fixed"])
def test_images_of_which_another_focal_is_told_have_another_camera(focal):
    setup = make_setup(alike(900, None, 1100, 900, None, 900), CameraOptions(focal=focal))
    assert setup.camera_of_image.tolist() == [0, 1, 2, 0, 1, 0]
    np.testing.assert_allclose(setup.known_focal_px, [900, np.nan, 1100])
    np.testing.assert_array_equal(setup.held, [focal == "fixed", False, focal == "fixed"])
    assert setup.focal_sigma == (0.0 if focal == "fixed" else 0.1)


def test_a_shared_camera_is_known_by_any_of_its_images():
    setup = make_setup(alike(900, None, 1600), CameraOptions(focal="fixed", share="all"))
    np.testing.assert_allclose(setup.known_focal_px, [1200])


def test_only_cameras_without_a_name_are_alike_by_size_alone():
    assert make_setup(alike(None, None)).by_size_alone.all()
    assert not make_setup(alike(None, None, key="x")).by_size_alone.any()
    assert not make_setup(alike(None, None), CameraOptions(share="all")).by_size_alone.any()


def test_a_prior_needs_a_known_focal():
    check_known_focals(alike(None, None), CameraOptions())
    check_known_focals(alike(800, 900), CameraOptions(focal="fixed"))
    with pytest.raises(InputError, match="--focal init needs a known focal length"):
        check_known_focals(alike(None, None), CameraOptions(focal="init"))
    with pytest.raises(ValueError, match="positive"):
        CameraOptions(focal_prior_sigma=0.0)


def test_unknown_focals_are_named():
    images, options = alike(900, None, None), CameraOptions(focal="fixed")
    with pytest.warns(UserWarning, match=r"focal length of 1\.jpg, 2\.jpg is not known"):
        check_known_focals(images, options)
    (note,) = focal_notes(images, make_setup(images, options), options)
    assert note.kind == "focal not known" and note.images == ("1.jpg", "2.jpg")
    shared = CameraOptions(focal="fixed", share="all")
    check_known_focals(images, shared)
    assert focal_notes(images, make_setup(images, shared), shared) == []
    assert focal_notes(images, make_setup(images), CameraOptions()) == []
