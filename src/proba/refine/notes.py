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
    notes += _rig_notes(state)
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


def _rig_notes(state: State) -> list[Note]:
    """What became of cameras that are said to have moved together."""
    tied, rigs = state.tied, state.observations.rigs
    if tied is None or rigs is None:
        return []
    if tied.refused:
        text = f"the cameras are not taken for a rig: {tied.refused}"
        return [Note(kind="rig", text=text, advice="check that files of one moment have one name")]
    notes = []
    if tied.apart:
        text = f"no moment ties {listed(tied.apart)} to the other cameras of the rig, so these are placed by themselves"
        notes.append(
            Note(kind="rig", text=text, advice="tell where they sit in a rig file, or add photos that overlap")
        )
    if lacking := rigs.incomplete():
        frames = listed([frame for frame, _ in lacking])
        cameras = listed(sorted({name for _, names in lacking for name in names}))
        text = f"moments {frames} have no photo here of some of the rig's cameras ({cameras})"
        notes.append(Note(kind="rig", text=text, advice="if there are such photos, check their names"))
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
