"""Numbers of report.json as words that the page and the terminal share."""

from __future__ import annotations

import numpy as np

STAGES = {"match": "matching", "graph": "view graph", "solve": "cold start search", "refine": "refinement"}
"""Names of the stages for people."""


def number(value: float | None, digits: int = 2) -> str:
    return "unknown" if value is None or not np.isfinite(value) else f"{value:.{digits}f}"


def focal_range(focals: list[dict]) -> tuple[str, str]:
    """The focal lengths of all cameras, and what that number is."""
    values = sorted(focal["focal_px"] for focal in focals)
    known = [focal["std_px"] for focal in focals if focal["std_px"] is not None and np.isfinite(focal["std_px"])]
    std = number(float(np.median(known)), 1 if np.median(known) >= 1 else 2) if known else "unknown"
    if len(values) == 1:
        return f"{values[0]:.1f} ± {std} px", "focal length"
    same = f"{values[0]:.0f}" == f"{values[-1]:.0f}"
    extent = f"{values[0]:.1f}" if same else f"{values[0]:.0f} to {values[-1]:.0f}"
    return f"{extent} px", f"focal lengths of {len(values)} cameras, typically ± {std} px"


def stage_times(seconds: dict[str, float]) -> list[tuple[str, float]]:
    """Stages in the order of the run, with their seconds."""
    return [(STAGES.get(stage, stage), value) for stage, value in seconds.items()]


def duration(seconds: dict[str, float]) -> str:
    """All stages together."""
    total = round(sum(seconds.values()))
    return f"{total} s" if total < 120 else f"{total // 60} min {total % 60} s"
