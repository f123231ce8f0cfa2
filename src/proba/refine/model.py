"""Which camera model the data can carry: principal point and radial distortion are freed if it pays.

A few images cannot tell whether it does. There all is free, and priors hold what the data leave open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from proba.refine.adjust import ANNEALED, Freedom, Round, adjust, noise_round
from proba.refine.agreement import PairAgreement
from proba.refine.bundle import CX, CY, FX, FY, K1, K2, Bundle, reprojection_errors
from proba.refine.options import RefineOptions
from proba.refine.triangulate import believable
from proba.refine.uncertainty import camera_uncertainty

MIN_IMAGES = 3
MIN_OBSERVATIONS = 500
"""Cameras with fewer images or observations keep the simple model: they could trade a shift against a turn."""
MAX_SHIFT = 0.05
"""Largest believable shift of the principal point from the centre, in longest sides."""
MAX_EDGE_DISTORTION = 0.4
"""Largest believable relative radial displacement in the image corner."""
BIC_FACTOR = 2.0
"""Multiple of the BIC penalty that a model must gain: residuals of real matches are not independent."""
CLEAR_SHARE = 0.05
"""A difference in explained matches that decides alone whether photos share a camera. On castle_p19, whose repeated
windows give and take single pairs, nineteen focal lengths explain 0.011 more, against all evidence of the residuals."""
MIN_FOCAL_RATIO = 1.15
"""Photos of one size whose focal lengths differ by less come from one camera, whatever the residuals say: they ask for
1.01 to 1.08 on subsets of castle_p19 and entry_p10, wrongly, and for 1.37 on imc_reichstag."""
MAX_CHANCE = 0.1
"""Level of the test that a principal point off the centre gains in every image. It is easily mistaken for a turn of the
cameras, and where these hardly turn, some wrong matches decide: on subsets of llff_fern that cost 4 to 20 of AUC@5."""
MIN_SYSTEMATIC_PX = 0.015
"""Root mean square of the systematic residuals that a model must explain besides. Keypoints have biases of this size
themselves: without the bound herzjesu_p8 gets a needless k1 and k2 (AUC@1 93 -> 92), lund_door a principal point."""
FEW_IMAGES = 12
"""Below, priors instead of tests. Eleven random thirds (3 to 7 images) of seven sets, mean AUC@1: tests 47, priors 60;
nineteen subsets of eight to ten: 53 and 57 (surveyed truths 62 and 70). Whole sets end the same, but where the truth is
COLMAP's with a centred principal point (lund_door 98, 79; halves of llff_fern 65, 58)."""
PRIOR_SHIFT, PRIOR_EDGE = 0.015, 0.02
"""Standard deviations of the priors: principal point in longest sides, radial displacement in the image corner."""
FIRST_STRENGTH, STRENGTH = 10.0, 3.0
"""Residuals that err together say less than their number. A prior weighs as much more as the parts of the image plane
disagree more than independent residuals would (the ratio of variances), and this factor; at first that is not known."""


_DISTORTIONS = {"simple": 1, "radial": 2, "SIMPLE_RADIAL": 1, "RADIAL": 2}
"""Coefficients of the options' and the models' names; others have none."""


@dataclass(frozen=True, kw_only=True)
class CameraTrial:
    """One model that was tried, for the report."""

    name: str
    evidence: float
    """Twice the gain in log-likelihood, minus the penalty; rejected when negative."""
    accepted: bool


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """Extra freedom above a plain focal length."""

    principal_point: bool = False
    distortion: int = 0

    @property
    def n_parameters(self) -> int:
        return 2 * self.principal_point + self.distortion

    @property
    def name(self) -> str:
        parts = ["principal point"] * self.principal_point + [f"k{k + 1}" for k in range(self.distortion)]
        return " + ".join(parts) or "pinhole"


