"""The solver as a whole: convergence on a small scene, determinism, resuming, guards."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from killing import SERVER

from proba.cameras import CameraOptions, CameraSetup, make_setup
from proba.errors import GeometryError, InputError
from proba.geometry import se3
from proba.graph import GraphOptions, build_view_graphs
from proba.io.npz import read_npz, write_npz
from proba.matches import Matches
from proba.solver import Solver, SolverOptions, make_problem, solve_graph
from proba.synthetic import make_scene, scene_matches
from proba.threads import set_threads

QUICK = SolverOptions(iterations=150, start_fov_deg=(40.0, 60.0), two_view_world=False, keep=((0.5, 2),))


@pytest.fixture(scope="module")
def small():
    scene = make_scene("object", n_images=7, seed=0, fov_deg=55.0)
    matches = scene_matches(scene, grid=24, outliers=0.1, min_matches=20)
    graphs, _ = build_view_graphs(matches, GraphOptions(min_matches=10))
    return matches, graphs[0]


def run(small, options=QUICK, **kwargs) -> Solver:
    return solve_graph(*small, options, **kwargs)


def same(a: Solver, b: Solver) -> bool:
    return a.worlds.names == b.worlds.names and all(
        torch.equal(x, y) for x, y in zip(a.worlds.arrays().values(), b.worlds.arrays().values(), strict=True)
    )


def test_cold_start_is_identity_depth_one_variance_one(small):
    solver = Solver(make_problem(*small, SolverOptions(hypotheses="cold")), SolverOptions(hypotheses="cold"))
    assert solver.worlds.names == ["fov45", "fov45-mirror"]
    eye = torch.eye(4, dtype=torch.float64).expand_as(solver.worlds.parent_from_child)
    assert torch.equal(solver.worlds.parent_from_child, eye)
    assert not solver.worlds.maps.any()
    torch.testing.assert_close(solver.worlds.log_tan.exp(), torch.full((2, 1, 1), np.tan(np.pi / 8)).double())


def test_loss_falls_and_worlds_are_pruned(small):
    solver = run(small)
    assert len(solver.worlds.names) == 2
    for name in solver.worlds.names:
        losses = [loss for _, loss in solver.history[name]]
        assert losses[-1] < losses[0]
    shares = [s.epipolar_share for s in solver.solutions()]
    assert shares == sorted(shares, reverse=True)


def test_mirror_world_is_the_exact_mirror_while_tied(small):
    options = SolverOptions(iterations=100, hypotheses="cold")
    solver = Solver(make_problem(*small, options), options)
    for _ in range(20):
        solver.step()
    signs = torch.tensor([-1.0, -1.0, 1.0, 1.0]).double()
    primary, mirror = solver.worlds.parent_from_child
    # Translations differ by the rounding of each world's own scale.
    torch.testing.assert_close(mirror, primary * signs[:, None] * signs, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(primary, torch.eye(4).double())


def test_scale_stays_fixed(small):
    solver = run(small)
    mean = solver.worlds.cells[..., 0].mean((1, 2, 3))
    assert mean.abs().max() < 1e-4


def test_same_seed_same_bits_and_other_seed_other_bits(small):
    assert same(run(small), run(small))
    assert not same(run(small), run(small, seed=1))


@pytest.mark.parametrize("stop", [50, 100])
def test_resume_continues_bit_for_bit(small, tmp_path, stop):
    whole = run(small)
    options = QUICK
    first = Solver(make_problem(*small, options), options)
    path = tmp_path / "checkpoint.npz"

    def interrupt(progress):
        if progress.iteration == stop:
            from proba.solver.checkpoint import fingerprint

            first.save(path, fingerprint(first.problem, options))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(interrupt)
    assert same(whole, run(small, checkpoint=path, resume=True))


def test_checkpoint_of_other_settings_is_refused(small, tmp_path):
    path = tmp_path / "checkpoint.npz"
    run(small, checkpoint=path)
    with pytest.raises(InputError, match="other matches or settings"):
        run(small, checkpoint=path, resume=True, seed=5)
    with pytest.raises(InputError, match="other matches or settings"):
        run(small, checkpoint=path, resume=True, cameras=setup_of(*small, share="none"))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="damaged"):
        run(small, checkpoint=path, resume=True)


def header_with(content: dict, **changes) -> np.ndarray:
    return np.frombuffer(json.dumps(json.loads(content["header"].tobytes()) | changes).encode(), np.uint8)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("maps", lambda c: c["maps"][:, :-1]),
        ("maps", lambda c: c["maps"][:, :, :-1]),
        ("maps", lambda c: c["maps"].ravel()),
        ("map_moments.second", lambda c: c["map_moments.second"][:, :, 1:, 1:]),
        ("parent_from_child", lambda c: c["parent_from_child"][..., :3, :]),
        ("edge_weight", lambda c: c["edge_weight"].astype(np.float64)),
        ("loss", lambda c: np.append(c["loss"], 1.0)),
        ("pose_moments.count", lambda c: np.zeros(3, np.int64)),
        ("header", lambda c: header_with(c, names=["fov40", "strange"])),
        ("header", lambda c: header_with(c, names=[])),
        ("header", lambda c: header_with(c, mirror_of=[None, 7])),
        ("header", lambda c: header_with(c, iteration=-1)),
        ("header", lambda c: header_with(c, damping="much")),
    ],
)
def test_checkpoint_with_the_right_key_and_wrong_content_is_refused(small, finished, tmp_path, name, change):
    content = read_npz(finished)
    content[name] = change(content)
    write_npz(tmp_path / "checkpoint.npz", content)
    with pytest.raises(InputError, match="delete it and run again"):
        run(small, checkpoint=tmp_path / "checkpoint.npz", resume=True)


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    """The checkpoint of a solve that went to its end."""
    path = tmp_path_factory.mktemp("finished") / "checkpoint.npz"
    run(small, checkpoint=path)
    return path


def solve_on(checkpoint: Path) -> Solver:
    """Go on with a solve that writes a checkpoint after every step, or begin it; on one thread, as others do."""
    scene = make_scene("object", n_images=7, seed=0, fov_deg=55.0)
    matches = scene_matches(scene, grid=24, outliers=0.1, min_matches=20)
    graphs, _ = build_view_graphs(matches, GraphOptions(min_matches=10))
    set_threads(1)
    try:
        return run(
            (matches, graphs[0]),
            replace(QUICK, iterations=300, checkpoint_seconds=0.0),
            checkpoint=checkpoint,
            resume=True,
        )
    finally:
        set_threads(None)


def test_killed_run_resumes_to_the_bits_of_an_unbroken_one(tmp_path):
    process = SERVER.Process(target=solve_on, args=(tmp_path / "broken.npz",))
    process.start()
    while not (tmp_path / "broken.npz").exists() and process.is_alive():
        time.sleep(0.01)
    time.sleep(np.random.default_rng().uniform(0, 0.5))
    process.kill()
    process.join()
    assert same(solve_on(tmp_path / "broken.npz"), solve_on(tmp_path / "whole.npz"))


def test_a_world_that_leaves_the_numbers_is_dropped_and_all_of_them_is_an_error(small):
    solver = Solver(make_problem(*small, QUICK), QUICK)
    names = list(solver.worlds.names)
    solver.worlds.maps[1] = float("nan")
    solver._guard()
    assert solver.worlds.names == [names[0], *names[2:]]
    with pytest.raises(GeometryError, match="diverged"):
        for _ in range(10):
            solver.worlds.maps[:] = float("nan")
            solver._guard()


def test_interrupt_leaves_usable_solutions(small):
    def interrupt(progress):
        if progress.iteration >= 50:
            raise KeyboardInterrupt

    solver = run(small, callback=interrupt)
    assert solver.interrupted and solver.iteration == 50
    assert all(np.isfinite(s.cam_from_world).all() for s in solver.solutions())


@pytest.mark.parametrize(
    ("change", "share"),
    [
        ({"pose_steps": "twist", "mirror": "regularise"}, "camera"),
        ({"mirror": "off"}, "camera"),
        ({"square_pixels": False}, "none"),
        ({"outlier_margin": None, "adaptive_weights": False}, "camera"),
    ],
)
def test_variants_run_and_reduce_the_loss(small, change, share):
    solver = run(small, replace(QUICK, iterations=100, **change), cameras=setup_of(*small, share=share))
    losses = [loss for _, loss in solver.history[solver.worlds.names[0]]]
    assert losses[-1] < losses[0]


def test_anisotropic_gaussians_run_on_the_reference(small):
    from proba.objective import ObjectiveOptions

    options = replace(QUICK, iterations=10, objective=ObjectiveOptions(gaussians="anisotropic"), backend="reference")
    solver = run(small, options)
    assert all(np.isfinite(s.log_depth).all() for s in solver.solutions())


@pytest.fixture(scope="module")
def told():
    """Five images whose focal length is known, and their view graph."""
    scene = make_scene("object", n_images=5, seed=0, fov_deg=55.0)
    matches = scene_matches(scene, grid=16, min_matches=10, known_focal=True)
    graph = build_view_graphs(matches, GraphOptions(min_matches=10))[0][0]
    return matches, graph, scene.intrinsics[0, 0]


def setup_of(matches, graph, **options) -> CameraSetup:
    return make_setup([matches.images[k] for k in graph.images], CameraOptions(**options))


def test_known_focals_are_held_or_used_as_start(told):
    matches, graph, true = told
    options = SolverOptions(iterations=60, two_view_world=False)
    held = solve_graph(matches, graph, options, cameras=setup_of(matches, graph, focal="fixed")).solutions()[0]
    np.testing.assert_allclose(held.focal_px, true, rtol=1e-6)
    problem = make_problem(matches, graph, SolverOptions(), cameras=setup_of(matches, graph, focal="init"))
    start = Solver(problem, SolverOptions())
    assert start.worlds.names == ["fov45", "fov45-mirror", "two-view"]
    np.testing.assert_allclose(start.worlds.log_tan.exp(), 320 / true, rtol=1e-6)


def test_known_focals_hold_where_others_are_not_known(told):
    matches, graph, true = told
    images = [replace(info, focal_px=None) if k > 1 else info for k, info in enumerate(matches.images)]
    mixed = Matches(images, matches.pairs)
    cameras = setup_of(mixed, graph, focal="fixed", share="none")
    known = np.array([images[k].focal_px is not None for k in graph.images])
    solver = Solver(make_problem(mixed, graph, QUICK, cameras=cameras), QUICK)
    np.testing.assert_array_equal(cameras.held, known)
    start = solver.worlds.log_tan[..., 0].exp()  # [B, N]
    assert solver.worlds.names == ["fov40", "fov40-mirror", "fov60", "fov60-mirror"]
    np.testing.assert_allclose(start[:, known], 320 / true, rtol=1e-6)
    np.testing.assert_allclose(start[:2, ~known], np.tan(np.radians(20)), rtol=1e-6)
    solver.run()
    focal_px = solver.solutions()[0].focal_px[:, 0]
    np.testing.assert_allclose(focal_px[known], true, rtol=1e-6)
    assert (np.abs(focal_px[~known] / focal_px[~known][0] - 1) > 1e-6).any(), "the others are free"


def test_a_prior_pulls_known_focals_only(told):
    matches, graph, true = told
    images = [replace(info, focal_px=2 * true if k == 0 else None) for k, info in enumerate(matches.images)]
    mixed = Matches(images, matches.pairs)
    first = list(graph.images).index(0)

    def focals(**options) -> np.ndarray:
        cameras = setup_of(mixed, graph, focal="init", share="none", **options)
        return solve_graph(mixed, graph, QUICK, cameras=cameras).solutions()[0].focal_px[:, 0]

    strong, weak = focals(focal_prior_sigma=1e-4), focals(focal_prior_sigma=1e4)
    assert abs(strong[first] / (2 * true) - 1) < 0.002 < abs(weak[first] / (2 * true) - 1)
    assert np.isfinite(strong).all() and np.isfinite(weak).all()


def test_twist_coordinates_begin_at_the_start_of_each_world(small):
    options = replace(QUICK, two_view_world=True, pose_steps="twist", roll=False)
    solver = Solver(make_problem(*small, options), options)
    seeded = solver.worlds.names.index("two-view")
    before = solver.worlds.parent_from_child.clone()
    centres = before[seeded, :, :3, 3].norm(dim=1)  # [N]
    assert centres.max() > 0.1, "the seeded world has moved cameras"
    for _ in range(3):
        solver.step()
    after = solver.worlds.parent_from_child
    # Only the scale may have changed much: the solver sets it after every step.
    scale = after[seeded, :, :3, 3].norm() / before[seeded, :, :3, 3].norm()
    before[seeded, :, :3, 3] *= scale
    assert (after - before)[seeded].abs().max() < 0.1
    torch.testing.assert_close(after[0], solver.worlds.start[0] @ se3.exp(solver.worlds.twist[0]))
    torch.testing.assert_close(after[seeded], solver.worlds.start[seeded] @ se3.exp(solver.worlds.twist[seeded]))
