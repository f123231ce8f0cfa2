"""The loop in numba's CUDA simulator against the processor's; run by test_kernels_cuda.py in a process of its own."""

import contextlib
import sys
from collections import Counter
from dataclasses import replace

import torch

from proba.cameras import CameraOptions, make_setup
from proba.graph import GraphOptions, build_view_graphs
from proba.kernels import cuda_launch, machine
from proba.kernels.cuda_launch import view
from proba.solver import Solver, SolverOptions, make_problem
from proba.synthetic import make_scene, scene_matches

ITERATIONS = 4
SHORT = SolverOptions(
    iterations=ITERATIONS,
    start_fov_deg=(50.0,),
    two_view_world=False,
    batch=((0.0, 12),),
    levels=((0.0, 1), (0.5, 3)),
    weights_from=0.0,
    weights_every=2,
)
CASES = {
    "pivot steps": ({}, "camera"),
    "twists and separate focals": ({"pose_steps": "twist", "square_pixels": False, "gauge": False}, "none"),
}
HOST = ("cpu", "numpy", "item", "tolist", "__bool__", "__float__", "__int__", "__array__")


def solvers(change: dict, share: str) -> tuple[Solver, Solver]:
    scene = make_scene("object", n_images=4, seed=0, fov_deg=55.0)
    matches = scene_matches(scene, grid=8, min_matches=4)
    graph = build_view_graphs(matches, GraphOptions(min_matches=4))[0][0]
    options = replace(SHORT, **change)
    cameras = make_setup([matches.images[k] for k in graph.images], CameraOptions(share=share))
    problem = make_problem(matches, graph, options, cameras=cameras)
    return Solver(problem, options), Solver(problem, replace(options, device="cuda"))


@contextlib.contextmanager
def counted_transfers():
    """Whatever brings a number of a tensor to the host, but for the views that the kernels get."""
    seen: Counter[str] = Counter()

    def counting(name, original):
        def method(tensor, *arguments, **keywords):
            if sys._getframe(1).f_code is not view.__code__:
                seen[name] += 1
            return original(tensor, *arguments, **keywords)

        return method

    kept = {name: getattr(torch.Tensor, name) for name in HOST}
    made = torch.from_numpy, torch.tensor
    for name, original in kept.items():
        setattr(torch.Tensor, name, counting(name, original))
    torch.from_numpy = lambda *a, **k: seen.update(["from_numpy"]) or made[0](*a, **k)
    torch.tensor = lambda *a, **k: seen.update(["tensor"]) or made[1](*a, **k)
    try:
        yield seen
    finally:
        torch.from_numpy, torch.tensor = made
        for name, original in kept.items():
            setattr(torch.Tensor, name, original)


def main() -> None:
    cuda_launch.THREADS, cuda_launch.MOST_BLOCKS = 32, 2  # the simulator's threads are slow
    for name, (change, share) in CASES.items():
        usual, simulated = solvers(change, share)
        assert type(simulated.machine) is type(machine("cuda")) is not type(usual.machine)
        for step in range(ITERATIONS):
            usual.step()
            with counted_transfers() as seen:
                simulated.step()
            assert not seen or step in (0, ITERATIONS // 2), (step, seen)  # the first ones of a level bring its tables
        wanted, found = usual.worlds.arrays(), simulated.worlds.arrays()
        for key, tensor in wanted.items():
            error = (found[key].double() - tensor.double()).abs().nan_to_num(0.0).max()
            assert error <= 1e-5 * tensor.double().abs().nan_to_num(0.0, 0.0, 0.0).max(), (name, key, float(error))
        assert simulated.epipolar()[0][1] > 0
        print(name, "agrees")


if __name__ == "__main__":
    sys.exit(main())
