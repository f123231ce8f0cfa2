"""A result as the start of Gaussian splatting: cameras and one Gaussian a point, in the tensors that gsplat takes.

proba export RESULT --to colmap-undistorted --out SPLAT
python examples/to_gaussian_splatting.py SPLAT START.npz

Programs that read files need no code: trainers of 3D Gaussian splatting take the folder SPLAT, nerfstudio takes what
`proba export RESULT --to nerfstudio` writes.
"""

import sys

import numpy as np
from scipy.spatial import cKDTree

import proba


def gsplat_inputs(rec: proba.Reconstruction) -> dict[str, np.ndarray]:
    """Arguments of `gsplat.rasterization`. COLMAP's pixels, OpenCV's axes and wxyz quaternions are gsplat's too."""
    if any(camera.model.endswith("RADIAL") for camera in rec.cameras):
        print("the photos are distorted: give what `proba export RESULT --to colmap-undistorted` wrote")
    matrices = np.zeros((len(rec), 3, 3), np.float32)
    for k in range(len(rec)):
        camera = rec.camera(k)
        (fx, fy), (cx, cy) = camera.focal_px, camera.principal_point_px
        matrices[k] = [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]
    xyz = rec.points.xyz.astype(np.float32)  # [P, 3]
    # A Gaussian is as large as the gap to its neighbours, but not smaller than its uncertainty, where that is known.
    gap = cKDTree(xyz).query(xyz, k=4)[0][:, 1:].mean(axis=1)  # [P]
    size = np.fmax(gap, rec.points.sigma)
    return {
        "means": xyz,
        "quats": np.tile(np.float32([1, 0, 0, 0]), (len(xyz), 1)),  # [P, 4]
        "scales": np.repeat(size[:, None], 3, axis=1).astype(np.float32),  # [P, 3]
        "opacities": np.full(len(xyz), 0.1, np.float32),  # [P]
        "colors": rec.points.rgb.astype(np.float32) / 255,  # [P, 3]
        "viewmats": rec.cam_from_world.astype(np.float32),  # [N, 4, 4]
        "Ks": matrices,  # [N, 3, 3]
    }


def main(result: str, out: str) -> None:
    rec = proba.Reconstruction.load(result)
    inputs = gsplat_inputs(rec)
    np.savez_compressed(out, names=np.array(rec.image_names), **inputs)
    print(f"wrote {len(inputs['means'])} Gaussians and {len(inputs['Ks'])} cameras to {out}")
    # On a machine with a GPU:
    #     tensors = {name: torch.from_numpy(array).cuda() for name, array in inputs.items()}
    #     image, alpha, info = gsplat.rasterization(**tensors, width=rec.camera(0).width, height=rec.camera(0).height)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
