"""Which camera model the data can carry: principal point and radial distortion are freed if it pays.

A few images cannot tell whether it does. There all is free, and priors hold what the data leave open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from proba.cameras import AUTO
from proba.geometry.camera import CX, CY, FX, FY, K1, K2, K3, K4, P1, P2, is_fisheye
from proba.refine.adjust import Freedom, adjust, assumed_noise_px, noise_round
from proba.refine.bundle import Bundle, with_focal_prior
from proba.refine.evidence import corner2, evidence, gains_in_every_image, real_cameras
from proba.refine.options import CameraModelOptions, RefineOptions, Round
from proba.refine.separate import better_apart
from proba.refine.state import CameraTrial, State
from proba.refine.triangulate import believable
from proba.refine.uncertainty import camera_uncertainty

_LADDER = ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV")
_FISHEYES = ("SIMPLE_FISHEYE", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "OPENCV_FISHEYE", "THIN_PRISM_FISHEYE")
"""Models of one lens, each with all parameters of those before it: a rung is a place in the row."""
_RUNG = {name: rung for names in (_LADDER, _FISHEYES) for rung, name in enumerate(names)} | {"simple": 1, "radial": 2}
"""Rungs of the options' and the models' names; others stand on the lowest."""
_RADIAL, _TANGENTIAL, _TOP = 2, 3, 4
_COEFFICIENTS = (("k1",), ("k2",), ("p1", "p2"), ("k3",)), (("k1",), ("k2",), ("k3", "k4"), ("p1", "p2"))
"""What each rung adds, of the perspective lens and of the fisheye."""


def choose_camera_model(state: State) -> State:
    """Stage: the richest camera model that the matches carry, of shared cameras or of separate ones."""
    chosen = _with_model(state)
    apart = state.apart
    if apart is None or not better_apart(chosen.bundle, apart.bundle, state.observations.pairs, state.options):
        return chosen
    placed_anew = state.placed_anew | apart.anew
    return _with_model(replace(state, bundle=apart.bundle, placed_anew=placed_anew, unplaced=apart.left))


def choose_again(state: State) -> State:
    """What coarse observations leave undecided, sharper ones may tell: the selection goes on from the present model."""
    model = state.solution.cameras.model
    bundle, freedom, trials = select_camera_model(state.bundle, state.options, state.freedom, model=model)
    return replace(state, bundle=bundle, freedom=freedom, trials=(*state.trials, *trials))


def _with_model(state: State) -> State:
    bundle, freedom, trials = select_camera_model(state.bundle, state.options, model=state.solution.cameras.model)
    return replace(state, bundle=bundle, freedom=freedom, trials=tuple(trials))


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """Extra freedom above a plain focal length."""

    principal_point: bool = False
    distortion: int = 0
    """The rung of the model."""
    fisheye: bool = False
    forced: bool = False
    """Whether the user has named the model: then it stays."""

    @property
    def coefficients(self) -> list[str]:
        return [name for names in _COEFFICIENTS[self.fisheye][: self.distortion] for name in names]

    @property
    def n_parameters(self) -> int:
        return 2 * self.principal_point + len(self.coefficients)

    @property
    def name(self) -> str:
        parts = ["principal point"] * self.principal_point + self.coefficients
        return " + ".join(parts) or ("fisheye" if self.fisheye else "pinhole")


def select_camera_model(
    bundle: Bundle, options: RefineOptions, freedom: Freedom | None = None, *, model: str = AUTO
) -> tuple[Bundle, Freedom, list[CameraTrial]]:
    """Free principal point and distortion step by step as long as the likelihood gains more than chance gives.

    Forward selection: of the models a step richer than the present one the best is taken, if its robust
    log-likelihood exceeds the present one's by more than the penalty and its values are believable. It begins with a
    plain focal length, or with the `freedom` of a selection before. A `model` that the user has named is taken. Of many
    images only a part is asked.
    """
    # A model that is given is for all cameras, however few images they have.
    given = freedom is None and _first_choice(bundle, options.camera_model, None, model).distortion > 0
    part = None if given or model != AUTO else _trial_part(bundle, options.camera_model)
    if part is None:
        return _selected(bundle, options, freedom, model)
    tried, found, trials = _selected(part, options, freedom, model)
    rich = eligible_cameras(bundle, options.camera_model)  # [C]
    choice = _first_choice(tried, options.camera_model, found, model)
    step = _trial_round(bundle, options)
    fitted = _fit(bundle, choice, step, options, rich)
    if not real_cameras(fitted, options.camera_model):
        return _selected(bundle, options, freedom, model)
    return _weighed(fitted, found, step, options), found, trials


def _trial_part(bundle: Bundle, options: CameraModelOptions) -> Bundle | None:
    """Images of the cameras that may get a richer model: the neighbours of the best observed one, then theirs, in
    random order. None where the set is small, or hangs together so loosely that a part would say little."""
    rich = eligible_cameras(bundle, options)[bundle.camera_of_image]  # [N]
    if bundle.n_images <= options.trial_images or rich.sum() < options.few_images:
        return None
    observed, tracks = bundle.alive & rich[bundle.tracks.image], bundle.tracks
    sees = csr_array(
        (np.ones(int(observed.sum()), np.int32), (tracks.image[observed], tracks.track_of_observation[observed])),
        shape=(bundle.n_images, tracks.n_tracks),
    )
    shared = (sees @ sees.T).tocoo()
    near = shared.data >= options.trial_points
    links = csr_array((np.ones(int(near.sum())), (shared.row[near], shared.col[near])), shape=shared.shape)
    root = int(np.asarray(sees.sum(axis=1)).argmax())
    steps = dijkstra(links, indices=root, unweighted=True)  # [N]
    order = np.lexsort((np.random.default_rng(0).permutation(len(steps)), steps))[: options.trial_images]
    if not np.isfinite(steps[order]).all():
        return None
    part = bundle.some_images(np.sort(order))
    rich = eligible_cameras(part, options)[part.camera_of_image]
    return part if rich.sum() >= options.few_images else None


def _trial_round(bundle: Bundle, options: RefineOptions) -> Round:
    """The adjustment that compares models. With a wide loss the few worst observations would decide."""
    return replace(noise_round(bundle, options.adjust), iterations=options.camera_model.iterations, tolerance=1e-5)


def _selected(
    bundle: Bundle, options: RefineOptions, freedom: Freedom | None, model: str
) -> tuple[Bundle, Freedom, list[CameraTrial]]:
    """The forward selection on all images."""
    rich = eligible_cameras(bundle, options.camera_model)  # [C]
    choice = _first_choice(bundle, options.camera_model, freedom, model)
    step = _trial_round(bundle, options)
    if choice.distortion and freedom is None:
        everyone = np.ones(bundle.n_cameras, bool)
        for rough in options.adjust.annealed if choice.fisheye else ():  # the guessed lens may be far off
            bundle = _fit(bundle, choice, rough, options, everyone)
        bundle = _fit(bundle, choice, step, options, everyone)
    few = 0 < np.count_nonzero(rich[bundle.camera_of_image]) < options.camera_model.few_images
    if few and _richer(choice, bundle, options.camera_model):
        held = _hold_by_priors(bundle, rich, choice, step, options)
        if held is not None:
            return held
    trials: list[CameraTrial] = []
    while rich.any() and _richer(choice, bundle, options.camera_model):
        # The present model gets the same iterations as its rivals; else convergence looks like evidence.
        bundle = _fit(bundle, choice, step, options, rich)
        bundle, best = _best_richer(bundle, choice, step, options, rich, trials)
        if best is None:
            break
        choice, bundle = best
    return _weighed(bundle, _freedom(choice), step, options), _freedom(choice), trials


def _first_choice(bundle: Bundle, options: CameraModelOptions, freedom: Freedom | None, model: str) -> _Choice:
    """The model that a selection begins with."""
    free = [name for name, told in zip(bundle.camera_model, bundle.calibrated, strict=True) if not told]
    choice = _Choice(fisheye=any(is_fisheye(name) for name in free), forced=model != AUTO)
    if freedom is not None:
        rung = max((_RUNG.get(name, 0) for name in free), default=0)
        return replace(choice, principal_point=freedom.principal_point, distortion=rung)
    return replace(choice, distortion=_RUNG.get(model if choice.forced else options.distortion, 0))


def _best_richer(
    bundle: Bundle, choice: _Choice, step: Round, options: RefineOptions, rich: np.ndarray, trials: list[CameraTrial]
) -> tuple[Bundle, tuple[_Choice, Bundle] | None]:
    """The bundle, better converged if the trials showed how, and the best of the richer models if any is accepted."""
    limits = options.camera_model
    best: tuple[float, _Choice, Bundle] | None = None
    for candidate in _richer(choice, bundle, limits):
        if candidate.distortion == choice.distortion + 2 and trials[-1].accepted:
            continue  # one coefficient will do for now
        tilts = not choice.fisheye and candidate.distortion == _TANGENTIAL > choice.distortion
        fitted = _fit(bundle, candidate, step, options, rich)
        n_parameters = int(rich.sum()) * (candidate.n_parameters - choice.n_parameters)
        shifts = candidate.principal_point and not choice.principal_point
        gain = evidence(bundle, fitted, n_parameters, limits)
        if gain > 0:
            back = _fit(_without(fitted, bundle), choice, step, options, rich)
            if evidence(bundle, back, 0, limits) > 0:  # the steps have gained, not the parameters
                bundle, gain = back, evidence(back, fitted, n_parameters, limits)
        accepted = gain > 0 and real_cameras(fitted, limits)
        if accepted and (shifts or tilts):  # both are easily mistaken for a turn
            accepted = gains_in_every_image(bundle, fitted, rich, limits.max_chance)
        trials.append(CameraTrial(name=candidate.name, evidence=gain, accepted=accepted))
        if accepted and (best is None or gain > best[0]):
            best = (gain, candidate, fitted)
    return bundle, None if best is None else best[1:]


def _hold_by_priors(
    bundle: Bundle, rich: np.ndarray, choice: _Choice, step: Round, options: RefineOptions
) -> tuple[Bundle, Freedom, list[CameraTrial]] | None:
    """All that the options leave open is free in `rich` cameras [C] bool, with priors; None if that goes astray."""
    limits = options.camera_model
    while (richer := _richer(choice, bundle, limits)) and (choice.fisheye or richer[0].distortion <= _RADIAL):
        choice = richer[0]
    freedom = _freedom(choice)
    sigma = np.full(bundle.intrinsics.shape, np.inf)  # [C, WIDTH]
    sigma[:, [FX, FY]] = bundle.focal_prior_sigma[:, None]
    sigma[:, [CX, CY]] = limits.prior_shift * bundle.camera_size.max(axis=1, keepdims=True)
    for power, column in enumerate((K1, K2, K3, K4), 1):
        sigma[:, column] = limits.prior_edge / corner2(bundle) ** power
    sigma[:, [P1, P2]] = (limits.prior_tilt / np.sqrt(corner2(bundle)))[:, None]
    strength = np.full(sigma.shape, limits.first_strength)  # [C, WIDTH]
    plain = ~bundle.calibrated
    fitted = _fit(_with_prior(bundle, plain, strength / sigma**2), choice, step, options, rich)
    wider = _wider(fitted, freedom.columns(fitted, rich), step, options)  # [C, WIDTH]
    strength[:, [FX, FY]] = wider[:, [FX]] ** 2
    for pair in ([CX, CY], [K1, K2], [P1, P2], [K3, K4]):
        strength[:, pair] = limits.strength * (wider[:, pair] ** 2).mean(axis=1, keepdims=True)
    fitted = _fit(_with_prior(fitted, plain, strength / sigma**2), choice, step, options, rich)
    if not real_cameras(fitted, limits):
        return None
    gain = evidence(bundle, fitted, int(rich.sum()) * choice.n_parameters, limits)
    return fitted, freedom, [CameraTrial(name=f"{choice.name}, with priors", evidence=gain, accepted=True)]


def _with_prior(bundle: Bundle, chosen: np.ndarray, prior: np.ndarray) -> Bundle:
    """The bundle with `prior` [C, WIDTH] for the `chosen` cameras [C] bool."""
    return replace(bundle, prior=np.where(chosen[:, None], prior, bundle.prior))


def _wider(bundle: Bundle, free: np.ndarray, step: Round, options: RefineOptions) -> np.ndarray:  # [C, WIDTH]
    """How many times as uncertain the `free` intrinsics [C, WIDTH] bool are as independent residuals would make them.

    Residuals that err together say less than their number: a prior weighs as much more.
    """
    noise = assumed_noise_px(bundle, step.loss_px, options.adjust)
    sound = believable(bundle, options.adjust)
    return camera_uncertainty(sound, free, step.loss_px, noise, options.uncertainty).intrinsics_wider


def _weighed(bundle: Bundle, freedom: Freedom, step: Round, options: RefineOptions) -> Bundle:
    """The bundle adjusted with the right weight of focal lengths that are known but not held, if there are any."""
    if np.isinf(bundle.focal_prior_sigma).all():
        return bundle
    rich = rich_cameras(bundle, options.camera_model)
    wider = _wider(bundle, freedom.columns(bundle, rich), step, options)
    weighed = with_focal_prior(bundle, wider[:, FX] ** 2)
    return adjust(weighed, (step,), freedom, options.adjust, rich=rich)


def eligible_cameras(bundle: Bundle, options: CameraModelOptions) -> np.ndarray:
    """Cameras [C] bool with enough images and observations for a richer model."""
    n_images = np.bincount(bundle.camera_of_image, minlength=bundle.n_cameras)
    camera = bundle.camera_of_image[bundle.tracks.image[bundle.alive]]
    n_observations = np.bincount(camera, minlength=bundle.n_cameras)
    many = (n_images >= options.min_images) & (n_observations >= options.min_observations)
    return many & ~bundle.calibrated


def rich_cameras(bundle: Bundle, options: CameraModelOptions) -> np.ndarray:
    """Cameras [C] bool that may have more than a focal length in adjustments after the selection."""
    return eligible_cameras(bundle, options) | (options.distortion in ("simple", "radial"))


def _richer(choice: _Choice, bundle: Bundle, options: CameraModelOptions) -> list[_Choice]:
    """Models above `choice` that the options allow: principal point, the next rung, or both radial ones at once.

    One coefficient may gain little where two of opposite signs gain much.
    """
    richer = []
    if options.principal_point == "auto" and not choice.principal_point:
        richer.append(replace(choice, principal_point=True))
    square = all(model != "PINHOLE" for model in bundle.camera_model)
    if options.distortion == "auto" and square and not choice.forced:
        rungs = range(choice.distortion + 1, max(choice.distortion + 1, _RADIAL) + 1)
        top = _TANGENTIAL if choice.fisheye else _TOP
        richer += [replace(choice, distortion=rung) for rung in rungs if rung <= top]
    return richer


def _freedom(choice: _Choice) -> Freedom:
    return Freedom(
        principal_point=choice.principal_point,
        distortion=choice.distortion > 0,
    )


def _fit(bundle: Bundle, choice: _Choice, step: Round, options: RefineOptions, cameras: np.ndarray) -> Bundle:
    """The bundle adjusted with a richer model for `cameras` [C] bool."""
    name = (_FISHEYES if choice.fisheye else _LADDER)[choice.distortion] if choice.distortion else None
    cameras = cameras & ~bundle.calibrated
    model = [name if name and rich else old for old, rich in zip(bundle.camera_model, cameras, strict=True)]
    changed = replace(bundle, camera_model=model)
    return adjust(changed, (step,), _freedom(choice), options.adjust, rich=cameras)


def _without(richer: Bundle, poorer: Bundle) -> Bundle:
    """Poses, points and focal lengths of one bundle with the camera model and the other intrinsics of the other."""
    intrinsics = poorer.intrinsics.copy()
    intrinsics[:, [FX, FY]] = richer.intrinsics[:, [FX, FY]]
    return replace(richer, intrinsics=intrinsics, camera_model=poorer.camera_model)
