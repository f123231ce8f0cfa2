"""The first-order solve: gradients from the fused kernel, AdamW on all worlds at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from proba import kernels, objective
from proba.cameras import CameraSetup
from proba.errors import GeometryError
from proba.geometry import se3, so3
from proba.graph import ViewGraph
from proba.known_poses import KnownPoses
from proba.matches import Matches
from proba.objective import EdgeEvaluation, Minibatch
from proba.objective.edge_weights import ema_update, reliability
from proba.objective.mirror import mirror_distance, mirror_weight
from proba.solution import Solution
from proba.solver.checkpoint import fingerprint, load_checkpoint, save_checkpoint
from proba.solver.given_start import GIVEN_SOLVED
from proba.solver.hypotheses import EpipolarScore, portfolio
from proba.solver.options import SolverOptions, value_at
from proba.solver.poses import pivot_gradient, pivot_twist
from proba.solver.problem import Problem, make_problem
from proba.solver.two_view import SEEDED
from proba.solver.worlds import Worlds, start_worlds
from proba.threads import one_library_thread

REPORT_EVERY = 50
EARLY_REPORT_EVERY, EARLY_SHARE = 10, 0.1
"""Observers are called more often during the first share of the iterations, in which poses move most."""
GLANCE_SAMPLES = 2000
"""Matches that rank the worlds for a display; all of `EpipolarScore` would take a fifth of the solve."""
RUNNING_RATE = 0.02


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a progress bar or a viewer gets every few iterations."""

    iteration: int
    iterations: int
    best: int
    """Index of the world with the most support by epipolar geometry."""
    loss: float
    """Running loss of the best world."""
    median_px: float
    """Median epipolar distance of the best world, in pixels of a 1024 px image."""
    fov_deg: float
    """Median field of view of the best world along the longest side."""
    seconds_left: float
    state: Worlds
    """Where the solver has them, perhaps on a GPU."""
    problem: Problem

    @cached_property
    def worlds(self) -> Worlds:
        """The state, in the processor's memory."""
        return self.state.to(torch.device("cpu"))


Callback = Callable[[Progress], None]


