"""The paper's Section 3.2, one function a term. Points are stored [..., 3, W]: a contiguous row a coordinate.

Constants (log 2 pi) are left out. B worlds, E edges, W matches of an edge, N images, L map cells a side.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Gaussian(NamedTuple):
    """A match lifted into its camera's frame: G(p, Sigma) of the paper."""

    mean: Tensor  # [B, E, 3, W]
    log_depth: Tensor  # [B, E, W]
    log_variance: Tensor  # [B, E, W] isotropic, or [B, E, 3, W] along the principal axes
    quaternion: Tensor | None  # [B, E, 4, W] wxyz, camera from principal axes; None: isotropic


def sample_maps(maps: Tensor, image: Tensor, x: Tensor, y: Tensor, extent: Tensor) -> Tensor:
    """Bilinear sample of the parameter maps at normalised image coordinates.

    Args:
        maps: [B, N, L+1, L+1, C]; the last row and column are padding and get weight zero.
        image: [E] which image's map.
        x, y: [E, W].
        extent: [N, 2].

    Returns:
        [B, E, C, W].
    """
    worlds, images, side, _, channels = maps.shape
    cells = side - 1
    scale = 0.5 * cells / extent[image].to(maps.dtype)  # [E, 2]
    grid_x = (x * scale[:, :1] + 0.5 * (cells - 1)).clamp(0, cells - 1)  # [E, W]
    grid_y = (y * scale[:, 1:] + 0.5 * (cells - 1)).clamp(0, cells - 1)  # [E, W]
    col, row = grid_x.floor(), grid_y.floor()  # [E, W]
    right, below = grid_x - col, grid_y - row  # [E, W]
    first = (image[:, None] * side + row.long()) * side + col.long()  # [E, W]
    flat = maps.permute(0, 4, 1, 2, 3).reshape(worlds * channels, images * side * side)  # [B*C, N*(L+1)^2]

    def corner(offset: int) -> Tensor:
        return flat[:, first + offset]  # [B*C, E, W]

    top = corner(0) * (1 - right) + corner(1) * right  # [B*C, E, W]
    bottom = corner(side) * (1 - right) + corner(side + 1) * right  # [B*C, E, W]
    sampled = top * (1 - below) + bottom * below  # [B*C, E, W]
    return sampled.reshape(worlds, channels, *x.shape).transpose(1, 2)  # [B, E, C, W]


def unproject(x: Tensor, y: Tensor, log_tan: Tensor, channels: Tensor) -> Gaussian:
    """p = pi^-1(u, d, K) and its covariance: x, y [E, W], log_tan [B, E, 2], channels [B, E, C, W]."""
    log_depth = channels[:, :, 0]  # [B, E, W]
    depth = log_depth.exp()  # [B, E, W]
    tan_x, tan_y = log_tan.exp()[..., None].unbind(-2)  # [B, E, 1] each
    mean = torch.stack((x * tan_x * depth, y * tan_y * depth, depth), dim=-2)  # [B, E, 3, W]
    if channels.shape[2] == 2:
        return Gaussian(mean, log_depth, channels[:, :, 1], None)
    assert channels.shape[2] == 8, f"2 (isotropic) or 8 (anisotropic) channels, got {channels.shape[2]}"
    return Gaussian(mean, log_depth, channels[:, :, 1:4], channels[:, :, 4:8])


def covariance(gaussian: Gaussian) -> Tensor:
    """Sigma^3D in the Gaussian's own camera frame, [B, E, W, 3, 3]."""
    if gaussian.quaternion is None:
        eye = torch.eye(3, dtype=gaussian.mean.dtype, device=gaussian.mean.device)
        return gaussian.log_variance.exp()[..., None, None] * eye
    w, x, y, z = torch.nn.functional.normalize(gaussian.quaternion, dim=-2).unbind(-2)  # [B, E, W] each
    rows = (
        torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)), dim=-1),
        torch.stack((2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)), dim=-1),
        torch.stack((2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)), dim=-1),
    )
    camera_from_axes = torch.stack(rows, dim=-2)  # [B, E, W, 3, 3]
    variance = gaussian.log_variance.exp().movedim(-2, -1)  # [B, E, W, 3]
    return (camera_from_axes * variance[..., None, :]) @ camera_from_axes.mT


def rotated(covariance_: Tensor, rotation: Tensor) -> Tensor:
    """R Sigma R^T for Sigma [B, E, W, 3, 3] and R [B, E, 3, 3]."""
    return rotation[:, :, None] @ covariance_ @ rotation[:, :, None].mT


