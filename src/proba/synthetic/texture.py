"""Procedural surfaces: a colour for every point of the world, with detail from a metre down to the pixel.

Every pattern is a function of the point and of the solid it lies on, never of the camera. The camera enters only as
the footprint of a pixel, which fades detail too fine to be sampled, as a lens would.
"""

from __future__ import annotations

import colorsys
import zlib
from dataclasses import dataclass

import numpy as np

from proba.jit import cached_njit
from proba.synthetic.raycast import Solids

BRICK, TILES, PLANKS, MOSAIC, STONE, PLASTER = range(6)
NO_PANELS, PICTURES, WINDOWS = range(3)

COLOURS = 6
"""Colours of a palette; the last one is for joints, frames and veins."""

BUILDING_SIZE = 3.0
"""A box with a longer half side than this (metres) is a house, not a thing."""


@dataclass(frozen=True, kw_only=True)
class Materials:
    """How each solid looks, in the order in which solids are counted: spheres, boxes, planes."""

    kind: np.ndarray  # [K] int64
    panels: np.ndarray  # [K] int64, what hangs on the surface
    salt: np.ndarray  # [K] int64, makes each solid's pattern its own
    size: np.ndarray  # [K] float64, metres: the largest part of the pattern
    palette: np.ndarray  # [K, COLOURS, 3] float64, linear light


def make_materials(solids: Solids, seed: int = 0) -> Materials:
    """Draw the looks of solids. A solid keeps its look whichever others are listed with it."""
    rows = [("sphere", r) for r in solids.spheres] + [("box", r) for r in solids.boxes]
    rows += [("plane", r) for r in solids.planes]
    drawn = [_draw(shape, row, seed) for shape, row in rows]
    kind, panels, salt, size, palette = zip(*drawn, strict=True) if drawn else ((), (), (), (), ())
    return Materials(
        kind=np.array(kind, np.int64),
        panels=np.array(panels, np.int64),
        salt=np.array(salt, np.int64),
        size=np.array(size, np.float64),
        palette=np.array(palette, np.float64).reshape(-1, COLOURS, 3),
    )


def _draw(shape: str, row: np.ndarray, seed: int) -> tuple[int, int, int, float, np.ndarray]:
    """Kind, panels, salt, size and palette of one solid, from its own numbers."""
    salt = zlib.crc32(np.ascontiguousarray(row, np.float64).tobytes())
    rng = np.random.default_rng([seed, salt])
    salt = int(rng.integers(1 << 30))
    if shape == "sphere":
        kind, panels, size = int(rng.choice([MOSAIC, STONE, STONE, PLASTER])), NO_PANELS, 0.9 * row[3]
    elif shape == "box" and row[3:6].max() > BUILDING_SIZE:
        kind, panels, size = BRICK, WINDOWS, 0.32
    elif shape == "box":
        kind = int(rng.choice([MOSAIC, MOSAIC, PLANKS, STONE, BRICK, TILES]))
        panels, size = NO_PANELS, float(np.median(row[3:6]))
        if row[4] < 0.2 * min(row[3], row[5]):  # flat: a table
            kind, panels, size = PLANKS, PICTURES, 0.8
    elif abs(row[1]) > 0.9:
        # y points down: a horizontal plane with y > 0 is a floor, for walkers at about y = 0.
        floor = row[3] * row[1] > 0
        kind = int(rng.choice([PLANKS, TILES, STONE])) if floor else PLASTER
        panels, size = (PICTURES, 0.7) if floor else (PICTURES, 1.0)
    else:
        kind, panels, size = int(rng.choice([BRICK, PLASTER, PLASTER])), PICTURES, 0.4
    return kind, panels, salt, size, _palette(rng, kind)


