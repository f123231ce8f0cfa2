"""Rendered photos: the same geometry as the matches, the same surface in every view, enough to match."""

import numpy as np
import pytest
from PIL import Image

from proba.synthetic import LAYOUTS, Scene, Solids, make_scene
from proba.synthetic import render as render_module
from proba.synthetic.render import render, render_images
from proba.synthetic.texture import fractal, make_materials, noise

WIDTH, HEIGHT = 320, 240


def small_scene(name: str, seed: int = 0) -> Scene:
    return make_scene(name, seed=seed, width=WIDTH, height=HEIGHT)


def colours_at(photo: np.ndarray, pixels: np.ndarray) -> np.ndarray:  # [P, 3]
    """Bilinear, first pixel centre at (0.5, 0.5)."""
    x, y = (pixels - 0.5).T
    x, y = x.clip(0, photo.shape[1] - 1.001), y.clip(0, photo.shape[0] - 1.001)
    i, j = x.astype(int), y.astype(int)
    a, b = (x - i)[:, None], (y - j)[:, None]
    image = photo.astype(float)
    upper = (1 - a) * image[j, i] + a * image[j, i + 1]
    lower = (1 - a) * image[j + 1, i] + a * image[j + 1, i + 1]
    return (1 - b) * upper + b * lower