def project_covariance(
    point: Tensor, depth: Tensor, log_tan: Tensor, gaussian: Gaussian, rotation: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Sigma^2D = J Sigma^3D J^T as its entries (xx, xy, yy), each [B, E, W].

    `point` [B, E, 3, W] is the mean in the target frame, `depth` its third row made safe to divide by.
    """
    focal_x, focal_y = (-log_tan).exp()[..., None].unbind(-2)  # [B, E, 1] each
    zero = torch.zeros_like(depth)
    j_xx, j_yy = focal_x / depth, focal_y / depth  # [B, E, W]
    j_xz, j_yz = -j_xx * point[..., 0, :] / depth, -j_yy * point[..., 1, :] / depth  # [B, E, W]
    if gaussian.quaternion is None:  # rotations leave v I alone
        variance = gaussian.log_variance.exp()  # [B, E, W]
        return (
            variance * (j_xx * j_xx + j_xz * j_xz),
            variance * (j_xz * j_yz),
            variance * (j_yy * j_yy + j_yz * j_yz),
        )
    jacobian = torch.stack(
        (torch.stack((j_xx, zero, j_xz), dim=-1), torch.stack((zero, j_yy, j_yz), dim=-1)), dim=-2
    )  # [B, E, W, 2, 3]
    sigma = jacobian @ rotated(covariance(gaussian), rotation) @ jacobian.mT  # [B, E, W, 2, 2]
    return sigma[..., 0, 0], sigma[..., 0, 1], sigma[..., 1, 1]


def reprojection_nll(
    point: Tensor,
    x: Tensor,
    y: Tensor,
    log_tan: Tensor,
    gaussian: Gaussian,
    rotation: Tensor,
    *,
    z_min: float,
) -> Tensor:
    """The 2D term L_2D, [B, E, W]: NLL of the observation (x, y) in the target image; 0 behind the camera.

    Args:
        point: [B, E, 3, W] p_{i->j}, in the target camera's frame.
        x, y: [E, W] observation, normalised image coordinates.
        log_tan: [B, E, 2] of the target camera.
        gaussian: in its own frame.
        rotation: [B, E, 3, 3] target from own frame.
    """
    in_front = point[..., 2, :] >= z_min  # [B, E, W]
    depth = torch.where(in_front, point[..., 2, :], 1.0)  # [B, E, W]
    focal_x, focal_y = (-log_tan).exp()[..., None].unbind(-2)  # [B, E, 1] each
    r_x = focal_x * point[..., 0, :] / depth - x  # [B, E, W]
    r_y = focal_y * point[..., 1, :] / depth - y  # [B, E, W]
    s_xx, s_xy, s_yy = project_covariance(point, depth, log_tan, gaussian, rotation)  # [B, E, W] each
    det = s_xx * s_yy - s_xy * s_xy  # [B, E, W]
    mahalanobis = (s_yy * r_x * r_x - 2 * s_xy * r_x * r_y + s_xx * r_y * r_y) / det  # [B, E, W]
    return torch.where(in_front, 0.5 * mahalanobis + 0.5 * det.log(), 0.0)


def overlap_nll(i_in_j: Tensor, gaussian_i: Gaussian, gaussian_j: Gaussian, rotation: Tensor) -> Tensor:
    """3D term L_3D, [B, E, W]: NLL that two Gaussians are one point. `i_in_j` is p_{i->j} [B, E, 3, W]."""
    difference = i_in_j - gaussian_j.mean  # [B, E, 3, W]
    if gaussian_i.quaternion is None:
        variance = gaussian_i.log_variance.exp() + gaussian_j.log_variance.exp()  # [B, E, W]
        return difference.square().sum(-2) / (2 * variance) + 1.5 * variance.log()
    sigma = rotated(covariance(gaussian_i), rotation) + covariance(gaussian_j)  # [B, E, W, 3, 3]
    factor = torch.linalg.cholesky(sigma)  # [B, E, W, 3, 3]
    white = torch.linalg.solve_triangular(factor, difference.mT[..., None], upper=False)[..., 0]  # [B, E, W, 3]
    return 0.5 * white.square().sum(-1) + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def volume_measure(log_depth_i: Tensor, log_depth_j: Tensor, log_tan_i: Tensor, log_tan_j: Tensor) -> Tensor:
    """What `measure="neutral"` adds to L_3D, [B, E, W]: the density per pixel-sized cube, 3/2 log (f / z)^2.

    z is the geometric mean of both depths [B, E, W], f that of the four focals, log f = -log_tan [B, E, 2].
    """
    log_focals = -(log_tan_i + log_tan_j).sum(-1)[..., None]  # [B, E, 1]
    return 0.75 * log_focals - 1.5 * (log_depth_i + log_depth_j)


def match_nll(
    gaussian_i: Gaussian,
    gaussian_j: Gaussian,
    observed: tuple[Tensor, Tensor, Tensor, Tensor],
    log_tan_i: Tensor,
    log_tan_j: Tensor,
    j_from_i: Tensor,
    *,
    measure: Literal["neutral", "paper"],
    w_3d: float,
    z_min: float,
) -> Tensor:
    """L = L_2D(i->j) + L_2D(j->i) + w_3d L_3D of every match, [B, E, W].

    `observed` is (x_i, y_i, x_j, y_j), each [E, W]; `j_from_i` [B, E, 3, 4] or [B, E, 4, 4] is T_ji.
    """
    x_i, y_i, x_j, y_j = observed
    rotation, translation = j_from_i[..., :3, :3], j_from_i[..., :3, 3:]  # [B, E, 3, 3], [B, E, 3, 1]
    i_in_j = rotation @ gaussian_i.mean + translation  # [B, E, 3, W]
    j_in_i = rotation.mT @ (gaussian_j.mean - translation)  # [B, E, 3, W]
    loss = reprojection_nll(i_in_j, x_j, y_j, log_tan_j, gaussian_i, rotation, z_min=z_min)
    loss = loss + reprojection_nll(j_in_i, x_i, y_i, log_tan_i, gaussian_j, rotation.mT, z_min=z_min)
    overlap = overlap_nll(i_in_j, gaussian_i, gaussian_j, rotation)
    if measure == "neutral":
        overlap = overlap + volume_measure(gaussian_i.log_depth, gaussian_j.log_depth, log_tan_i, log_tan_j)
    return loss + w_3d * overlap


def inlier_posterior(nll: Tensor, outlier_level: Tensor) -> tuple[Tensor, Tensor]:
    """Robust loss and inlier probability of a match against a uniform outlier density exp(-L_out).

    nll [B, E, W], outlier_level [B] (infinite: no outliers). The loss has the probability times the gradient
    of the nll as its gradient.
    """
    level = outlier_level[:, None, None].to(nll.dtype)  # [B, 1, 1]
    return -torch.logaddexp(-nll, -level), torch.sigmoid(level - nll)
