"""Videos with depth: TUM RGB-D and 7-Scenes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from proba.io.datasets.layout import Layout, inverted, sizes_px
from proba.io.ground_truth import GroundTruth
from proba.io.names import check_name

MAX_GAP_S = 0.02
"""A depth image belongs to a photo within this time, as in the dataset's own associate.py."""
TUM_LENSES = {  # fx, fy, cx, cy; k1, k2, p1, p2, k3: the calibrations that the site gives for the three Kinects
    "freiburg1": ((517.3, 516.5, 318.6, 255.3), (0.2624, -0.9531, -0.0054, 0.0026, 1.1633)),
    "freiburg2": ((520.9, 521.0, 325.1, 249.7), (0.2312, -0.7849, -0.0033, -0.0001, 0.9172)),
    "freiburg3": ((535.4, 539.2, 320.1, 247.6), (0.0, 0.0, 0.0, 0.0, 0.0)),
}
SEVEN_SCENES_FOCAL_PX = 585.0
"""Of the depth camera, whose poses these are; the colour camera was never calibrated."""


def _listed(file: Path) -> tuple[np.ndarray, list[str]]:  # [N] seconds
    """Times and names of rgb.txt or depth.txt."""
    rows = [line.split() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return np.array([float(row[0]) for row in rows]), [check_name(row[1]) for row in rows]


def _read_tum(folder: Path) -> GroundTruth:
    """Photos between the first and the last pose, which is interpolated to their time."""
    times_s, names = _listed(folder / "rgb.txt")
    track = np.loadtxt(folder / "groundtruth.txt", ndmin=2)  # [M, 8]: time, place, quaternion xyzw
    inside = (times_s >= track[0, 0]) & (times_s <= track[-1, 0])
    times_s, names = times_s[inside], [name for name, kept in zip(names, inside, strict=True) if kept]
    if not names:
        raise ValueError("no photo was taken while the motion was recorded")
    pose = np.tile(np.eye(4), (len(names), 1, 1))
    pose[:, :3, :3] = Slerp(track[:, 0], Rotation.from_quat(track[:, 4:8]))(times_s).as_matrix()
    pose[:, :3, 3] = np.stack([np.interp(times_s, track[:, 0], track[:, 1 + k]) for k in range(3)], axis=1)
    lens = next((TUM_LENSES[name] for name in TUM_LENSES if name in folder.name), TUM_LENSES["freiburg1"])
    width, height = sizes_px([folder / name for name in names])
    return GroundTruth(
        names=[Path(name).name for name in names],
        cam_from_world=inverted(pose),
        intrinsics=np.tile(np.add(lens[0], (0, 0, 0.5, 0.5)), (len(names), 1)),  # published: first centre at 0
        width=width,
        height=height,
        metres_per_unit=1.0,
        distortion=np.tile(lens[1], (len(names), 1)) if any(lens[1]) else None,
        depth_paths=_nearest_depth(folder, times_s),
        depth_units_per_count=1 / 5000,
    )


def _nearest_depth(folder: Path, times_s: np.ndarray) -> list[Path | None] | None:
    """The depth image that was taken nearest to each photo."""
    if not (folder / "depth.txt").is_file():
        return None
    depth_s, names = _listed(folder / "depth.txt")
    gap = np.abs(times_s[:, None] - depth_s[None])  # [N, D]
    nearest = gap.argmin(axis=1)
    return [folder / names[d] if gap[n, d] <= MAX_GAP_S else None for n, d in enumerate(nearest)]


def _read_seven_scenes(folder: Path) -> GroundTruth:
    photos = sorted(folder.glob("frame-*.color.*"))
    width, height = sizes_px(photos)
    stems = [path.name.split(".")[0] for path in photos]
    depth = [folder / f"{stem}.depth.png" for stem in stems]
    focal_px = np.full(len(photos), SEVEN_SCENES_FOCAL_PX)
    return GroundTruth(
        names=[path.name for path in photos],
        cam_from_world=inverted(np.array([np.loadtxt(folder / f"{stem}.pose.txt") for stem in stems])),
        intrinsics=np.stack([focal_px, focal_px, width / 2, height / 2], axis=1),
        width=width,
        height=height,
        metres_per_unit=1.0,
        depth_paths=[path if path.is_file() else None for path in depth] if any(p.is_file() for p in depth) else None,
        depth_units_per_count=0.001,
    )


TUM = Layout(
    name="tum",
    title="TUM RGB-D",
    source="https://cvg.cit.tum.de/data/datasets/rgbd-dataset/download",
    licence="CC BY 4.0",
    tree="""rgbd_dataset_freiburg1_xyz/rgb/1305031102.175304.png ...
rgbd_dataset_freiburg1_xyz/rgb.txt, groundtruth.txt
rgbd_dataset_freiburg1_xyz/depth/ ..., depth.txt     (optional)""",
    recognises=lambda folder: (folder / "groundtruth.txt").is_file() and (folder / "rgb.txt").is_file(),
    photos=lambda folder: folder / "rgb",
    read=_read_tum,
)
SEVEN_SCENES = Layout(
    name="7scenes",
    title="7-Scenes",
    source="https://www.microsoft.com/en-us/research/project/rgb-d-dataset-7-scenes/",
    licence="Microsoft Research licence, non-commercial",
    tree="""chess/seq-01/frame-000000.color.png ...
chess/seq-01/frame-000000.pose.txt ...
chess/seq-01/frame-000000.depth.png ...              (optional)""",
    recognises=lambda folder: any(folder.glob("frame-*.color.*")) and any(folder.glob("frame-*.pose.txt")),
    photos=lambda folder: folder,
    read=_read_seven_scenes,
    mixed=True,
    scene_name=lambda folder: f"{folder.parent.name}_{folder.name}",
)
