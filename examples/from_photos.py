"""Photos in, cameras and points out.

python examples/from_photos.py PHOTOS RESULT
"""

import sys

import numpy as np

import proba


def main(photos: str, result: str) -> None:
    found = proba.reconstruct(photos, out=result)
    print(found.verdict)  # the reasons are in RESULT/report.html

    rec = found.best  # the largest piece; found.reconstructions has all of them
    for camera in rec.cameras:
        print(f"focal {camera.focal_px[0]:.1f} +- {camera.focal_std_px:.1f} px, {camera.model}")
    for name, centre, std in zip(rec.image_names, rec.centres, rec.pose_std, strict=True):
        print(f"{name}: centre {np.round(centre, 3)}, rotation +- {np.degrees(std[:3].max()):.3f} degrees")

    sure = rec.points.sigma < 2 * np.median(rec.points.sigma)
    print(f"{sure.sum()} of {len(sure)} points have less than twice the median standard deviation")

    camera = rec.camera(0)
    middle = np.array([[camera.width / 2, camera.height / 2]])
    depth, sigma = rec.depth(0, middle)[0], rec.depth_sigma(0, middle)[0]
    print(f"{rec.image_names[0]} looks {depth:.3f} +- {sigma:.3f} far in its middle")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
