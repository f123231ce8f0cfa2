"""Photos of a scene, by the same rays as its exact matches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from proba.geometry.equirectangular import panorama_directions
from proba.io.picture_files import write_picture
from proba.jit import cached_njit
from proba.synthetic.raycast import Solids, _slab, cast
from proba.synthetic.scene import Scene
from proba.synthetic.texture import Materials, albedo, make_materials, ramp

SUBPIXELS = np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]])  # [S, 2]
"""Where in a pixel rays go through: 2 x 2 supersampling."""

TILE = 64
"""Side of the squares (pixels) an image is rendered in: most solids are outside the view of a square."""

TO_LIGHT = np.array([0.42, -0.78, -0.46]) / np.linalg.norm([0.42, -0.78, -0.46])
"""Direction from anywhere to the sun: above, a little to the right and behind the first cameras."""

SHADOW_REACH = 4.0
"""A solid throws its shadow this far (metres), so what a camera cannot see need not be looked at for shadows."""

EXPOSURE = 1.25
GAMMA = 2.2
JPEG_QUALITY = 95


def render(
    scene: Scene, image: int, *, width: int | None = None, height: int | None = None, seed: int = 0
) -> np.ndarray:  # [H, W, 3] uint8
    """Photo number `image` of a scene; RGB.

    The field of view stays that of the scene's camera at any size; if only one side is given the other follows the
    scene's aspect ratio. `seed` varies the textures.
    """
    width, height = _size(scene, width, height)
    scale = np.array([scene.width / width, scene.height / height])
    pixel_tan = float(np.mean(scale / scene.intrinsics[image, :2]))  # width of a pixel at depth 1
    return _picture(scene, image, (width, height), lambda pixels: scene.rays(image, pixels * scale), pixel_tan, seed)


def render_panorama(scene: Scene, image: int, *, width: int, seed: int = 0) -> np.ndarray:  # [W / 2, W, 3] uint8
    """What image number `image` would show if its camera saw all directions: an equirectangular panorama, RGB."""
    height = width // 2

    def rays(pixels: np.ndarray) -> np.ndarray:
        return panorama_directions(pixels, width, height) @ scene.rotation[image]

    return _picture(scene, image, (width, height), rays, 2 * np.pi / width, seed)


def _picture(
    scene: Scene,
    image: int,
    size: tuple[int, int],
    rays: Callable[[np.ndarray], np.ndarray],
    pixel_tan: float,
    seed: int,
) -> np.ndarray:  # [H, W, 3] uint8
    """What is seen along the rays of pixels [..., 2], tile by tile."""
    width, height = size
    # Shadows come from solids a little farther than can be seen.
    solids = scene.solids.near(scene.centre(image), scene.max_range + SHADOW_REACH)
    materials = make_materials(solids, seed)
    light = np.empty((height, width, 3))
    for top, left in product(range(0, height, TILE), range(0, width, TILE)):
        tile = light[top : top + TILE, left : left + TILE]  # [h, w, 3]
        high, wide, _ = tile.shape
        cone = rays(np.array(list(product((left, left + wide), (top, top + high))), np.float64))
        corners = np.stack(np.meshgrid(left + np.arange(wide), top + np.arange(high)), axis=-1)  # [h, w, 2]
        pixels = corners + SUBPIXELS[:, None, None]  # [S, h, w, 2]
        directions = rays(pixels.reshape(-1, 2))  # [S * h * w, 3]
        index = _in_cone(solids, scene.centre(image), cone)
        radiance = _radiance(solids, materials, index, scene.centre(image), directions, scene.max_range, pixel_tan)
        tile[:] = radiance.reshape(len(SUBPIXELS), high, wide, 3).mean(axis=0)
    encoded = 255 * np.clip(EXPOSURE * light, 0, 1) ** (1 / GAMMA)
    return encoded.round().astype(np.uint8)


def render_images(
    scene: Scene, folder: str | Path, progress: Callable[[int, int], None] | None = None, *, seed: int = 0
) -> list[Path]:
    """Write every photo of a scene into a folder under the scene's image names; returns the files.

    `progress` is called with the number of photos written so far and in all.
    """
    paths = [Path(folder) / name for name in scene.image_names]
    for k, path in enumerate(paths):
        photo = Image.fromarray(render(scene, k, seed=seed))
        jpeg = path.suffix.lower() in (".jpg", ".jpeg")
        write_picture(path, photo, **({"quality": JPEG_QUALITY, "subsampling": 0} if jpeg else {}))
        if progress is not None:
            progress(k + 1, len(paths))
    return paths


def _size(scene: Scene, width: int | None, height: int | None) -> tuple[int, int]:
    if width is None and height is None:
        return scene.width, scene.height
    if width is None:
        assert height is not None
        return max(1, round(scene.width * height / scene.height)), height
    return width, max(1, round(scene.height * width / scene.width)) if height is None else height


def _radiance(
    solids: Solids,
    materials: Materials,
    index: np.ndarray,
    origin: np.ndarray,
    directions: np.ndarray,
    max_range: float,
    pixel_tan: float,
) -> np.ndarray:  # [R, 3]
    """Linear light along rays [R, 3], whose length is depth, that meet only the solids `index` [C]."""
    depth, hit = cast(_pick(solids, index), origin, directions, max_range)  # [R]
    hit = np.append(index, -1)[hit]  # [R], -1 stays -1
    casters = _pick(solids, _towards_light(solids, *_bounds(origin, directions, depth)))
    light = np.empty(directions.shape)  # [R, 3]
    m = materials
    _shade(
        origin, directions, depth, hit, solids.spheres, _turned(solids), solids.planes, casters.spheres,
        _turned(casters), m.kind, m.panels, m.salt, m.size, m.palette, TO_LIGHT, max_range, pixel_tan, light,
    )  # fmt: skip
    return light


def _turned(solids: Solids) -> np.ndarray:  # [B, 8] centre, half sizes, cosine and sine of yaw
    return np.column_stack([solids.boxes[:, :6], np.cos(solids.boxes[:, 6]), np.sin(solids.boxes[:, 6])])


def _pick(solids: Solids, index: np.ndarray) -> Solids:
    """The spheres and boxes with these numbers [C]; all planes."""
    n_spheres = len(solids.spheres)
    n_finite = n_spheres + len(solids.boxes)
    return Solids(
        spheres=solids.spheres[index[index < n_spheres]],
        boxes=solids.boxes[index[(index >= n_spheres) & (index < n_finite)] - n_spheres],
        planes=solids.planes,
    )


def _balls(solids: Solids) -> tuple[np.ndarray, np.ndarray]:
    """Centres [K, 3] and radii [K] of balls around the spheres and boxes."""
    centres = np.vstack([solids.spheres[:, :3], solids.boxes[:, :3]])
    return centres, np.append(solids.spheres[:, 3], np.linalg.norm(solids.boxes[:, 3:6], axis=1))


def _towards_light(solids: Solids, low: np.ndarray, high: np.ndarray) -> np.ndarray:  # [C] int64, ascending
    """Spheres and boxes that may throw a shadow on points between two corners [3]."""
    if not np.isfinite(low).all():
        return np.zeros(0, np.int64)  # nothing was hit
    centres, radius = _balls(solids)
    away = centres - (low + high) / 2  # [K, 3]
    reach = radius + np.linalg.norm(high - low) / 2  # [K]
    ahead = away @ TO_LIGHT
    aside = np.linalg.norm(away - ahead[:, None] * TO_LIGHT, axis=1)
    return np.flatnonzero((aside <= reach) & (ahead >= -reach) & (ahead <= reach + SHADOW_REACH))


def _in_cone(solids: Solids, origin: np.ndarray, corners: np.ndarray) -> np.ndarray:  # [C] int64, ascending
    """Solids that may be seen between corner rays [4, 3]: their bounding balls touch the cone around these."""
    rays = corners / np.linalg.norm(corners, axis=1, keepdims=True)
    axis = rays.mean(axis=0) / np.linalg.norm(rays.mean(axis=0))
    opening = np.arccos(np.clip((rays @ axis).min(), -1, 1))
    centres, radius = _balls(solids)
    centres = centres - origin
    away = np.linalg.norm(centres, axis=1)
    angle = np.arccos(np.clip(centres @ axis / np.maximum(away, 1e-9), -1, 1))
    touched = (away <= radius) | (angle <= opening + np.arcsin(np.minimum(radius / np.maximum(away, 1e-9), 1)) + 1e-9)
    return np.flatnonzero(np.append(touched, np.ones(len(solids.planes), bool)))


@cached_njit(error_model="numpy")
def _bounds(origin, directions, depth):
    """Lowest and highest coordinates [3] of what rays [R, 3] hit at depths [R]; infinite if that is nothing."""
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for r in range(len(depth)):
        if depth[r] < np.inf:
            for axis in range(3):
                x = origin[axis] + depth[r] * directions[r, axis]
                low[axis], high[axis] = min(low[axis], x), max(high[axis], x)
    return low, high


@cached_njit(error_model="numpy")
def _on_sphere(x, y, z, sphere):
    """Normal, surface coordinates in metres, and face."""
    nx, ny, nz = (x - sphere[0]) / sphere[3], (y - sphere[1]) / sphere[3], (z - sphere[2]) / sphere[3]
    return nx, ny, nz, sphere[3] * np.arctan2(nx, -nz), sphere[3] * np.arcsin(max(-1.0, min(1.0, ny))), 0


@cached_njit(error_model="numpy")
def _on_box(x, y, z, box):
    """As for a sphere, on the face whose plane is nearest."""
    c, s = box[6], box[7]
    px, py, pz = x - box[0], y - box[1], z - box[2]
    lx, lz = c * px - s * pz, s * px + c * pz  # in the box's own axes
    gap_x, gap_y, gap_z = abs(abs(lx) - box[3]), abs(abs(py) - box[4]), abs(abs(lz) - box[5])
    if gap_y <= gap_x and gap_y <= gap_z:
        return 0.0, np.sign(py), 0.0, lx, lz, 1 + int(py > 0)
    if gap_x <= gap_z:
        sign = np.sign(lx)
        return sign * c, 0.0, -sign * s, lz, py, 3 + int(lx > 0)
    sign = np.sign(lz)
    return sign * s, 0.0, sign * c, lx, py, 5 + int(lz > 0)


@cached_njit(error_model="numpy")
def _on_plane(x, y, z, plane):
    """As for a sphere; the normal's sign is arbitrary."""
    nx, ny, nz = plane[0], plane[1], plane[2]
    if abs(ny) > 0.7:
        return nx, ny, nz, x, z, 0
    along = np.sqrt(nx * nx + nz * nz)
    return nx, ny, nz, (nz * x - nx * z) / along, y, 0


