"""Where photos were taken, from their EXIF."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from proba.io.reading import reading

EARTH_RADIUS_M = 6378137.0  # WGS84, equator
FLATTENING = 1 / 298.257223563
RADIUS_OF_68 = 1.515
"""Radius in standard deviations that holds 68 % of a circular Gaussian in the plane."""
BELOW_SEA = (1, b"\x01")


Place = tuple[float, float, float]
"""Latitude and longitude (degrees), altitude (metres)."""


def read_gps(path: str | Path) -> Place | None:
    """The place of a photo, at altitude 0 where it tells none; None without a place."""
    return read_gps_and_error(path)[0]


def read_gps_and_error(path: str | Path) -> tuple[Place | None, float | None]:
    """The place of a photo, and what it tells of its standard deviation along a horizontal axis, metres.

    EXIF's horizontal positioning error is not defined closely; phones write the radius that holds 68 %.
    """
    with (
        reading(path, "a photo that can be read", "Give the folder of the photos with --images."),
        Image.open(path) as image,
    ):
        gps = image.getexif().get_ifd(ExifTags.IFD.GPSInfo)
    latitude = _degrees(gps.get(ExifTags.GPS.GPSLatitude), gps.get(ExifTags.GPS.GPSLatitudeRef) == "S")
    longitude = _degrees(gps.get(ExifTags.GPS.GPSLongitude), gps.get(ExifTags.GPS.GPSLongitudeRef) == "W")
    if latitude is None or longitude is None:
        return None, None
    altitude = _number(gps.get(ExifTags.GPS.GPSAltitude)) or 0.0
    below = gps.get(ExifTags.GPS.GPSAltitudeRef) in BELOW_SEA
    radius = _number(gps.get(ExifTags.GPS.GPSHPositioningError))
    error = radius / RADIUS_OF_68 if radius is not None and radius > 0 else None
    return (latitude, longitude, -altitude if below else altitude), error


def to_enu(places: np.ndarray) -> np.ndarray:  # [N, 3]
    """East, north, up in metres, relative to the median, of latitude, longitude (deg), altitude (m) [N, 3]."""
    origin = np.median(places, axis=0)
    latitude, longitude = np.radians(origin[:2])
    (sin_lat, cos_lat), (sin_lon, cos_lon) = ((math.sin(a), math.cos(a)) for a in (latitude, longitude))
    enu_from_ecef = np.array(
        [
            [-sin_lon, cos_lon, 0.0],
            [-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat],
            [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat],
        ]
    )
    return (_ecef(places) - _ecef(origin[None])) @ enu_from_ecef.T


def _ecef(places: np.ndarray) -> np.ndarray:  # [N, 3]
    """Earth-centred metres of WGS84 places [N, 3]."""
    latitude, longitude = np.radians(places[:, :2]).T
    squeeze = FLATTENING * (2 - FLATTENING)  # squared eccentricity
    radius = EARTH_RADIUS_M / np.sqrt(1 - squeeze * np.sin(latitude) ** 2)
    out = (radius + places[:, 2]) * np.cos(latitude)
    z = (radius * (1 - squeeze) + places[:, 2]) * np.sin(latitude)
    return np.stack([out * np.cos(longitude), out * np.sin(longitude), z], axis=1)


def _degrees(parts: object, negative: bool) -> float | None:
    """Degrees of an EXIF triple (degrees, minutes, seconds); None for what is no such triple."""
    try:
        degrees, minutes, seconds = (float(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    value = degrees + minutes / 60 + seconds / 3600
    return None if not math.isfinite(value) else -value if negative else value


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return number if math.isfinite(number) else None
