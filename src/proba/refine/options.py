"""Options of the refinement, one dataclass for each stage. Pixels are those of an image scaled to 1024 px.

What measured the defaults is in docs/experiments.md, "Refinement: thresholds and what measured them".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from proba.subpixel import SubpixelOptions


@dataclass(frozen=True, kw_only=True)
class TrackOptions:
    """How many tracks the stages use."""

    adjusted: int = 3000
    """Tracks while worlds are compared and images rescued: more find the same worlds in more time."""
    final: int = 8000
    """Tracks in the last adjustment: more are not more accurate."""
    points: int = 100_000
    """Tracks that become points of the result, triangulated with the final cameras."""
    crowd: int = 50
    """Sets of more images get more tracks in proportion, so that each image keeps its share."""
    fewest: int = 8
    """With fewer tracks there is nothing to adjust."""
    observations: int = 6
    """Observations for each track on average, at most: bounds memory where tracks are long."""
    pair_quota: tuple[int, int] = (15, 60)
    """Bounds of the tracks that every pair of images gets first, so that no pair hangs loose."""
    cells: tuple[int, int] = (4, 32)
    """Bounds of the cells along an image side, each of which gets a track, so that the border is held too."""

    def __post_init__(self) -> None:
        if min(self.adjusted, self.final, self.points) < 100:
            raise ValueError("the tracks (adjusted, final, points) must be at least 100")


@dataclass(frozen=True, kw_only=True)
class AgreementOptions:
    """How the matches of single pairs judge a world."""

    samples: int = 300
    """Matches of a pair that are looked at; more say nothing new about it."""
    potential_px: float = 2.0
    """Epipolar distance of an inlier of a pair's own fundamental matrix, pixels."""
    support_px: float = 3.0
    """Epipolar distance of an inlier of the world's poses, pixels; wider, because one model serves all pairs."""
    min_matches: int = 10
    """Pairs of fewer matches explain nothing: eight always fit."""
    min_inliers: float = 20
    """Pairs of fewer explainable matches do not judge images: chance is too strong."""
    broken_below: float = 0.8
    """A pair is broken where the world explains less than this part of what the pair alone can explain."""
    max_broken: float = 0.25
    """An image is taken out where more than this part of its matches lies in broken pairs."""
    ransac_iterations: tuple[int, int] = (50, 500)
    """Fewest and most iterations for the fundamental matrix of a pair."""


@dataclass(frozen=True, kw_only=True)
class WorldOptions:
    """Which of the solver's worlds is taken. Shares are of the explainable matches."""

    most: int = 3
    """Worlds that are polished at most, for each run of the solver."""
    good_share: float = 0.97
    """A world that explains a larger share is taken without a look at the others."""
    poor_share: float = 0.75
    """Worlds that explain a smaller part of what is explainable have failed, even if two agree."""
    agree_deg: float = 0.3
    """Two worlds are the same when their relative rotations differ by less, degrees ..."""
    agree_share: float = 0.02
    """... and their explained shares by less; worlds that fell into one basin differ by far less than that."""
    agree_min_share: float = 0.6
    """Worlds that agree are right only if they explain this part: wrong ones can agree too, at small shares."""

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"most worlds must be at least 1, got {self.most}")


@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """When a single image is placed by the points and neighbours of others."""

    min_inliers: int = 10
    """Points that must agree on an absolute pose: fewer agree by chance."""
    sure_inliers: int = 30
    """Inliers from which the two-view geometry is not asked for a second opinion ..."""
    sure_share: float = 0.4
    """... if they are this share of the observations."""
    fov_deg: tuple[float, ...] = (50.0, 66.0, 36.0, 85.0, 25.0)
    """Fields of view along the longest side that are tried where none is known, the common ones first, degrees."""
    other_focal_gain: float = 1.1
    """Another focal length than the present one needs this many times the inliers."""
    candidates: int = 50
    """Images that are tried at a time, those that see most known points first: where one of them is sure, the others
    can wait."""
    point_px: float = 6.0
    """Reprojection error of an inlier; wide, because the points come from a rough world."""
    point_iterations: int = 5000
    """RANSAC iterations at most, when an image is placed by points: enough for one inlier in seven. Most end earlier,
    as soon as the inliers they have make a better pose unlikely."""
    pair_px: float = 1.5
    """Epipolar distance of an inlier."""
    pair_iterations: int = 1000
    """RANSAC iterations at most, when an image is placed by a neighbour: enough for one inlier in two."""
    min_iterations: int = 100
    """RANSAC iterations at least."""
    pair_inliers: int = 40
    """Matches that must agree on a relative pose ..."""
    pair_share: float = 0.5
    """... and their share of all matches. More than an absolute pose needs: a match tells two views only that a point
    lies on a line, so that wrong ones agree more easily."""
    pair_known: int = 20
    """Points of known depth that the placed image must have, for the scale."""
    pair_scaled: int = 8
    """Matches that must lie near such points, for a median."""


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    """When images ran away whose scale nothing holds."""

    enabled: bool = False
    """Such images do not count as placed. Off: what explains the matches counts, however far away. It was seen to find
    them in a synthetic city, where their loss gained the others nothing."""
    min_images: int = 100
    """Sets of fewer images are not asked: there it was not measured."""
    most_ratio: float = 3.0
    """An image may see what it shares with them at this many times the depth of what it shares with the others."""
    least_points: int = 8
    """Pairs that share fewer points do not count."""
    least_common: int = 3
    """So many points that three images see hold the scale of two pairs of them."""