def select_camera_model(
    bundle: Bundle, options: RefineOptions, freedom: Freedom | None = None
) -> tuple[Bundle, Freedom, list[CameraTrial]]:
    """Free principal point and distortion step by step as long as the likelihood gains more than chance gives.

    Forward selection: of the models a step richer than the present one the best is taken, if its robust
    log-likelihood exceeds the present one's by more than the penalty and its values are believable. It begins with a
    plain focal length, or with the `freedom` of a selection before.
    """
    rich = eligible_cameras(bundle)  # [C]
    choice = _Choice(distortion=_DISTORTIONS.get(options.distortion, 0))
    if freedom is not None:
        choice = _Choice(
            principal_point=freedom.principal_point,
            distortion=max(_DISTORTIONS.get(model, 0) for model in bundle.camera_model),
        )
    trials: list[CameraTrial] = []
    # With a wide loss the few worst observations would decide instead of the many good ones.
    step = replace(noise_round(bundle), iterations=40, tolerance=1e-5)
    if choice.distortion and freedom is None:
        bundle = _fit(bundle, choice, step, options, np.ones(bundle.n_cameras, bool))
    few = 0 < np.count_nonzero(rich[bundle.camera_of_image]) < FEW_IMAGES
    if few and _richer(choice, bundle, options):
        held = _hold_by_priors(bundle, rich, choice, step, options)
        if held is not None:
            return held
    while rich.any() and _richer(choice, bundle, options):
        # The present model gets the same iterations as its rivals; else convergence looks like evidence.
        bundle = _fit(bundle, choice, step, options, rich)
        best: tuple[float, _Choice, Bundle] | None = None
        for candidate in _richer(choice, bundle, options):
            if candidate.distortion == choice.distortion + 2 and trials[-1].accepted:
                continue  # one coefficient will do for now
            fitted = _fit(bundle, candidate, step, options, rich)
            n_parameters = int(rich.sum()) * (candidate.n_parameters - choice.n_parameters)
            shifts = candidate.principal_point and not choice.principal_point
            gain = _evidence(bundle, fitted, n_parameters)
            if gain > 0:
                back = _fit(_without(fitted, bundle), choice, step, options, rich)
                if _evidence(bundle, back, 0) > 0:  # the steps have gained, not the parameters
                    bundle, gain = back, _evidence(back, fitted, n_parameters)
            accepted = gain > 0 and _believable(fitted) and (not shifts or _in_every_image(bundle, fitted, rich))
            trials.append(CameraTrial(name=candidate.name, evidence=gain, accepted=accepted))
            if accepted and (best is None or gain > best[0]):
                best = (gain, candidate, fitted)
        if best is None:
            break
        _, choice, bundle = best
    return bundle, _freedom(choice, options), trials


def _hold_by_priors(
    bundle: Bundle, rich: np.ndarray, choice: _Choice, step: Round, options: RefineOptions
) -> tuple[Bundle, Freedom, list[CameraTrial]] | None:
    """All that the options leave open is free in `rich` cameras [C] bool, with priors; None if that goes astray."""
    while _richer(choice, bundle, options):
        choice = _richer(choice, bundle, options)[0]
    freedom = _freedom(choice, options)
    sigma = np.full(bundle.intrinsics.shape, np.inf)  # [C, 6]
    sigma[:, [CX, CY]] = PRIOR_SHIFT * bundle.camera_size.max(axis=1, keepdims=True)
    sigma[:, K1] = PRIOR_EDGE / _corner2(bundle)
    sigma[:, K2] = PRIOR_EDGE / _corner2(bundle) ** 2
    strength = np.full(sigma.shape, FIRST_STRENGTH)  # [C, 6]
    fitted = _fit(replace(bundle, prior=strength / sigma**2), choice, step, options, rich)
    wider = camera_uncertainty(believable(fitted), freedom.columns(fitted, rich), step.loss_px).intrinsics_wider
    for pair in ([CX, CY], [K1, K2]):
        strength[:, pair] = STRENGTH * (wider[:, pair] ** 2).mean(axis=1, keepdims=True)
    fitted = _fit(replace(fitted, prior=strength / sigma**2), choice, step, options, rich)
    if not _believable(fitted):
        return None
    evidence = _evidence(bundle, fitted, int(rich.sum()) * choice.n_parameters)
    return fitted, freedom, [CameraTrial(name=f"{choice.name}, with priors", evidence=evidence, accepted=True)]


def separate_cameras(bundle: Bundle, doubtful: np.ndarray, options: RefineOptions) -> Bundle | None:
    """The bundle adjusted with a focal length for each `doubtful` image [N] bool; None if all have that already.

    Photos of equal size from different cameras are put together where nothing else is known of them.
    """
    own = _with_own_cameras(bundle, doubtful)
    if own.n_cameras == bundle.n_cameras or options.focal == "fixed":
        return None
    return adjust(own, ANNEALED, Freedom())


