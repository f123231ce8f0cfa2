"""What the user should know about a result, with advice."""

from __future__ import annotations

import numpy as np

from proba.reconstruction import Note
from proba.refine.degeneracy import degeneracy_notes
from proba.refine.final import Cloud
from proba.refine.state import State, named
from proba.refine.uncertainty import CameraUncertainty

LISTED = 8
"""More names than this in one sentence nobody reads."""


def all_notes(state: State, cloud: Cloud, cameras: CameraUncertainty, sigma: np.ndarray) -> list[Note]:
    """Everything the user should know. `sigma` [T] are the points' standard deviations."""
    notes = degeneracy_notes(cloud.bundle, cameras, sigma, state.options.notes)
    rough = tuple(named(state.unplaced, state.observations.names))
    if rough:
        listed = ", ".join(rough[:LISTED]) + (f" and {len(rough) - LISTED} more" if len(rough) > LISTED else "")
        notes.append(
            Note(
                kind="rough poses",
                text=f"poses of {listed} are rough: their matches do not agree with the other images",
                advice="add images in between, or leave them out",
                images=rough,
            )
        )
    return notes