@dataclass(frozen=True, kw_only=True)
class RescueOptions:
    """Badly placed images are peeled off and placed again by the images that agree."""

    rounds: int = 3
    """How often that is done; 0 turns it off."""
    min_images: int = 4
    """With fewer images there is no majority that could tell which of them are wrong."""
    min_core: int = 3
    """Images that must agree with each other; with fewer the world is left as it is."""
    min_gain: float = 0.004
    """Gain in the explained share below which another round is not worth its time."""
    runaway: float = 4.0
    """An image with a camera of its own has run away when its focal length differs from the median by this factor: far
    away and nearly parallel, it fits most epipolar lines."""
    rejoin_px: float = 10.0
    """Error of an observation that may help to fit a newly placed image in, pixels."""
    finish_px: float = 12.0
    """Error of an observation that may take part when all are placed, pixels."""
    images_per_adjustment: int = 8
    """All are adjusted when an eighth is new: after each single image costs more than it gives."""
    scale: ScaleOptions = field(default_factory=ScaleOptions)
    """Images that ran away along a chain are not placed."""


@dataclass(frozen=True, kw_only=True)
class GrowOptions:
    """Where all worlds failed, cameras are placed one by one from the strongest pair: a world named `grown`."""

    enabled: bool = True
    """Off in the paper's strict regime (`hypotheses="cold"`), where only the solver's worlds may place cameras."""
    sure_share: float = 0.9
    """It is tried where a single world explains a smaller part of what is explainable."""
    clear_gain: float = 0.02
    """The grown world must explain this much more: as much by chance happens to wrong ones."""
    trial_images: int = 40
    """Of more images so many are placed from each field of view, and only the best one goes on."""


@dataclass(frozen=True, kw_only=True)
class SeparateOptions:
    """When photos that share a camera only by their size get a focal length each."""

    enabled: bool = True
    """Off: photos of one size share a camera whatever the matches say."""
    clear_share: float = 0.05
    """A difference in explained matches that decides alone; repeated structures give and take single pairs."""
    min_focal_ratio: float = 1.15
    """Focal lengths that differ by a smaller factor are those of one camera: noise asks for as much."""


@dataclass(frozen=True, kw_only=True)
class CameraModelOptions:
    """Which intrinsics beside the focal length are estimated."""

    principal_point: Literal["auto", "centre"] = "auto"
    """`auto` frees the principal point when the likelihood gains, and with a prior in small sets; `centre` keeps it."""
    distortion: Literal["auto", "none", "simple", "radial"] = "auto"
    """`auto` decides by the likelihood; `simple` and `radial` estimate one or two coefficients in any case."""
    min_images: int = 3
    """Cameras with fewer images keep the simple model: they could trade a shift against a turn."""
    min_observations: int = 500
    """Cameras with fewer observations keep the simple model too."""
    max_shift: float = 0.05
    """Largest believable shift of the principal point from the centre, in longest sides."""
    max_edge_distortion: float = 0.4
    """Largest believable radial displacement in the image corner, relative to the radius."""
    min_edge_slope: float = 0.1
    """Smallest believable slope of the radius in the image corner: the image must not fold over."""
    bic_factor: float = 2.0
    """Multiple of the BIC penalty that a model must gain: residuals of real matches are not independent."""
    max_chance: float = 0.1
    """Level of the test that a shifted principal point gains in every image: it is easily mistaken for a turn."""
    min_systematic_px: float = 0.015
    """Root mean square of the systematic residuals that a model must explain: keypoints have biases of this size."""
    few_images: int = 12
    """Sets of fewer images cannot tell by tests which model holds; there all is free, with priors."""
    prior_shift: float = 0.015
    """Standard deviation of the prior of the principal point, in longest sides."""
    prior_edge: float = 0.02
    """Standard deviation of the prior of the radial displacement in the image corner, relative to the radius."""
    prior_tilt: float = 0.001
    """Standard deviation of the prior of tangential distortion in the image corner, relative to the radius."""
    first_strength: float = 10.0
    """How many times a prior counts at first, when it is not known how far residuals err together."""
    strength: float = 3.0
    """How many times it counts then, besides how much more the parts of the image plane disagree than chance gives."""
    iterations: int = 40
    """Iterations of the adjustment that compares models; too few look like evidence."""
    trial_images: int = 60
    """In larger sets models are compared on so many images, around the one with most observations."""
    trial_points: int = 20
    """Points that two of these must share to count as neighbours."""


