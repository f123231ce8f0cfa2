"""Draws docs/images/result.jpg: the dense points and the cameras of a result, without a display.

proba run strecha_fountain_p11/images --out fountain
proba export fountain --to ply --density 2 --out fountain-dense
python docs/figures/result.py fountain fountain-dense/points.ply docs/images/result.jpg
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from proba.viewer import palette
from proba.viewer.drawing import frustum_lines, frustums
from proba.viewer.raster import Canvas, Eye
from proba.viewer.scene import load_scene

WIDTH, HEIGHT = 1200, 600
TURN_DEG, NEARER = -12.0, 0.66
"""From the viewer's first view to this one."""


def main(result: Path, cloud: Path, out: Path) -> None:
    scene = load_scene(result, cloud=cloud)[0]
    framing = scene.framing
    eye = Eye(framing.eye, framing.focus, framing.up).turned(np.radians(TURN_DEG)).nearer(NEARER)
    canvas = Canvas(WIDTH, HEIGHT, eye)
    canvas.points(scene.xyz, scene.colours("photo"), 0.9)
    shape = frustums(scene.rec.world_from_cam, scene.tan, scene.aspect, 1.4 * framing.frustum)  # [N, 5, 3]
    begin, end = frustum_lines(shape)
    colours = np.repeat(palette.of_images(len(shape)), 8, axis=0)
    canvas.lines(begin.reshape(-1, 3), end.reshape(-1, 3), colours, 2.0)
    canvas.finish().save(out, quality=85, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:]))