def corresponding(scene: Scene, one: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel centres of one photo [P, 2] and where the other shows the same point [P, 2], by the scene alone."""
    pixels = scene.grid(WIDTH, HEIGHT)[::7]
    depth, _ = scene.cast(one, pixels)
    pixels, depth = pixels[np.isfinite(depth)], depth[np.isfinite(depth)]
    points = scene.centre(one) + depth[:, None] * scene.rays(one, pixels)
    seen, _ = scene.project(other, points)
    inside = (seen > 4).all(axis=1) & (seen[:, 0] < WIDTH - 4) & (seen[:, 1] < HEIGHT - 4)
    inside &= scene.visible(other, points)
    return pixels[inside], seen[inside]


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_views_show_the_same_surface_at_the_same_place(name):
    scene = small_scene(name)
    one, other = scene.n_images // 2, scene.n_images // 2 + 1
    here, there = corresponding(scene, one, other)
    assert len(here) > 1000
    first, second = colours_at(render(scene, one), here), render(scene, other)
    difference = np.abs(first - colours_at(second, there)).mean(axis=1)
    assert np.median(difference) < 12
    assert (difference < 30).mean() > 0.8
    # Pixel centres: any other place, half a pixel away, agrees less well.
    for shift in ([0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5]):
        assert np.abs(first - colours_at(second, there + shift)).mean() > difference.mean()


@pytest.mark.parametrize("name", LAYOUTS)
def test_photos_have_contrast_and_repeat(name):
    scene = small_scene(name, seed=3)
    photo = render(scene, 1)
    assert photo.shape == (HEIGHT, WIDTH, 3) and photo.dtype == np.uint8
    assert 60 < photo.mean() < 200 and photo.std() > 25
    assert (photo == 0).mean() < 0.02 and (photo == 255).mean() < 0.15
    np.testing.assert_array_equal(photo, render(scene, 1))
    assert np.abs(photo.astype(float) - render(scene, 1, seed=1)).mean() > 10


@pytest.mark.parametrize("name", ["ring", "corridor"])
def test_leaving_out_solids_no_ray_meets_changes_nothing(name, monkeypatch):
    scene = small_scene(name, seed=1)
    photo = render(scene, 4)
    everything = lambda solids, *_: np.arange(len(solids.spheres) + len(solids.boxes) + len(solids.planes))
    monkeypatch.setattr(render_module, "_in_cone", everything)
    monkeypatch.setattr(render_module, "_towards_light", everything)
    np.testing.assert_array_equal(photo, render(scene, 4))


def test_the_sky_is_smooth_where_nothing_is_hit():
    scene = small_scene("object")
    depth = scene.depth_map(0, WIDTH, HEIGHT)
    empty = np.isinf(depth)
    assert 0.02 < empty.mean() < 0.9
    photo = render(scene, 0).astype(float)
    inner = empty[:-1] & empty[1:]
    inner[1:] &= inner[:-1]  # a pixel on a silhouette is partly surface
    inner = inner[:, :-1] & inner[:, 1:]
    step = np.abs(np.diff(photo, axis=0))[:, :-1].max(axis=2)
    assert np.quantile(step[inner], 0.95) <= 2
    assert (photo[empty].mean(axis=0) > 60).all()


def test_other_sizes_keep_the_field_of_view():
    scene = small_scene("room")
    large, small = render(scene, 2, width=2 * WIDTH), render(scene, 2, height=HEIGHT)
    assert large.shape == (2 * HEIGHT, 2 * WIDTH, 3) and small.shape == (HEIGHT, WIDTH, 3)
    halved = large.astype(float).reshape(HEIGHT, 2, WIDTH, 2, 3).mean(axis=(1, 3))
    assert np.abs(halved - small).mean() < 8
    assert np.abs(halved[:, 1:] - small[:, :-1]).mean() > 1.5 * np.abs(halved - small).mean()
    assert render(scene, 2, width=40, height=40).shape == (40, 40, 3)


def test_shadows_fall_away_from_the_light():
    floor = np.array([[0.0, 1.0, 0.0, 1.0]])
    ball = np.array([[0.0, 0.0, 5.0, 0.5]])
    lit, shaded = (
        Scene(
            name="ball",
            solids=Solids(planes=floor, spheres=spheres),
            rotation=np.eye(3)[None],
            translation=np.zeros((1, 3)),
            intrinsics=np.array([[160.0, 160.0, 80.0, 60.0]]),
            width=160,
            height=120,
        )
        for spheres in (np.zeros((0, 4)), ball)
    )
    # The light's way through the ball's centre meets the floor at the centre of the shadow.
    down = render_module.TO_LIGHT / render_module.TO_LIGHT[1]
    centre = ball[0, :3] + down * (1.0 - ball[0, 1])
    (x, y), _ = (value[0] for value in lit.project(0, centre[None]))
    before, after = render(lit, 0).astype(float), render(shaded, 0).astype(float)
    assert after[int(y), int(x)].mean() < 0.8 * before[int(y), int(x)].mean()
    np.testing.assert_array_equal(before[-1, :10], after[-1, :10])  # far from the ball nothing changes


def test_a_solid_keeps_its_look_in_any_list():
    solids = make_scene("room", seed=2).solids
    everything = make_materials(solids)
    few = make_materials(Solids(spheres=solids.spheres[3:5], planes=solids.planes[1:2]))
    index = [3, 4, len(solids.spheres) + len(solids.boxes) + 1]
    for field in ("kind", "panels", "salt", "size", "palette"):
        np.testing.assert_array_equal(getattr(few, field), getattr(everything, field)[index])
    assert len(set(everything.salt)) == len(everything.salt)


def test_noise_is_bounded_smooth_and_does_not_repeat():
    rng = np.random.default_rng(0)
    points = rng.uniform(-500, 500, (4000, 3))
    values = np.array([noise(*p, 5) for p in points])
    assert np.abs(values).max() <= 1 and abs(values.mean()) < 0.03 and values.std() > 0.2
    nearby = np.array([noise(*p, 5) for p in points + 1e-4])
    assert np.abs(values - nearby).max() < 2e-3
    for shift in (64, 256, 1024):
        moved = np.array([noise(x + shift, y, z, 5) for x, y, z in points])
        assert abs(np.corrcoef(values, moved)[0, 1]) < 0.08


def test_detail_below_a_pixel_fades():
    line = np.linspace(0, 0.2, 400)
    fine = np.array([fractal(x, 0.3, 0.7, 0.5, 0.8, 1e-3, 1) for x in line])
    blurred = np.array([fractal(x, 0.3, 0.7, 0.5, 0.8, 0.1, 1) for x in line])
    assert np.abs(np.diff(blurred)).max() < 0.2 * np.abs(np.diff(fine)).max()


def test_files_appear_under_the_names_of_the_images(tmp_path):
    scene = make_scene("facade", n_images=3, width=64, height=48)
    calls = []
    paths = render_images(scene, tmp_path / "images", progress=lambda done, n: calls.append((done, n)))
    assert [p.name for p in paths] == scene.image_names == sorted(p.name for p in (tmp_path / "images").iterdir())
    assert calls == [(1, 3), (2, 3), (3, 3)]
    for k, path in enumerate(paths):
        with Image.open(path) as photo:
            np.testing.assert_array_equal(np.asarray(photo), render(scene, k))


class JpegScene(Scene):
    @property
    def image_names(self) -> list[str]:
        return [f"left/{k}.jpg" for k in range(self.n_images)]


def test_jpeg_names_give_jpeg_files(tmp_path):
    scene = JpegScene(**vars(make_scene("object", n_images=2, width=64, height=48)))
    for k, path in enumerate(render_images(scene, tmp_path)):
        assert path == tmp_path / "left" / f"{k}.jpg"
        with Image.open(path) as photo:
            assert photo.format == "JPEG" and photo.size == (64, 48)
            assert np.abs(np.asarray(photo).astype(float) - render(scene, k)).mean() < 4


@pytest.mark.parametrize("name", ["object", "facade", "corridor"])
def test_sift_finds_and_matches_thousands_of_points(name):
    cv2 = pytest.importorskip("cv2")
    sift = cv2.SIFT_create(enable_precise_upscale=True)  # otherwise its keypoints are a quarter of a pixel off
    scene = make_scene(name, seed=1)
    one = scene.n_images // 2
    found = []
    for k in (one, one + 1):
        grey = cv2.cvtColor(render(scene, k), cv2.COLOR_RGB2GRAY)
        keypoints, descriptors = sift.detectAndCompute(grey, None)
        assert len(keypoints) > 1500
        found.append((np.array([p.pt for p in keypoints]) + 0.5, descriptors))
    (here, described), (there, described_there) = found
    nearest = cv2.BFMatcher().knnMatch(described, described_there, k=2)
    pairs = np.array([(a.queryIdx, a.trainIdx) for a, b in nearest if a.distance < 0.8 * b.distance])
    here, there = here[pairs[:, 0]], there[pairs[:, 1]]
    depth, _ = scene.cast(one, here)
    here, there, depth = here[np.isfinite(depth)], there[np.isfinite(depth)], depth[np.isfinite(depth)]
    seen, _ = scene.project(one + 1, scene.centre(one) + depth[:, None] * scene.rays(one, here))
    error_px = np.linalg.norm(seen - there, axis=1)
    assert (error_px < 2).sum() > 300 and (error_px < 2).mean() > 0.8
    assert np.linalg.norm(np.median((seen - there)[error_px < 2], axis=0)) < 0.03  # pixel centres at + 0.5
