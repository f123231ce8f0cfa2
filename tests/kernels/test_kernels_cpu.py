"""The fused kernel against the float64 reference: every loss and gradient, on ordinary and degenerate input."""

import dataclasses
import math
from dataclasses import replace
from itertools import pairwise

import numba
import numpy as np
import pytest
import torch

from proba.bench.kernel import random_problem
from proba.kernels import Workspace, cpu, edges
from proba.objective import EdgeEvaluation, Minibatch, ObjectiveOptions, evaluate

FIELDS = [field.name for field in dataclasses.fields(EdgeEvaluation)]
TOLERANCE = 1e-5
"""Largest error of a tensor, relative to its largest element."""


def small_problem(**changes) -> Minibatch:
    settings = {"images": 4, "edges": 5, "matches": [40, 200, 1, 7, 33], "worlds": 2, "cells": 5, "batch": 150}
    return random_problem(**{**settings, **changes, "dtype": torch.float64})


def assert_agrees(problem: Minibatch, options: ObjectiveOptions | None = None, tolerance: float = TOLERANCE):
    exact = evaluate(problem, options)
    for threads in (1, 2, 3):
        result = cpu.evaluate(problem, options, threads=threads)
        for name in FIELDS:
            expected, got = getattr(exact, name), getattr(result, name).double()
            if name == "inlier_loss":  # of an edge without inliers it is arbitrary
                expected, got = expected * exact.inlier_share, got * result.inlier_share
            assert got.shape == expected.shape, name
            error = (got - expected).abs().max() / expected.abs().max().clamp(min=1e-20)
            assert error < tolerance, f"{name} with {threads} threads: {error:.1e}"


@pytest.mark.parametrize("cells", [1, 2, 5, 32])
@pytest.mark.parametrize("worlds", [1, 3, 4, 6])
def test_agrees_for_all_map_sizes(cells, worlds):
    assert_agrees(small_problem(cells=cells, worlds=worlds))


@pytest.mark.parametrize("measure", ["neutral", "paper"])
@pytest.mark.parametrize("w_3d", [0.0, 1.0, 2.0])
def test_agrees_for_all_options(measure, w_3d):
    assert_agrees(small_problem(), ObjectiveOptions(measure=measure, w_3d=w_3d, z_min=0.3))


@pytest.mark.parametrize("outlier_level", [-5.0, 3.0, 30.0, math.inf])
def test_agrees_for_all_outlier_levels(outlier_level):
    assert_agrees(small_problem(outlier_level=outlier_level))


@pytest.mark.parametrize("batch", [1, 8, 127, 128, 129, 1000])
def test_agrees_for_windows_that_wrap_around(batch):
    problem = small_problem(batch=batch)
    assert (problem.start + problem.packed.window_size(batch) > problem.packed.count).any() or batch == 1
    assert_agrees(problem)


@pytest.mark.parametrize("matches", [[0, 0, 0, 0, 0], [0, 9, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 500]])
def test_agrees_with_edges_that_have_few_or_no_matches(matches):
    assert_agrees(small_problem(matches=matches))


def test_agrees_with_points_behind_cameras():
    problem = small_problem(motion=1.5)
    window = problem.packed.window(problem.start, problem.batch)
    rotated_z = problem.j_from_i[0, :, 2, :3].sum(-1) + problem.j_from_i[0, :, 2, 3]
    assert (rotated_z < 0).any() and window.inside.any()
    assert_agrees(problem, tolerance=1e-4)


@pytest.mark.parametrize("log_variance", [-15.0, 15.0])
@pytest.mark.parametrize("outlier_level", [20.0, math.inf])
def test_agrees_for_extreme_variances(log_variance, outlier_level):
    problem = small_problem(outlier_level=outlier_level)
    problem.maps[..., 1] = log_variance
    problem.maps[:, 0, ..., 1] = -log_variance
    if log_variance < 0 and outlier_level == 20:  # bring some matches below the outlier level
        problem.packed.x_j.copy_(problem.packed.x_i)
        problem.packed.y_j.copy_(problem.packed.y_i)
        problem.j_from_i.copy_(torch.eye(4, dtype=torch.float64))
    assert_agrees(problem, tolerance=1e-4)