def _palette(rng: np.random.Generator, kind: int) -> np.ndarray:  # [COLOURS, 3]
    """Colours that belong together, in linear light."""
    hue, spread, saturation, value = {
        BRICK: (rng.uniform(0.01, 0.07), 0.02, (0.35, 0.6), (0.4, 0.75)),
        TILES: (rng.uniform(0, 1), 0.06, (0.1, 0.35), (0.45, 0.85)),
        PLANKS: (rng.uniform(0.06, 0.1), 0.015, (0.4, 0.6), (0.4, 0.75)),
        MOSAIC: (rng.uniform(0, 1), 0.25, (0.2, 0.65), (0.3, 0.95)),
        STONE: (rng.uniform(0, 1), 0.05, (0.05, 0.45), (0.4, 0.85)),
        PLASTER: (rng.uniform(0.05, 0.6), 0.04, (0.05, 0.3), (0.65, 0.9)),
    }[kind]
    colours = [
        colorsys.hsv_to_rgb((hue + rng.normal(0, spread)) % 1, rng.uniform(*saturation), rng.uniform(*value))
        for _ in range(COLOURS)
    ]
    contrast = {BRICK: 0.75, PLANKS: 0.2}.get(kind, float(rng.choice([0.2, 0.9])))
    colours[-1] = colorsys.hsv_to_rgb(hue, 0.15, contrast)
    return np.array(colours) ** 2.2


MIX_X, MIX_Y, MIX_Z, MIX_SALT = 0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5


@cached_njit(error_model="numpy")
def scramble(x, y, z, salt):
    """A random 62-bit number of a lattice point."""
    h = x * MIX_X ^ y * MIX_Y ^ z * MIX_Z ^ salt * MIX_SALT
    h = (h ^ (h >> 31)) * 6364136223846793005
    h = (h ^ (h >> 29)) * 2685821657736338717
    return (h ^ (h >> 32)) & 0x3FFFFFFFFFFFFFFF


@cached_njit(error_model="numpy")
def unit(h, part):
    """One of five numbers in [0, 1) hidden in a random number."""
    return ((h >> (12 * part)) & 4095) / 4096.0


@cached_njit(error_model="numpy")
def ramp(low, high, x):
    """0 below `low`, 1 above `high`, smooth between."""
    t = min(max((x - low) / (high - low), 0.0), 1.0)
    return t * t * (3.0 - 2.0 * t)


@cached_njit(error_model="numpy")
def _corner(h):
    """A random number in [0, 2^20) of mixed lattice coordinates: one round of `scramble` is enough for noise."""
    h = (h ^ (h >> 31)) * 6364136223846793005
    return (h >> 40) & 0xFFFFF


@cached_njit(error_model="numpy")
def noise(x, y, z, salt):
    """Value noise in [-1, 1] on the unit lattice."""
    fx, fy, fz = np.floor(x), np.floor(y), np.floor(z)
    ax, ay, az = x - fx, y - fy, z - fz
    ax, ay, az = ax * ax * (3.0 - 2.0 * ax), ay * ay * (3.0 - 2.0 * ay), az * az * (3.0 - 2.0 * az)
    i, j, k = int(fx) * MIX_X, int(fy) * MIX_Y, int(fz) * MIX_Z
    i ^= salt * MIX_SALT
    i2, j2, k2 = (int(fx) + 1) * MIX_X ^ salt * MIX_SALT, j + MIX_Y, k + MIX_Z
    a, b = _corner(i ^ j ^ k), _corner(i2 ^ j ^ k)
    c, d = _corner(i ^ j2 ^ k), _corner(i2 ^ j2 ^ k)
    near = (1.0 - ay) * (a + ax * (b - a)) + ay * (c + ax * (d - c))
    a, b = _corner(i ^ j ^ k2), _corner(i2 ^ j ^ k2)
    c, d = _corner(i ^ j2 ^ k2), _corner(i2 ^ j2 ^ k2)
    far = (1.0 - ay) * (a + ax * (b - a)) + ay * (c + ax * (d - c))
    return ((1.0 - az) * near + az * far) * (2.0 / 0xFFFFF) - 1.0