class Solver:
    """All hypotheses of one connected view graph. Matches and state are where the machine works, and stay there."""

    def __init__(self, problem: Problem, options: SolverOptions):
        self.problem, self.options = problem, options
        fused = options.backend == "fused"
        self.machine = kernels.machine(options.device if fused else "cpu")
        self.evaluate = self.machine.evaluate if fused else objective.evaluate
        home = self.machine.home
        self.matches = problem.matches.to(home)
        self.edges = self.matches.edges.long()
        self.tree = self.machine.pose_tree(problem.tree, problem.matches.edges.long())
        self.worlds = start_worlds(problem, portfolio(problem, options), options).to(home)
        self.camera_of_image, self.known_log_tan = problem.camera_of_image.to(home), problem.known_log_tan.to(home)
        self.held = torch.from_numpy(problem.cameras.held).to(home)
        self.mirror_signs = torch.tensor(se3.MIRROR_SIGNS).to(home)
        self.sum_cameras = self.machine.adder(problem.camera_of_image, problem.n_cameras)
        self.sum_nodes = self.machine.adder(problem.matches.edges.long().T.reshape(-1), problem.n_images)
        self._windows: tuple[int, torch.Tensor] = (-1, torch.empty(0))
        self._pairs: tuple[list[int | None], tuple[torch.Tensor, ...]] = ([], ())
        self.iteration = 0
        self.interrupted = False
        self.history: dict[str, list[tuple[int, float]]] = {name: [] for name in self.worlds.names}
        """Running loss of every world, as (iteration, loss)."""
        self.damping = 1.0
        """Factor on all step sizes, halved when every world diverges."""
        self.score = EpipolarScore(self.matches)
        self.glance = EpipolarScore(self.matches, GLANCE_SAMPLES)
        separate = problem.n_cameras > max(1, problem.n_images // 2)
        sizes = options.step_sizes
        self.focal_steps = sizes.focal_separate if separate else sizes.focal
        self._good = self.worlds.copy()

    # ---- one iteration

    def step(self) -> None:
        """Evaluate a minibatch in every world and move all unknowns."""
        options, worlds = self.options, self.worlds
        share = self.iteration / options.iterations
        self._enter_level(share)
        j_from_i = self.tree.edge_poses(worlds.parent_from_child)  # [B, E, 4, 4]
        share_of_edge = worlds.edge_weight / worlds.edge_weight.sum(1, keepdim=True)  # [B, E]
        weight = share_of_edge if options.normalise_weights else worlds.edge_weight  # [B, E]
        result = self._gradients(j_from_i, weight, share)
        self._step_poses(result, j_from_i, share)
        self._step_focals(result, share)
        self._step_maps(result, share)
        self._update_weights(result, share)
        worlds.loss = _followed(worlds.loss, (weight * result.edge_loss).sum(1))
        self._update_outlier_level(result, share_of_edge)
        self.iteration += 1

    def _enter_level(self, share: float) -> None:
        options, worlds = self.options, self.worlds
        tied = self.iteration and (self.iteration - 1) / options.iterations < options.variance_maps_from
        worlds.refine_level(min(options.map_size, int(value_at(options.levels, share))))
        if tied and share >= options.variance_maps_from:
            # Until now every cell carried the gradient of its whole image.
            worlds.map_moments.second[..., 1:] /= worlds.level**4

    def _gradients(self, j_from_i: torch.Tensor, weight: torch.Tensor, share: float) -> EdgeEvaluation:
        worlds = self.worlds
        minibatch = Minibatch(
            packed=self.matches,
            start=self._window_starts(),
            batch=int(value_at(self.options.batch, share)),
            maps=worlds.maps,
            log_tan=self.image_log_tan().float(),
            j_from_i=j_from_i[..., :3, :].float(),
            edge_weight=weight,
            outlier_level=(worlds.inlier_loss + worlds.margin).float(),
        )
        return self.evaluate(minibatch, self.options.objective)

    def _window_starts(self) -> torch.Tensor:
        """First match of each edge's window, [E] int64, of this iteration; drawn some iterations ahead."""
        block, row = divmod(self.iteration, self.machine.ahead)
        if self._windows[0] != block:
            count = self.problem.matches.arrays[2]
            draws = np.empty((self.machine.ahead, len(count)), np.int64)
            for k in range(len(draws)):
                rng = np.random.default_rng([self.problem.seed, 2, block * self.machine.ahead + k])
                draws[k] = rng.random(len(count)) * count
            self._windows = block, torch.from_numpy(draws).to(self.machine.home)
        return self._windows[1][row]

    def image_log_tan(self) -> torch.Tensor:
        """[B, N, 2] from the shared parameters."""
        return self.worlds.log_tan[:, self.camera_of_image].expand(-1, -1, 2).contiguous()

    def _rate(self, steps, share: float) -> float:
        sizes = self.options.step_sizes
        fall = max(0.0, (share - sizes.decay_from) / (1 - sizes.decay_from))
        return (
            self.damping
            * value_at(steps, share)
            * (sizes.decay_to + (1 - sizes.decay_to) * 0.5 * (1 + math.cos(math.pi * fall)))
        )

    def _step_poses(self, result: EdgeEvaluation, j_from_i: torch.Tensor, share: float) -> None:
        options, worlds = self.options, self.worlds
        grad_pose = result.grad_pose.double()
        if options.mirror == "regularise" and share < options.mirror_until:
            grad_pose = grad_pose + self._mirror_pull(j_from_i)
        grad = self.tree.gradient(grad_pose, j_from_i, worlds.parent_from_child)  # [B, N, 6]
        rate = self._rate(options.step_sizes.pose, share)
        betas = options.step_sizes.beta1, options.step_sizes.beta2
        if options.pose_steps == "pivot":
            depth = worlds.cells[..., 0].mean((2, 3)).double().exp()  # [B, N]
            tan = self.image_log_tan()[..., 0].exp()
            direction = worlds.pose_moments.direction(self.machine, pivot_gradient(grad, depth), *betas)
            twist = pivot_twist(-rate * direction, depth, tan)
            twist[:, self.problem.graph.root] = 0
            self.machine.move(worlds.parent_from_child, twist)
            if self.iteration % REPORT_EVERY == 0:
                worlds.parent_from_child[..., :3, :3] = so3.project(worlds.parent_from_child[..., :3, :3])
        else:
            grad = self.machine.twist_gradient(worlds.twist, grad)
            worlds.twist -= rate * worlds.pose_moments.direction(self.machine, grad, *betas)
            worlds.parent_from_child = worlds.start.clone()
            self.machine.move(worlds.parent_from_child, worlds.twist)
        if options.mirror == "copy" and share < options.mirror_until:
            self._copy_mirrors()

    def _copy_mirrors(self) -> None:
        worlds = self.worlds
        primary, mirror = self._mirror_pairs()
        worlds.parent_from_child[mirror] = se3.mirror(worlds.parent_from_child[primary])
        worlds.twist[mirror] = worlds.twist[primary] * self.mirror_signs
        worlds.pose_moments.first[mirror] = worlds.pose_moments.first[primary]
        worlds.pose_moments.second[mirror] = worlds.pose_moments.second[primary]

    def _mirror_pairs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices of primary worlds and of the worlds that mirror them."""
        mirror_of = self.worlds.mirror_of
        if self._pairs[0] != mirror_of:
            pairs = [(p, b) for b, p in enumerate(mirror_of) if p is not None]
            table = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).to(self.machine.home)
            self._pairs = mirror_of, table.unbind(1)
        primary, mirror = self._pairs[1]
        return primary, mirror

    def _mirror_pull(self, j_from_i: torch.Tensor) -> torch.Tensor:
        """Gradient of Eq. reg_loss with respect to the edge poses of mirror worlds, [B, E, 3, 4]."""
        options = self.options
        primary, mirror = self._mirror_pairs()
        grad_pose = torch.zeros_like(j_from_i)
        free = j_from_i[mirror].clone().requires_grad_()
        duration = int(options.mirror_until * options.iterations)
        weight = mirror_weight(self.iteration, strength=options.mirror_lambda, duration=duration)
        total = weight * mirror_distance(j_from_i[primary], free).sum()
        grad_pose[mirror] = torch.autograd.grad(total, free)[0]
        return grad_pose[..., :3, :]

    def _step_focals(self, result: EdgeEvaluation, share: float) -> None:
        rate = self._rate(self.focal_steps, share)
        if rate == 0 or self.problem.cameras.held.all():
            return
        worlds, problem = self.worlds, self.problem
        per_image = result.grad_log_tan.double()
        grad = self.sum_cameras(per_image)  # [B, C, 2]
        if self.options.square_pixels:
            grad = grad.sum(-1, keepdim=True)
        cameras = problem.cameras
        if cameras.known.any() and cameras.focal_sigma > 0:
            # The world loss is a mean over matches, so one prior counts as one match.
            pull = (worlds.log_tan - self.known_log_tan[None, :, None]) / cameras.focal_sigma**2
            unit = 1.0 if self.options.normalise_weights else worlds.edge_weight.sum(1)[:, None, None]
            grad = grad + unit * pull.nan_to_num(0.0) / max(1, int(problem.matches.count.sum()))
        sizes = self.options.step_sizes
        step = rate * worlds.focal_moments.direction(self.machine, grad, sizes.beta1, sizes.beta2)
        worlds.move_focals(step, self.held)  # [B, C, 1 or 2]

    def _step_maps(self, result: EdgeEvaluation, share: float) -> None:
        worlds, sizes = self.worlds, self.options.step_sizes
        grad = result.grad_maps
        if share < self.options.variance_maps_from:
            total = grad[..., 1:].sum((2, 3), keepdim=True)
            grad[:, :, :-1, :-1, 1:] = total
        shift = self.machine.move_maps(
            worlds.maps,
            worlds.map_moments.direction(self.machine, grad, sizes.beta1, sizes.beta2),
            depth_rate=self._rate(sizes.depth, share),
            variance_rate=self._rate(sizes.variance, share),
            decay=sizes.weight_decay,
            gauge=self.options.gauge,
        )
        if self.options.gauge:
            worlds.rescale(shift)

    def _update_weights(self, result: EdgeEvaluation, share: float) -> None:
        options, worlds = self.options, self.worlds
        if not options.adaptive_weights or share <= options.weights_from or self.iteration % options.weights_every:
            return
        now = reliability(self.edges, result.edge_loss, self.problem.n_images, self.sum_nodes)
        rate = min(1.0, options.weights_every * options.weights_gain / options.iterations)
        worlds.edge_weight = ema_update(worlds.edge_weight, now.float(), rate)

    def _update_outlier_level(self, result: EdgeEvaluation, weight: torch.Tensor) -> None:
        """The level follows the accepted matches; where it would reject too many, the margin widens."""
        worlds, options = self.worlds, self.options
        inlier_loss = (weight * result.inlier_loss).sum(1)
        worlds.inlier_loss = _followed(worlds.inlier_loss, inlier_loss)
        if options.outlier_margin is not None:
            rejected = 1 - (weight * result.inlier_share).sum(1).double()
            wider = worlds.margin * torch.where(rejected > options.max_rejected, 1.01, 0.99)
            worlds.margin = wider.clamp(min=options.outlier_margin)

    # ---- the whole run

    @one_library_thread()
    def run(
        self,
        callback: Callback | None = None,
        checkpoint: Path | None = None,
        saving: Callable[[Path], None] | None = None,
    ) -> None:
        """To the end; KeyboardInterrupt leaves the state as it is and goes on to the caller.

        `saving` is told of every checkpoint before it is written, after `callback` was told of its iteration.
        """
        options = self.options
        prune_at = {int(share * options.iterations): count for share, count in options.keep}
        key = fingerprint(self.problem, options) if checkpoint else ""
        begin, first = time.monotonic(), self.iteration
        last_saved = begin
        if callback and first == 0:
            callback(self._progress(math.nan))
        while self.iteration < options.iterations:
            if self.iteration in prune_at:
                self._keep(prune_at[self.iteration])
            self.step()
            now = time.monotonic()
            report = self.iteration % REPORT_EVERY == 0 or self.iteration == options.iterations
            if report:
                self._guard()
                for name, loss in zip(self.worlds.names, self.worlds.loss.tolist(), strict=True):
                    self.history[name].append((self.iteration, loss))
            early = self.iteration < EARLY_SHARE * options.iterations and self.iteration % EARLY_REPORT_EVERY == 0
            if callback and (report or early):
                left = (now - begin) / (self.iteration - first) * (options.iterations - self.iteration)
                callback(self._progress(left))
            finished = self.iteration == options.iterations
            if checkpoint and report and (finished or now - last_saved >= options.checkpoint_seconds):
                if saving:
                    saving(checkpoint)
                self.save(checkpoint, key)
                last_saved = now

    def save(self, path: Path, key: str) -> None:
        save_checkpoint(
            path,
            worlds=self.worlds,
            header={
                "key": key,
                "iteration": self.iteration,
                "damping": self.damping,
                "history": self.history,
            },
        )

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint of the same matches and settings."""
        worlds, header = load_checkpoint(path, key=fingerprint(self.problem, self.options), like=self.worlds)
        self.worlds = worlds.to(self.machine.home)
        self.iteration, self.damping = header["iteration"], header["damping"]
        self.history = header["history"]
        self._good = self.worlds.copy()

    def epipolar(self, score: EpipolarScore | None = None) -> list[tuple[float, float]]:
        """Share of supporting matches and median epipolar distance of every world."""
        score = score or self.score
        return score.shares(self.tree.edge_poses(self.worlds.parent_from_child), self.image_log_tan().exp())

    def _keep(self, count: int) -> None:
        """Prune all but the best; seeded worlds stay, the only ones that do not fail in the way of the others."""
        named = zip(self.worlds.names, self.epipolar(), strict=True)
        shares = np.array([share + (name in (SEEDED, GIVEN_SOLVED)) for name, (share, _) in named])
        keep = sorted(np.argsort(-shares, kind="stable")[:count].tolist())
        self.worlds = self.worlds.select(keep)
        self._good = self.worlds.copy()

    def _guard(self) -> None:
        """A world that left the numbers is dropped; if none is left, the last good state goes on with smaller steps."""
        fine = self.worlds.finite()
        if not any(fine):
            self.damping /= 2
            if self.damping < 0.05:
                raise GeometryError("every hypothesis diverged: the matches do not describe a rigid scene; check them")
            self.worlds = self._good
        elif not all(fine):
            self.worlds = self.worlds.select([k for k, ok in enumerate(fine) if ok])
        self._good = self.worlds.copy()

    def _progress(self, seconds_left: float) -> Progress:
        support = self.epipolar(self.glance)
        best = self._ranking(support)[0]
        return Progress(
            iteration=self.iteration,
            iterations=self.options.iterations,
            best=best,
            loss=float(self.worlds.loss[best]),
            median_px=support[best][1],
            fov_deg=math.degrees(2 * float(self.worlds.log_tan[best, :, 0].exp().atan().median())),
            seconds_left=seconds_left,
            state=self.worlds,
            problem=self.problem,
        )

    def _ranking(self, support: list[tuple[float, float]]) -> list[int]:
        """Worlds, best first: by their loss, or by their `support`."""
        by_loss = self.options.select_by == "loss"
        cost = self.worlds.loss.tolist() if by_loss else [-share for share, _ in support]
        return np.argsort(cost, kind="stable").tolist()

    def solutions(self) -> list[Solution]:
        """Every surviving world, best first."""
        worlds, problem = self.worlds.to(torch.device("cpu")), self.problem
        cam_from_world = se3.inverse(problem.tree.compose(worlds.parent_from_child)).numpy()
        half = problem.half_side_px[:, None]
        focal = half / self.image_log_tan().exp().cpu().numpy()
        support = self.epipolar()
        return [
            Solution(
                graph=problem.graph,
                name=worlds.names[b],
                loss=float(worlds.loss[b]),
                epipolar_share=support[b][0],
                cam_from_world=cam_from_world[b],
                cameras=problem.cameras,
                focal_px=focal[b],
                log_depth=worlds.cells[b, ..., 0].numpy().copy(),
                log_variance=worlds.cells[b, ..., 1].numpy().copy(),
                edge_weight=worlds.edge_weight[b].numpy().copy(),
            )
            for b in self._ranking(support)
        ]


def _followed(running: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    """A running mean [B] float64 that begins with its first value."""
    return torch.where(running.isinf(), now.double(), running.lerp(now.double(), RUNNING_RATE))


def solve_graph(
    matches: Matches,
    graph: ViewGraph,
    options: SolverOptions,
    *,
    callback: Callback | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    saving: Callable[[Path], None] | None = None,
    resumed: Callable[[Path, Problem], None] | None = None,
    cameras: CameraSetup | None = None,
    known: KnownPoses | None = None,
    seed: int = 0,
) -> Solver:
    """Solve one connected view graph from a cold start; the solver's `solutions()` are the surviving worlds.

    `saving` is told of every checkpoint before it is written, `resumed` of the one that the solve goes on from.
    `cameras`: those of `make_setup` by default. `known`: poses that one more world begins with.
    """
    problem = make_problem(matches, graph, options, cameras=cameras, known=known, seed=seed)
    solver = Solver(problem, options)
    if resume and checkpoint and checkpoint.exists():
        solver.resume(checkpoint)
        if resumed:
            resumed(checkpoint, problem)
    try:
        solver.run(callback, checkpoint, saving)
    except KeyboardInterrupt:
        solver.interrupted = True
    return solver