@cached_njit(error_model="numpy")
def _in_shadow(x, y, z, to_light, spheres, boxes):
    """Whether a sphere or box stands between a point and the light; planes are the room, and let light in."""
    dx, dy, dz = to_light
    for k in range(spheres.shape[0]):
        px, py, pz = x - spheres[k, 0], y - spheres[k, 1], z - spheres[k, 2]
        b = dx * px + dy * py + dz * pz
        square = px * px + py * py + pz * pz - spheres[k, 3] ** 2
        if b < 0.0 and b * b > square:
            t = -b - np.sqrt(b * b - square)
            if 0.0 < t < SHADOW_REACH:
                return True
    for k in range(boxes.shape[0]):
        c, s = boxes[k, 6], boxes[k, 7]
        px, py, pz = x - boxes[k, 0], y - boxes[k, 1], z - boxes[k, 2]
        # Most boxes are far from the ray: their bounding balls say so without a division.
        b = dx * px + dy * py + dz * pz
        if px * px + py * py + pz * pz - b * b > boxes[k, 3] ** 2 + boxes[k, 4] ** 2 + boxes[k, 5] ** 2:
            continue
        enter, leave = _slab(py, dy, boxes[k, 4], 0.0, SHADOW_REACH)
        enter, leave = _slab(c * px - s * pz, c * dx - s * dz, boxes[k, 3], enter, leave)
        enter, leave = _slab(s * px + c * pz, s * dx + c * dz, boxes[k, 5], enter, leave)
        if enter < leave:
            return True
    return False