def better_apart(shared: Bundle, own: Bundle, pairs: PairAgreement) -> bool:
    """Whether focal lengths of their own explain the matches better than shared cameras of a richer model.

    A wrong common focal length shows in matches that no longer fit, and in the residuals of those that do. So does a
    shifted principal point: hence the richer model as the rival.
    """
    if _focal_ratio(shared, own) < MIN_FOCAL_RATIO:
        return False
    gain = pairs.share(own) - pairs.share(shared)
    if abs(gain) > CLEAR_SHARE:
        return gain > 0
    return _evidence(shared, own, own.n_cameras - shared.n_cameras) > 0


def _focal_ratio(shared: Bundle, own: Bundle) -> float:
    """The largest ratio of two focal lengths of `own` that are one in `shared`."""
    focal = own.intrinsics[own.camera_of_image, FX]  # [N]
    highest, lowest = np.zeros(shared.n_cameras), np.full(shared.n_cameras, np.inf)
    np.maximum.at(highest, shared.camera_of_image, focal)
    np.minimum.at(lowest, shared.camera_of_image, focal)
    return float((highest / lowest).max())


def _with_own_cameras(bundle: Bundle, chosen: np.ndarray) -> Bundle:
    """Each of the `chosen` images [N] bool with a camera of its own; the first image of a camera keeps it."""
    first = np.zeros(bundle.n_images, bool)
    first[np.unique(bundle.camera_of_image, return_index=True)[1]] = True
    moved = np.flatnonzero(chosen & ~first)
    origin = bundle.camera_of_image[moved]
    camera_of_image = bundle.camera_of_image.copy()
    camera_of_image[moved] = bundle.n_cameras + np.arange(len(moved))
    return replace(
        bundle,
        camera_of_image=camera_of_image,
        camera_size=np.concatenate([bundle.camera_size, bundle.camera_size[origin]]),
        intrinsics=np.concatenate([bundle.intrinsics, bundle.intrinsics[origin]]),
        camera_model=bundle.camera_model + [bundle.camera_model[c] for c in origin],
        prior=np.concatenate([bundle.prior, bundle.prior[origin]]),
    )


def eligible_cameras(bundle: Bundle) -> np.ndarray:
    """Cameras [C] bool with enough images and observations for a richer model."""
    n_images = np.bincount(bundle.camera_of_image, minlength=bundle.n_cameras)
    camera = bundle.camera_of_image[bundle.tracks.image[bundle.alive]]
    n_observations = np.bincount(camera, minlength=bundle.n_cameras)
    return (n_images >= MIN_IMAGES) & (n_observations >= MIN_OBSERVATIONS)


def adjust_with_model(
    bundle: Bundle,
    rounds: tuple[Round, ...],
    freedom: Freedom,
    options: RefineOptions,
    images: np.ndarray | None = None,
) -> Bundle:
    """Adjust `images` [N] bool with the chosen freedom; cameras too poor for it keep all but their focal length."""
    return adjust(bundle, rounds, freedom, images=images, rich=_rich(bundle, options))


def free_intrinsics(bundle: Bundle, freedom: Freedom, options: RefineOptions) -> np.ndarray:
    """Which intrinsics [C, 6] bool of which camera `adjust_with_model` changes."""
    return freedom.columns(bundle, _rich(bundle, options))


def _rich(bundle: Bundle, options: RefineOptions) -> np.ndarray:
    """Cameras [C] bool that may have more than a focal length."""
    return eligible_cameras(bundle) | (options.distortion in ("simple", "radial"))


def _richer(choice: _Choice, bundle: Bundle, options: RefineOptions) -> list[_Choice]:
    """Models above `choice` that the options allow: principal point, one more coefficient, or two at once.

    One coefficient may gain little where two gain much: those of dtu_scan37 have opposite signs (AUC@1 75 -> 81).
    """
    richer = []
    if options.principal_point == "auto" and not choice.principal_point:
        richer.append(replace(choice, principal_point=True))
    square = all(model != "PINHOLE" for model in bundle.camera_model)
    if options.distortion == "auto" and square:
        richer += [replace(choice, distortion=count) for count in range(choice.distortion + 1, 3)]
    return richer


def _freedom(choice: _Choice, options: RefineOptions) -> Freedom:
    return Freedom(
        focal=options.focal != "fixed",
        principal_point=choice.principal_point,
        distortion=choice.distortion > 0,
    )


