"""Matches of your own matcher in, cameras and points out: no photos, no intrinsics, no initial poses.

python examples/from_your_own_matches.py RESULT
"""

import itertools
import sys

import numpy as np

import proba

WIDTH, HEIGHT, FOCAL = 640, 480, 600.0


def your_matcher(seed: int = 0) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """Stands for your matcher: pixels [M, 2] in image i and in image j, for every pair (i, j) that it could match.

    Here seven cameras on an arc see the same 600 points with 0.5 px noise, and one match in ten is wrong.
    """
    rng = np.random.default_rng(seed)
    points = rng.uniform([-1.5, -1, -1], [1.5, 1, 1], (600, 3))
    seen = []
    for angle in np.radians(np.linspace(-30, 30, 7)):
        rotation = np.array([[np.cos(angle), 0, -np.sin(angle)], [0, 1, 0], [np.sin(angle), 0, np.cos(angle)]])
        x, y, z = (points @ rotation.T + [0, 0, 4]).T
        pixels = np.stack([FOCAL * x / z + WIDTH / 2, FOCAL * y / z + HEIGHT / 2], axis=1)
        seen.append(pixels + rng.normal(0, 0.5, pixels.shape))
    pairs = {}
    for i, j in itertools.combinations(range(len(seen)), 2):
        inside = [((xy > 0) & (xy < [WIDTH, HEIGHT])).all(axis=1) for xy in (seen[i], seen[j])]
        both = np.flatnonzero(inside[0] & inside[1])
        wrong = rng.random(len(both)) < 0.1
        in_j = np.where(wrong[:, None], rng.uniform(0, [WIDTH, HEIGHT], (len(both), 2)), seen[j][both])
        pairs[i, j] = seen[i][both], in_j
    return pairs


def main(result: str) -> None:
    # Original pixels, the centre of the first pixel at (0.5, 0.5). If your matcher puts it at (0, 0): add 0.5.
    matches = proba.Matches([proba.ImageInfo(name=f"{k}.jpg", width=WIDTH, height=HEIGHT) for k in range(7)])
    for (i, j), (points_i, points_j) in your_matcher().items():
        matches.add(i, j, points_i, points_j)
    rec = proba.solve(matches, out=result).best
    print(f"focal {rec.cameras[0].focal_px[0]:.1f} +- {rec.cameras[0].focal_std_px:.1f} px, true {FOCAL:.1f} px")
    print(f"{len(rec)} cameras, {len(rec.points.xyz)} points, median error {np.median(rec.points.error_px):.2f} px")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
