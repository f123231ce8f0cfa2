"""Cameras that do not move against each other: where a frame of images is, and where each camera sits on its rig."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation


@dataclass(frozen=True, eq=False)
class Rig:
    """N images of F frames, taken by S sensors. An image of no rig is a frame of its own, taken by a sensor that is its
    frame: the identity."""

    frame_of_image: np.ndarray  # [N] int, every frame has an image
    sensor_of_image: np.ndarray  # [N] int
    sensor_from_rig: np.ndarray  # [S, 4, 4] float64, in the unit of the world
    free: np.ndarray  # [S] bool, what is estimated; the others are held
    metric: bool = False
    """Whether a known distance between sensors fixes the unit of the world."""
    expected: np.ndarray | None = None  # [S, 4, 4], what was known beforehand of sensors with a prior; None: nothing
    precision: np.ndarray | None = None  # [S, 6], 1/sigma^2 of rotation (rad, sensor axes) and centre (rig axes)

    @property
    def n_frames(self) -> int:
        return int(self.frame_of_image.max()) + 1

    @property
    def n_sensors(self) -> int:
        return len(self.sensor_from_rig)

    @property
    def arms(self) -> np.ndarray:  # [S, 3]
        """Centres of the sensors in the frame of their rig."""
        return centres_of(self.sensor_from_rig)

    def frames(self, cam_from_world: np.ndarray) -> np.ndarray:  # [F, 4, 4]
        """rig_from_world of each frame, from the first of its images [N, 4, 4]."""
        first = np.unique(self.frame_of_image, return_index=True)[1]  # [F]
        return inverse(self.sensor_from_rig[self.sensor_of_image[first]]) @ cam_from_world[first]

    def images(self, rig_from_world: np.ndarray) -> np.ndarray:  # [N, 4, 4]
        """cam_from_world of each image, from the poses of the frames [F, 4, 4]."""
        return self.sensor_from_rig[self.sensor_of_image] @ rig_from_world[self.frame_of_image]

    def scaled(self, scale: float) -> Rig:
        """The same rig in another unit; one that fixes the unit keeps it."""
        if self.metric:
            return self
        sensors = self.sensor_from_rig.copy()
        sensors[:, :3, 3] *= scale
        return replace(self, sensor_from_rig=sensors)

    def of(self, chosen: np.ndarray) -> Rig:
        """The rig of the images `chosen` [M] alone; all sensors stay."""
        frame = np.unique(self.frame_of_image[chosen], return_inverse=True)[1]
        return replace(self, frame_of_image=frame.reshape(-1), sensor_of_image=self.sensor_of_image[chosen])

    def moved(self, step: np.ndarray) -> Rig:
        """The rig with its free sensors moved by `step` [S, 6]: turns about their axes, shifts along the rig's."""
        sensors = self.sensor_from_rig.copy()
        sensors[self.free] = stepped(sensors[self.free], step[self.free])
        return replace(self, sensor_from_rig=sensors)

    def residual(self) -> np.ndarray:  # [S, 6]
        """By how much the sensors are off what was known: a step of this size the other way would bring them back."""
        if self.expected is None:
            return np.zeros((self.n_sensors, 6))
        turn = self.sensor_from_rig[:, :3, :3] @ self.expected[:, :3, :3].transpose(0, 2, 1)
        apart = self.arms - centres_of(self.expected)
        return np.concatenate([Rotation.from_matrix(turn).as_rotvec(), apart], axis=1)


def centres_of(poses: np.ndarray) -> np.ndarray:  # [..., 3]
    """Where the cameras of poses [..., 4, 4] stand in the frame that these come from."""
    return -np.einsum("...ji,...j->...i", poses[..., :3, :3], poses[..., :3, 3])


def inverse(poses: np.ndarray) -> np.ndarray:  # [..., 4, 4]
    """The inverse of rigid motions [..., 4, 4]."""
    back = np.zeros_like(poses)
    back[..., :3, :3], back[..., :3, 3] = np.swapaxes(poses[..., :3, :3], -1, -2), centres_of(poses)
    back[..., 3, 3] = 1
    return back


def stepped(poses: np.ndarray, step: np.ndarray) -> np.ndarray:  # [K, 4, 4]
    """Poses [K, 4, 4] after `step` [K, 6]: a small turn about their own axes, then a shift of their centres."""
    rotation = Rotation.from_rotvec(step[:, :3]).as_matrix() @ poses[:, :3, :3]  # [K, 3, 3]
    there = poses.copy()
    there[:, :3, :3] = rotation
    there[:, :3, 3] = -np.einsum("kij,kj->ki", rotation, centres_of(poses) + step[:, 3:])
    return there