def _fit(bundle: Bundle, choice: _Choice, step: Round, options: RefineOptions, cameras: np.ndarray) -> Bundle:
    """The bundle adjusted with a richer model for `cameras` [C] bool."""
    name = {0: None, 1: "SIMPLE_RADIAL", 2: "RADIAL"}[choice.distortion]
    model = [name if name and rich else old for old, rich in zip(bundle.camera_model, cameras, strict=True)]
    changed = replace(bundle, camera_model=model)
    return adjust(changed, (step,), _freedom(choice, options), rich=cameras)


def _without(richer: Bundle, poorer: Bundle) -> Bundle:
    """Poses, points and focal lengths of one bundle with the camera model and the other intrinsics of the other."""
    intrinsics = poorer.intrinsics.copy()
    intrinsics[:, [FX, FY]] = richer.intrinsics[:, [FX, FY]]
    return replace(richer, intrinsics=intrinsics, camera_model=poorer.camera_model)


def _evidence(old: Bundle, new: Bundle, n_parameters: int) -> float:
    """Gain of the log-likelihood ratio over the penalty, on the observations that hold in both bundles.

    An observation that holds in one only is a wrong match that found friends by chance more often than not.
    """
    common = old.alive & new.alive  # [K]
    n_tracks = np.count_nonzero(np.bincount(old.tracks.track_of_observation[common]) >= 2)
    freedom = 2 * np.count_nonzero(common) - 3 * n_tracks - 6 * old.n_images
    if freedom <= 0:
        return -np.inf
    # Every point is fitted too, which makes residuals too small; the ratio of counts undoes that.
    shrink = freedom / (2 * np.count_nonzero(common))
    old_error, new_error = reprojection_errors(old)[common], reprojection_errors(new)[common]
    noise2 = np.median(old_error**2) / (2 * np.log(2)) / shrink + 1e-12  # variance of one coordinate
    penalty = BIC_FACTOR * n_parameters * np.log(freedom) + freedom * MIN_SYSTEMATIC_PX**2 / noise2
    gain = _robust_nll(old_error).sum() - _robust_nll(new_error).sum()
    return float(2 * shrink * gain - penalty)


def _in_every_image(old: Bundle, new: Bundle, cameras: np.ndarray) -> bool:
    """Whether the log-likelihood gains in about every image of `cameras` [C] bool: Student's test.

    Of the square roots of the images' gains: a few images that gain most are no disagreement.
    """
    common = old.alive & new.alive & cameras[old.camera_of_image[old.tracks.image]]  # [K]
    image = old.tracks.image[common]
    gain = _robust_nll(reprojection_errors(old)[common]) - _robust_nll(reprojection_errors(new)[common])
    total = np.bincount(image, gain, old.n_images)[np.unique(image)]  # [N]
    root, n = np.sign(total) * np.sqrt(np.abs(total)), len(total)  # [N]
    student = root.mean() / (root.std(ddof=1) / np.sqrt(n) + 1e-12)
    return bool(stdtr(n - 1, -student) < MAX_CHANCE)


def _robust_nll(error: np.ndarray) -> np.ndarray:
    """Negative log-likelihoods of errors [K] under a 2D Cauchy density with its most likely scale."""
    square = np.minimum(error, 1e3) ** 2
    scale2 = np.median(square) + 1e-12
    for _ in range(30):  # expectation maximisation of the scale
        scale2 = np.mean(3 * square / (1 + square / scale2)) / 2 + 1e-12
    return np.log(scale2) + 1.5 * np.log1p(square / scale2)


def _believable(bundle: Bundle) -> bool:
    """Whether the fitted principal points and distortions are those of a real camera."""
    side = bundle.camera_size.max(axis=1)  # [C]
    centre = bundle.camera_size / 2  # [C, 2]
    shift = np.linalg.norm(bundle.intrinsics[:, [CX, CY]] - centre, axis=1)  # [C]
    corner2 = _corner2(bundle)  # [C]
    k1, k2 = bundle.intrinsics[:, K1], bundle.intrinsics[:, K2]
    corner = np.abs(corner2 * (k1 + corner2 * k2))
    slope = 1 + corner2 * (3 * k1 + 5 * corner2 * k2)  # the image must not fold over
    return bool((shift < MAX_SHIFT * side).all() and (corner < MAX_EDGE_DISTORTION).all() and (slope > 0.1).all())


def _corner2(bundle: Bundle) -> np.ndarray:  # [C]
    """Squared radius of the ray of the image corner."""
    return ((bundle.camera_size / 2 / bundle.intrinsics[:, :2]) ** 2).sum(axis=1)