@dataclass(frozen=True, kw_only=True)
class PixelOptions:
    """Where matches are coarse and the photos at hand, observations move to where the grey values agree."""

    enabled: bool = True
    """Off: the places of the matcher are kept."""
    coarse_px: float = 0.3
    """Matches of less noise are left alone: what patches err in common weighs more then. Pixels."""
    sharper: float = 0.65
    """The new places are taken if their noise is this part of the old or less: so where the matcher is the limit."""
    trial: int = 3
    """Whether that is so is tried with every third track first, which takes a third of the time."""
    max_side_px: int = 1600
    """Larger photos are reduced to this longest side: their pixels are rarely sharp."""
    min_found: float = 0.05
    """Where a smaller share of the observations that connect two images is found, all of them stay where they are."""
    min_scale: float = 0.4
    """Views that show the surroundings of a point smaller than this, relative to the reference, are not compared."""
    search: SubpixelOptions = field(
        default_factory=lambda: SubpixelOptions(
            radius=7, max_move_px=2.0, bend=0.05, min_correlation=0.9, max_std_px=1.0
        )
    )
    """The search of a patch. Bend: surfaces rarely face the cameras. Weak texture (max_std_px) is better than none."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One adjustment, and the judgement of the observations after it."""

    loss_px: float
    """Scale of the Cauchy loss, pixels."""
    keep_px: float
    """Observations with a larger error do not take part in the next round, pixels."""
    min_angle_deg: float = 0.0
    """Points seen under a smaller angle do not count as reconstructed, degrees."""
    iterations: int = 25
    """Steps at most."""
    tolerance: float = 1e-5
    """Stop when the cost falls by a smaller share than this."""


@dataclass(frozen=True, kw_only=True)
class AdjustOptions:
    """The bundle adjustments."""

    annealed: tuple[Round, ...] = (
        Round(loss_px=20, keep_px=50, tolerance=1e-3),
        Round(loss_px=6, keep_px=12, tolerance=1e-3),
        Round(loss_px=2, keep_px=4, min_angle_deg=0.3, tolerance=1e-3),
        Round(loss_px=2, keep_px=4, min_angle_deg=0.3, tolerance=1e-4),
    )
    """From a rough world: a wide loss has a wide basin, a narrow one is accurate."""
    settle: tuple[Round, ...] = (
        Round(loss_px=4, keep_px=8, tolerance=1e-3),
        Round(loss_px=2, keep_px=4, min_angle_deg=0.3, tolerance=1e-4),
    )
    """From a world that is right up to a few pixels."""
    rejoin: tuple[Round, ...] = (
        Round(loss_px=4, keep_px=10, tolerance=1e-3, iterations=10),
        Round(loss_px=2, keep_px=5, tolerance=1e-3, iterations=10),
    )
    """While images are placed one by one: short, because it is repeated."""
    rejoined: tuple[Round, ...] = (
        Round(loss_px=6, keep_px=12, tolerance=1e-3, iterations=15),
        Round(loss_px=2, keep_px=4, min_angle_deg=0.3, tolerance=1e-4),
        Round(loss_px=2, keep_px=4, min_angle_deg=0.3),
    )
    """After all are placed."""
    loss_per_noise: float = 2.0
    """Scale of the last robust losses in standard deviations of the noise ..."""
    loss_per_noise_of_collections: float = 8.0
    """... and where most photos have a camera of their own: what models lack is no outlier there."""
    last_loss_px: tuple[float, float] = (0.3, 2.0)
    """Bounds of the scale of the last losses, pixels."""
    keep_per_noise: float = 4.0
    """Largest error of an observation in the result, in standard deviations of the noise ..."""
    keep_px: tuple[float, float] = (4.0, 8.0)
    """... with these bounds, pixels."""
    min_angle_deg: float = 0.3
    """Points seen under a smaller angle have no depth worth the name, degrees."""
    focal_bounds: tuple[float, float] = (0.15, 20.0)
    """Focal lengths in longest sides (147 to 3 degrees); what leaves these bounds has diverged."""
    steps_of_all: int = 5
    """Steps of all cameras on all points at the end: the rest is a fraction of a standard deviation."""
    neighbours: int = 8
    """Points around a two-view point, held by more views, that judge its depth."""
    depth_margin: float = 0.05
    """How far beyond their depths it may lie, relative ..."""
    ray_noise_deg: float = 0.1
    """... and what rays that nearly meet may err in their angle besides, degrees."""


