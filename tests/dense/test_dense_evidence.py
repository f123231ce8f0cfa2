"""No depth where photos show nothing that can be found again: a wall of which one half is bare, in noisy photos."""

import cv2
import numpy as np
import pytest
from PIL import Image

from proba.dense.dense_depth import DenseOptions, dense_depth
from proba.io.dense_folder import DensePiece
from proba.reconstruction import Camera, Points, Reconstruction

WIDTH, HEIGHT, FOCAL_PX, DISTANCE = 240, 180, 220.0, 4.0
ACROSS = np.linspace(-0.6, 0.6, 5)
"""Places of the cameras, which all look straight at the wall, metres."""
PAPER_SIDE, PAPER_METRES = 800, 8.0
MIDDLE_PX = PAPER_SIDE // 2


def wall(shade: float) -> np.ndarray:
    """A wall [800, 800] from above: a pattern on its left half; the other is bare, darker to the right by `shade`."""
    rng = np.random.default_rng(0)
    pattern = sum(
        cv2.resize(rng.normal(0, 30, (side, side)), (PAPER_SIDE, PAPER_SIDE), interpolation=cv2.INTER_CUBIC)
        for side in (50, 100, 200, 400)
    )
    grey = 130 + pattern
    grey[:, MIDDLE_PX:] = 160 - shade * np.linspace(0, 1, PAPER_SIDE - MIDDLE_PX)
    return grey


def photographs(folder, shade: float, noise: float) -> tuple[Reconstruction, list[np.ndarray]]:
    """Photos of the wall in `folder`, their cameras with points on the pattern, and which pixels [h, w] are bare."""
    rng = np.random.default_rng(1)
    paper, bare = wall(shade), []
    column, row = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
    scale = PAPER_SIDE / PAPER_METRES
    xyz = np.stack([*np.meshgrid(np.arange(-2, 0, 0.15), np.arange(-1.2, 1.2, 0.15)), np.full((16, 14), DISTANCE)], -1)
    xyz = xyz.reshape(-1, 3)
    image, point, pixels = [], [], []
    for n, across in enumerate(ACROSS):
        x = (column - WIDTH / 2) * DISTANCE / FOCAL_PX + across
        y = (row - HEIGHT / 2) * DISTANCE / FOCAL_PX
        place = np.stack([x, y]) * scale + MIDDLE_PX - 0.5
        photo = cv2.remap(paper.astype(np.float32), *place.astype(np.float32), cv2.INTER_LINEAR)
        photo = (photo + rng.normal(0, noise, photo.shape)).clip(0, 255).round().astype(np.uint8)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.repeat(photo[..., None], 3, axis=2)).save(folder / f"{n}.png")
        bare.append(x > 0.2)  # a patch away from the edge
        xy = xyz[:, :2] - [across, 0]
        xy = xy * FOCAL_PX / DISTANCE + [WIDTH / 2, HEIGHT / 2]
        seen = np.flatnonzero(((xy > 0) & (xy < [WIDTH, HEIGHT])).all(axis=1))
        image.append(np.full(len(seen), n))
        point.append(seen)
        pixels.append(xy[seen])
    poses = np.tile(np.eye(4), (len(ACROSS), 1, 1))
    poses[:, 0, 3] = -ACROSS
    points = Points(
        xyz=xyz, rgb=np.zeros(xyz.shape, np.uint8), sigma=np.zeros(len(xyz)), error_px=np.zeros(len(xyz)),
        obs_point=np.concatenate(point), obs_image=np.concatenate(image),
        obs_xy=np.concatenate(pixels).astype(np.float32),
    )  # fmt: skip
    camera = Camera(
        model="SIMPLE_PINHOLE", width=WIDTH, height=HEIGHT, params=np.array([FOCAL_PX, WIDTH / 2, HEIGHT / 2])
    )
    reconstruction = Reconstruction(
        image_names=[f"{n}.png" for n in range(len(ACROSS))], cameras=[camera],
        camera_of_image=np.zeros(len(ACROSS), int), cam_from_world=poses, pose_std=np.zeros((len(ACROSS), 6)),
        points=points,
    )  # fmt: skip
    return reconstruction, bare


@pytest.mark.parametrize(("shade", "noise"), [(0.0, 0.0), (0.0, 2.0), (60.0, 2.0)])
def test_a_bare_wall_has_no_depth_and_the_pattern_beside_it_has(tmp_path, shade, noise):
    reconstruction, bare = photographs(tmp_path / "images", shade, noise)
    piece = DensePiece(tmp_path / "result", 0)
    result = dense_depth(reconstruction, tmp_path / "images", piece, DenseOptions(max_side_px=WIDTH))
    on_bare, on_pattern, wrong = [], [], []
    for n, name in enumerate(reconstruction.image_names):
        found = piece.read_depth(name).depth
        assert result.shares[name] + sum(result.missing[name].values()) == pytest.approx(1)
        assert result.missing[name]["bare"] > 0.9 * bare[n].mean()
        on_bare.append((found[bare[n]] > 0).mean())
        x = (np.arange(WIDTH) + 0.5 - WIDTH / 2) * DISTANCE / FOCAL_PX + ACROSS[n]
        pattern = found[:, (x > -1.8) & (x < -0.2)]
        on_pattern.append((pattern > 0).mean())
        wrong.append((np.abs(found[found > 0] / DISTANCE - 1) > 0.02).mean())
    assert max(on_bare) < 0.02, f"bare pixels with a depth: {on_bare}"
    assert np.mean(on_pattern) > 0.8
    assert max(wrong) < 0.02