@cached_njit(error_model="numpy")
def fractal(x, y, z, scale, gain, footprint, salt):
    """Noise of all scales from `scale` metres down to the pixel, about in [-1, 1]."""
    total, amplitude = 0.0, 1.0
    for octave in range(9):
        fade = ramp(0.6, 1.6, scale / footprint)
        if fade == 0.0:
            break
        inverse = 1.0 / scale
        total += fade * amplitude * noise(x * inverse, y * inverse, z * inverse, salt + octave)
        # Turned a little each time, so that the lattices of the octaves never line up.
        x, y, z = 0.8 * x + 0.6 * y, -0.6 * x + 0.8 * y, z
        y, z = 0.8 * y + 0.6 * z, -0.6 * y + 0.8 * z
        scale *= 0.44
        amplitude *= gain
    return total


@cached_njit(error_model="numpy")
def spot(x, y, z, cell, share, footprint, salt):
    """Random balls cut by the surface: how much of a spot is here, and its number."""
    if cell < 3.0 * footprint:
        return 0.0, 0
    x, y, z = x / cell, y / cell, z / cell
    i, j, k = np.floor(x), np.floor(y), np.floor(z)
    h = scramble(int(i), int(j), int(k), salt)
    if unit(h, 4) > share:
        return 0.0, 0
    # The ball stays within its own cell, so no other cell has to be looked at.
    radius = 0.12 + 0.25 * unit(h, 3)
    room = 1.0 - 2.0 * radius
    away_x, away_y, away_z = (
        x - i - radius - room * unit(h, 0),
        y - j - radius - room * unit(h, 1),
        z - k - radius - room * unit(h, 2),
    )
    away = np.sqrt(away_x * away_x + away_y * away_y + away_z * away_z)
    soft = 0.5 * footprint / cell
    cover = ramp(-soft, soft, radius - away)
    return cover * ramp(3.0, 6.0, cell / footprint), h


@cached_njit(error_model="numpy")
def _joint(to_edge, width, footprint, size):
    """Share of joint in a pixel at a distance from the edge of a part; nothing where parts are below a pixel."""
    soft = max(0.25 * width, 0.5 * footprint)
    return ramp(-soft, soft, width - to_edge) * ramp(1.0, 3.0, size / footprint)


@cached_njit(error_model="numpy")
def _brick(u, v, size, face, footprint, salt):
    height = 0.36 * size
    row = int(np.floor(v / height))
    u += size * unit(scramble(row, face, 3, salt), 0)
    column = int(np.floor(u / size))
    h = scramble(column, row, face, salt)
    du, dv = u - column * size, v - row * height
    edge = min(min(du, size - du), min(dv, height - dv))
    return int(5 * unit(h, 0)), 0.6 + 0.7 * unit(h, 1), 0.9 * _joint(edge, 0.02 * size, footprint, height)


@cached_njit(error_model="numpy")
def _tiles(u, v, size, face, footprint, salt):
    size *= 0.5
    column, row = int(np.floor(u / size)), int(np.floor(v / size))
    h = scramble(column, row, face, salt)
    du, dv = u - column * size, v - row * size
    edge = min(min(du, size - du), min(dv, size - dv))
    index = int(5 * unit(h, 0))
    # Inlays of a size of their own: a diamond or a disc in another colour.
    a, b = abs(du / size - 0.5), abs(dv / size - 0.5)
    inner = a + b if unit(h, 2) < 0.5 else np.sqrt(a * a + b * b)
    if unit(h, 3) < 0.6 and inner < 0.15 + 0.25 * unit(h, 4):
        index = (index + 1 + int(3 * unit(h, 1))) % 5
    return index, 0.65 + 0.5 * unit(h, 1), _joint(edge, 0.015 * size, footprint, size)


