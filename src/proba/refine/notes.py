"""What the user should know about a result, with advice."""

from __future__ import annotations

import numpy as np

from proba.cameras import listed
from proba.reconstruction import Note
from proba.refine.anchor import left_out
from proba.refine.degeneracy import degeneracy_notes
from proba.refine.final import Cloud
from proba.refine.state import State, named
from proba.refine.uncertainty import CameraUncertainty


def all_notes(state: State, cloud: Cloud, cameras: CameraUncertainty, sigma: np.ndarray) -> list[Note]:
    """Everything the user should know. `sigma` [T] are the points' standard deviations."""
    notes = degeneracy_notes(cloud.bundle, cameras, sigma, state.options.notes)
    notes += _known_pose_notes(state)
    rough = tuple(named(state.unplaced, state.observations.names))
    if rough:
        notes.append(
            Note(
                kind="rough poses",
                text=f"poses of {listed(rough)} are rough: their matches do not agree with the other images",
                advice="add images in between, or leave them out",
                images=rough,
            )
        )
    return notes


def _known_pose_notes(state: State) -> list[Note]:
    """What became of places and poses that were known beforehand."""
    known, observations = state.observations.known, state.observations
    if known is None or not known.anchors:
        return []
    what = "GPS places" if known.z_up else "known poses"
    if state.bundle.pose_prior is None:
        text = f"the {what} were not used: they are too few, or on one line, and fix no frame"
        return [Note(kind="known poses", text=text, advice="give more of them, or use `proba align` afterwards")]
    wrong = tuple(named(left_out(state.bundle, known), observations.names))
    if not wrong:
        return []
    text = f"the {what} of {listed(wrong)} contradict the photos and were left out"
    return [Note(kind="known poses", text=text, advice="check them", images=wrong)]