@dataclass(frozen=True, kw_only=True)
class UncertaintyOptions:
    """Standard deviations, and what is said about them."""

    cells: int = 4
    """Cells of the image plane along a side, whose points are asked one by one what they say of the cameras."""
    unseen_std: float = 1.0
    """Standard deviation of what nothing observes: a radian, and a typical depth (the scene is scaled to depth one)."""


@dataclass(frozen=True, kw_only=True)
class ShutterOptions:
    """When photos count as read row by row. Pixels are those of an image scaled to 1024 px."""

    enabled: bool = True
    """Off: nobody looks."""
    images: int = 40
    """Of more images so many are asked, those in the middle of the order of names."""
    observations: int = 10_000
    """Observations that are asked at most."""
    min_images: int = 4
    """Fewer images say nothing ..."""
    min_observations: int = 500
    """... nor do fewer observations."""
    turn: float = 0.02
    """Standard deviation of the turn of a camera while a photo is read, rad ..."""
    shift: float = 0.02
    """... and of its shift, in median depths: a prior where the photos do not tell."""
    min_ratio: float = 2.0
    """How many times as much rows must explain beyond columns as columns beyond rows ..."""
    max_chance: float = 1e-6
    """... and how rarely chance may do so."""
    min_sigmas: float = 5.0
    """Standard deviations by which one read-out time of all photos must differ from zero ..."""
    clear: float = 3.0
    """... how many times that of columns it must be ..."""
    max_readout: float = 1.5
    """... and how large it may be, in times between photos."""
    rounds: int = 3
    """How often observations are moved to where the middle row would have seen them, and the cameras adjusted; 0: they
    stay, and the shutter is only reported."""
    bend_px: float = 1.0
    """The report warns where observations move by more on average and stay."""


@dataclass(frozen=True, kw_only=True)
class NoteOptions:
    """When the user is warned."""

    max_focal_std: float = 0.05
    """Relative standard deviation above which a focal length counts as not observed."""
    flat_focal_std: float = 0.01
    """The same in a flat scene, where the residuals tell less than the linearised covariance believes."""
    flatness: float = 0.01
    """A scene is flat when nine tenths of its points are this close to one plane, in units of its extent."""


@dataclass(frozen=True, kw_only=True)
class RefineOptions:
    """How a rough world becomes an accurate reconstruction."""

    enabled: bool = True
    """Off: the cameras and points of the result are the solver's own, for comparison."""
    tracks: TrackOptions = field(default_factory=TrackOptions)
    pairs: AgreementOptions = field(default_factory=AgreementOptions)
    worlds: WorldOptions = field(default_factory=WorldOptions)
    placement: PlacementOptions = field(default_factory=PlacementOptions)
    rescue: RescueOptions = field(default_factory=RescueOptions)
    growing: GrowOptions = field(default_factory=GrowOptions)
    separate: SeparateOptions = field(default_factory=SeparateOptions)
    camera_model: CameraModelOptions = field(default_factory=CameraModelOptions)
    pixels: PixelOptions = field(default_factory=PixelOptions)
    adjust: AdjustOptions = field(default_factory=AdjustOptions)
    uncertainty: UncertaintyOptions = field(default_factory=UncertaintyOptions)
    shutter: ShutterOptions = field(default_factory=ShutterOptions)
    notes: NoteOptions = field(default_factory=NoteOptions)