def test_extreme_depths_stay_finite():
    problem = small_problem()
    problem.maps[:, 0, ..., 0] = 50.0
    problem.maps[:, 1, ..., 0] = -50.0
    problem.maps[:, 2, ..., 1] = 90.0
    problem.maps[:, 3, ..., 1] = -90.0
    result = cpu.evaluate(problem)
    assert all(getattr(result, name).isfinite().all() for name in FIELDS)


def test_coordinates_outside_the_image_use_the_border_cells():
    problem = small_problem()
    for coordinate in (problem.packed.x_i, problem.packed.y_j):
        coordinate.mul_(1.5)
    assert_agrees(problem)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_same_call_gives_the_same_bits(threads):
    problem = random_problem(images=6, edges=15, matches=300, worlds=3, cells=32, batch=200)
    first = cpu.evaluate(problem, threads=threads)
    workspace = Workspace()
    for _ in range(3):
        again = cpu.evaluate(problem, threads=threads, workspace=workspace)
        assert all(torch.equal(getattr(first, name), getattr(again, name)) for name in FIELDS)


def test_workspace_is_reused_and_a_change_of_shape_is_no_problem():
    workspace = Workspace()
    large = small_problem(cells=5)
    small = small_problem(cells=2, worlds=1)
    first = cpu.evaluate(large, workspace=workspace)
    second = cpu.evaluate(large, workspace=workspace)
    assert first.grad_maps.data_ptr() == second.grad_maps.data_ptr()
    third = cpu.evaluate(small, workspace=workspace)
    assert torch.equal(third.grad_maps, cpu.evaluate(small).grad_maps)


def test_edge_weights_may_be_shared_by_worlds():
    problem = small_problem()
    shared = cpu.evaluate(replace(problem, edge_weight=problem.edge_weight[0]))
    repeated = problem.edge_weight[:1].repeat(2, 1)
    spelled = cpu.evaluate(replace(problem, edge_weight=repeated, j_from_i=problem.j_from_i[..., :3, :]))
    assert torch.equal(shared.grad_pose, spelled.grad_pose)


def test_chunks_have_about_the_same_number_of_matches():
    count = np.array([5, 1000, 0, 300, 20, 700], np.int64)
    borders = edges.split(count, 512, 3, 0, 4)
    cost = np.tile(np.minimum(count, 512) + 16, 3)
    shares = [cost[a:b].sum() for a, b in pairwise(borders)]
    assert borders[0] == 0 and borders[-1] == 18
    assert max(shares) - min(shares) <= 2 * cost.max()


@pytest.mark.parametrize("worlds", [1, 2, 5, 8, 13, 32])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_that_take_turns_get_the_same_number_of_matches(worlds, threads):
    count = np.full(50, 100, np.int64)
    borders = cpu._borders(count, 512, worlds, threads)
    assert borders[0] == 0 and borders[-1] == worlds * len(count)
    finished = [0] * threads
    for a, b in pairwise(borders):
        finished[finished.index(min(finished))] += b - a
    assert max(finished) - min(finished) <= 1
    within_worlds = sum(border % len(count) > 0 for border in borders)
    assert within_worlds < threads  # each costs a buffer for the map gradients of a world


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_world_is_evaluated_alike_alone_and_among_others(threads):
    problem = random_problem(images=6, edges=15, matches=300, worlds=13, cells=32, batch=200)
    together = cpu.evaluate(problem, threads=threads)
    of_worlds = ("maps", "log_tan", "j_from_i", "edge_weight", "outlier_level")
    for world in (0, 3, 12):
        alone = cpu.evaluate(replace(problem, **{name: getattr(problem, name)[world, None] for name in of_worlds}))
        for name in FIELDS:
            expected, got = getattr(alone, name)[0], getattr(together, name)[world]
            assert (got - expected).abs().max() <= 1e-5 * expected.abs().max(), name


def test_a_world_that_left_the_numbers_does_not_disturb_the_others():
    problem = random_problem(images=6, edges=15, matches=300, worlds=4, cells=8, batch=200)
    before = cpu.evaluate(problem, threads=1)
    problem.maps[1] = math.nan
    after = cpu.evaluate(problem, threads=1)
    for world in (0, 2, 3):
        assert all(torch.equal(getattr(before, name)[world], getattr(after, name)[world]) for name in FIELDS)


def test_small_calls_stay_on_one_thread():
    count = np.full(100, 512)
    assert cpu._worthwhile_threads(count, 24, 3) == 1
    assert cpu._worthwhile_threads(count, 512, 13) == numba.get_num_threads()