@cached_njit(error_model="numpy")
def _sky(dx, dy, dz):
    """Bright at the horizon, blue above, grey below; no edges, so that nothing at infinity is matched."""
    up = -dy / np.sqrt(dx * dx + dy * dy + dz * dz)
    above, below = ramp(0.0, 0.9, up), ramp(0.0, 0.7, -up)
    return (
        0.62 - 0.36 * above - 0.3 * below,
        0.68 - 0.26 * above - 0.34 * below,
        0.76 - 0.08 * above - 0.42 * below,
    )


@cached_njit(error_model="numpy")
def _shade(
    origin, directions, depth, hit, spheres, boxes, planes, caster_spheres, caster_boxes, kind, panels, salt,
    size, palette, to_light, max_range, pixel_tan, light,
):  # fmt: skip
    n_spheres, n_boxes = spheres.shape[0], boxes.shape[0]
    for r in range(directions.shape[0]):
        dx, dy, dz = directions[r, 0], directions[r, 1], directions[r, 2]
        sky_red, sky_green, sky_blue = _sky(dx, dy, dz)
        k = hit[r]
        if k < 0:
            light[r, 0], light[r, 1], light[r, 2] = sky_red, sky_green, sky_blue
            continue
        t = depth[r]
        x, y, z = origin[0] + t * dx, origin[1] + t * dy, origin[2] + t * dz
        if k < n_spheres:
            nx, ny, nz, u, v, face = _on_sphere(x, y, z, spheres[k])
        elif k < n_spheres + n_boxes:
            nx, ny, nz, u, v, face = _on_box(x, y, z, boxes[k - n_spheres])
        else:
            nx, ny, nz, u, v, face = _on_plane(x, y, z, planes[k - n_spheres - n_boxes])
        length = np.sqrt(dx * dx + dy * dy + dz * dz)
        facing = -(nx * dx + ny * dy + nz * dz) / length
        if facing < 0.0:
            nx, ny, nz, facing = -nx, -ny, -nz, -facing
        # Between the narrow and the long side of the pixel's footprint on a tilted surface.
        footprint = pixel_tan * t / np.sqrt(max(facing, 0.05))
        red, green, blue = albedo(kind[k], panels[k], salt[k], size[k], palette[k], x, y, z, u, v, face, footprint)
        sun = nx * to_light[0] + ny * to_light[1] + nz * to_light[2]
        # Light from the sky above and, half as strong, from the ground and the walls.
        ambient = 0.42 - 0.12 * ny - 0.06 * sun
        lifted = 1e-4 * t
        above_x, above_y, above_z = x + lifted * nx, y + lifted * ny, z + lifted * nz
        if sun > 0.0 and not _in_shadow(above_x, above_y, above_z, to_light, caster_spheres, caster_boxes):
            ambient += 0.75 * sun
        haze = ramp(0.65 * max_range, max_range, t * length) if max_range < np.inf else 0.0
        light[r, 0] = red * ambient + haze * (sky_red - red * ambient)
        light[r, 1] = green * ambient + haze * (sky_green - green * ambient)
        light[r, 2] = blue * ambient + haze * (sky_blue - blue * ambient)