@cached_njit(error_model="numpy")
def _planks(u, v, size, face, footprint, salt):
    width, length = 0.18 * size, 1.6 * size
    row = int(np.floor(v / width))
    u += length * unit(scramble(row, face, 5, salt), 0)
    column = int(np.floor(u / length))
    h = scramble(column, row, face, salt)
    du, dv = u - column * length, v - row * width
    edge = min(min(du, length - du), min(dv, width - dv))
    # Grain runs along the plank; a knot bends it.
    bend = 0.25 * width * noise(u / (2.0 * width), v / width, unit(h, 1) * 99, salt)
    grain = fractal(0.08 * u, v + bend, 7.0 * unit(h, 2), 0.2 * width, 0.75, footprint, salt + (h & 255))
    return (
        int(5 * unit(h, 0)),
        (0.6 + 0.6 * unit(h, 3)) * np.exp(0.45 * grain),
        _joint(edge, 0.02 * width, footprint, width),
    )


@cached_njit(error_model="numpy")
def _mosaic(u, v, size, face, footprint, salt):
    """Prints: rectangles cut again and again at random, some plain, some with lines of writing, some with a disc."""
    column, row = int(np.floor(u / size)), int(np.floor(v / size))
    h = scramble(column, row, face, salt)
    left, top, wide, high = column * size, row * size, size, size
    for depth in range(7):
        h = scramble(h & 0xFFFFFFF, depth, face, salt)
        if (depth > 2 and unit(h, 0) < 0.18) or min(wide, high) < 0.07 * size:
            break
        cut = 0.25 + 0.5 * unit(h, 1)
        if wide * (0.6 + 0.8 * unit(h, 2)) > high:
            first = u - left < cut * wide
            left, wide = (left, cut * wide) if first else (left + cut * wide, (1.0 - cut) * wide)
        else:
            first = v - top < cut * high
            top, high = (top, cut * high) if first else (top + cut * high, (1.0 - cut) * high)
        h = 2 * h + (1 if first else 0)
    h = scramble(h & 0xFFFFFFF, 77, face, salt)
    du, dv = u - left, v - top
    ink = _joint(min(min(du, wide - du), min(dv, high - dv)), 0.006 * size, footprint, min(wide, high))
    low = min(wide, high)
    look = unit(h, 0)
    if look < 0.35:
        line = max(0.16 * low, 0.02 * size)
        text_row = int(np.floor(dv / line))
        letter = scramble(int(np.floor(du / (0.5 * line))), text_row, h & 0xFFFFFF, salt)
        middle = abs(dv / line - text_row - 0.5)
        if middle < 0.3 and unit(letter, 0) < 0.62:
            ink = max(ink, 0.9 * ramp(1.5, 3.0, line / footprint))
    elif look < 0.6:
        away = np.sqrt((du - 0.5 * wide) ** 2 + (dv - 0.5 * high) ** 2)
        ink = max(ink, _joint(abs(away - 0.3 * low), (0.04 + 0.1 * unit(h, 1)) * low, footprint, low))
    # Parts below a pixel turn to the mean brightness.
    return int(5 * unit(h, 2)), 0.82 + 0.75 * (unit(h, 3) - 0.5) * ramp(0.5, 2.0, low / footprint), ink


@cached_njit(error_model="numpy")
def _stone(x, y, z, size, footprint, salt):
    """Veins where warped noise crosses zero."""
    warp = 0.5 * size * noise(x / size, y / size, z / size, salt + 50)
    n = fractal(x + warp, y + warp, z - warp, 0.5 * size, 0.6, footprint, salt + 60)
    vein = 1.0 - ramp(0.02, 0.14, abs(n))
    return int(2.5 + 2.4 * max(-1.0, min(1.0, n))), 0.9 + 0.25 * n, 0.7 * vein


@cached_njit(error_model="numpy")
def _panel(u, v, panels, face, footprint, salt):
    """The picture or window at a place of a wall: inside (0, 1: frame, 2), its number, and where in it."""
    pitch = 2.1 if panels == WINDOWS else 1.3
    column = int(np.floor(u / pitch))
    v += 0.0 if panels == WINDOWS else pitch * unit(scramble(column, face, 9, salt), 0)
    row = int(np.floor(v / pitch))
    h = scramble(column, row, face, salt + 17)
    if unit(h, 0) > (0.75 if panels == WINDOWS else 0.6):
        return 0, h, 0.0, 0.0
    half_u, half_v = pitch * (0.14 + 0.2 * unit(h, 1)), pitch * (0.14 + 0.24 * unit(h, 2))
    du = u - (column + 0.5) * pitch - (0.5 * pitch - half_u) * (unit(h, 3) - 0.5)
    dv = v - (row + 0.5) * pitch - (0.5 * pitch - half_v) * (unit(h, 4) - 0.5)
    edge = min(half_u - abs(du), half_v - abs(dv))
    if edge < 0.0:
        return 0, h, 0.0, 0.0
    bar = panels == WINDOWS and min(abs(du), abs(dv + 0.3 * half_v)) < 0.03
    return (1 if edge < 0.045 or bar else 2), h, du, dv


@cached_njit(error_model="numpy")
def _pattern(kind, size, x, y, z, u, v, face, footprint, salt):
    """Colour of the palette, brightness, and share of the joint colour."""
    if kind == BRICK:
        return _brick(u, v, size, face, footprint, salt)
    if kind == TILES:
        return _tiles(u, v, size, face, footprint, salt)
    if kind == PLANKS:
        return _planks(u, v, size, face, footprint, salt)
    if kind == MOSAIC:
        return _mosaic(u, v, size, face, footprint, salt)
    if kind == STONE:
        return _stone(x, y, z, size, footprint, salt)
    return 0, 1.0, 0.0


@cached_njit(error_model="numpy")
def albedo(kind, panels, salt, size, palette, x, y, z, u, v, face, footprint):
    """Reflected share of red, green and blue light at a point (x, y, z) with surface coordinates (u, v), metres.

    `palette` is [COLOURS, 3]; `face` tells the sides of a box apart; `footprint` is the width of a pixel there.
    """
    inside, number, du, dv = 0, 0, 0.0, 0.0
    if panels != NO_PANELS:
        inside, number, du, dv = _panel(u, v, panels, face, footprint, salt)
    dirt = 0.55
    tint = 0.0
    if inside == 1:
        index, shade, joint = COLOURS - 1, 0.35 + 0.9 * unit(number, 1), 0.0
    elif inside == 2:
        # Behind glass it is darker, and less dirty.
        index, shade, joint = _mosaic(du, dv, 0.5 + 0.4 * unit(number, 2), number & 0xFFFF, footprint, salt)
        shade *= 0.35 if panels == WINDOWS else 0.9
        tint, dirt = unit(number, 3) - 0.5, 0.35
    else:
        index, shade, joint = _pattern(kind, size, x, y, z, u, v, face, footprint, salt)
    # Weather: stains of all scales, the strongest reason why no two bricks look the same.
    shade *= np.exp(dirt * fractal(x, y, z, 0.6 * min(size, 0.5) + 0.05, 0.78, footprint, salt + 200))
    red = shade * ((1 - joint) * palette[index, 0] + joint * palette[COLOURS - 1, 0]) * (1.0 + 0.8 * tint)
    green = shade * ((1 - joint) * palette[index, 1] + joint * palette[COLOURS - 1, 1])
    blue = shade * ((1 - joint) * palette[index, 2] + joint * palette[COLOURS - 1, 2]) * (1.0 - 0.8 * tint)
    for layer in range(3):
        cell = 0.35 * size * 0.31**layer
        cover, h = spot(x, y, z, cell, 0.35, footprint, salt + 300 + layer)
        if cover > 0.0:
            colour, bright = int(COLOURS * unit(h, 0)), 0.25 + 1.1 * unit(h, 2)
            cover *= 0.75
            red += cover * (bright * palette[colour, 0] - red)
            green += cover * (bright * palette[colour, 1] - green)
            blue += cover * (bright * palette[colour, 2] - blue)
    return red, green, blue
