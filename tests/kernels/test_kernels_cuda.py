"""The CUDA kernel without a GPU: in numba's simulator against the reference, and compiled to machine code."""

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numba as nb
import numpy as np
import pytest
import torch

from proba import kernels
from proba.errors import InputError

needs_numba_cuda = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
CAPABILITIES = ((7, 5), (8, 6), (9, 0))
f4, f8, i4, i8 = nb.float32, nb.float64, nb.int32, nb.int64
WINDOW = (
    i4[:, ::1], i8[::1], i8[::1], f4[::1], f4[::1], f4[::1], f4[::1], f4[:, ::1], i8[::1], i8, i8[::1],
)  # fmt: skip
MAPS, POSES = f4[:, :, :, ::1], f8[:, :, :, ::1]
SIGNATURES = {
    "cuda._edge_sums": (
        *WINDOW, f4[:, :, :, :, ::1], f4[:, :, ::1], f4[:, :, :, ::1], f4[:, ::1], f4[::1], f4, f4, f4,
        f4[:, :, ::1], f4[:, :, ::1],
    ),
    "cuda._scatter": (*WINDOW, f4[:, :, ::1], f8[::1], i8[:, :, :, :, ::1]),
    "cuda._collect_maps": (i8[:, ::1], f8[::1], f4[:, ::1]),
    "cuda._finish": (
        f4[:, :, ::1], i8[::1], i8, f4[:, :, :, ::1], f4[:, ::1], f4, f4[:, :, ::1], f4[:, :, :, ::1], f4[:, :, ::1],
    ),
    "cuda_launch._add_rows": (f4[:, :, ::1], i8[::1], i8[::1], f4[:, :, ::1]),
    "cuda_machine._direction": (f4[::1], f4[::1], f4[::1], f4, f4, f4, f4, f4, f4),
    "cuda_machine._step_maps": (MAPS, MAPS, f4, f4, f4, f4[::1]),
    "cuda_machine._gauge_maps": (MAPS, f4[::1], f4[::1], f4[::1], f4[::1]),
    "cuda_machine._compose": (POSES, i8[::1], i8[::1], i8[::1], POSES),
    "cuda_machine._edge_poses": (POSES, i8[:, ::1], POSES),
    "cuda_machine._camera_gradient": (POSES, POSES, i8[::1], i8[::1], f8[:, :, ::1]),
    "cuda_machine._sum_to_root": (POSES, i8[::1], i8[::1], i8[::1], i8[::1], f8[:, :, ::1]),
    "cuda_machine._move": (f8[:, :, ::1], f8[:, ::1]),
    "cuda_machine._twist_gradient": (f8[:, ::1], f8[:, ::1], f8[:, ::1]),
}  # fmt: skip
IN_DOUBLE = {
    "cuda._scatter",
    "cuda._collect_maps",
    *(name for name, types in SIGNATURES.items() if f8[:, :, ::1] in types),
}
IN_DOUBLE |= {name for name, types in SIGNATURES.items() if POSES in types or f8[:, ::1] in types}


@needs_numba_cuda
@pytest.mark.parametrize(("script", "cases"), [("cuda_simulation.py", 4), ("cuda_loop_simulation.py", 2)])
def test_agrees_in_the_simulator(script, cases):
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(script)],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("agrees") == cases


@needs_numba_cuda
def test_every_kernel_is_compiled_here():
    from proba.kernels import cuda, cuda_machine

    kernels = {f"cuda_machine.{f.__name__}" for f in cuda_machine.KERNELS}
    kernels |= {f"cuda.{f.__name__}" for f in cuda.KERNELS} | {"cuda_launch._add_rows"}
    assert kernels == set(SIGNATURES)


@needs_numba_cuda
@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_compiles_for_a_gpu(name, capability, monkeypatch, tmp_path):
    from numba import cuda
    from numba.cuda import dispatcher

    module, _, function = name.partition(".")
    kernel = getattr(importlib.import_module(f"proba.kernels.{module}"), function)
    # A function that the kernel calls is compiled for the GPU at hand; here there may be none.
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=capability))
    try:
        ptx, _ = cuda.compile_ptx(kernel, SIGNATURES[name], cc=capability)
    except Exception as error:
        if any(library in str(error).upper() for library in ("NVVM", "LIBNVRTC")):
            pytest.skip("NVIDIA's compiler libraries are not installed: pip install 'proba-sfm[cuda]'")
        raise
    target = f"sm_{capability[0]}{capability[1]}"
    assert f".target {target}" in ptx
    atomics = [line for line in ptx.splitlines() if "atom." in line]
    assert bool(atomics) == (name == "cuda._scatter")
    assert all("add.u64" in line or "add.s64" in line for line in atomics), "only integers add up in any order"
    assert name in IN_DOUBLE or ".f64" not in ptx, "double precision is slow on most GPUs"
    assemble(ptx, target, tmp_path)


def assemble(ptx: str, target: str, folder: Path) -> None:
    """To machine code, where NVIDIA's assembler is installed."""
    places = (Path(place) / "nvidia" for place in sys.path)
    assembler = next((path for place in places for path in sorted(place.glob("**/bin/ptxas"))), None)
    if assembler is None:
        pytest.skip("compiled to PTX; the assembler ptxas is not installed")
    source = folder / "kernel.ptx"
    source.write_text(ptx)
    command = [assembler, f"-arch={target}", "-v", source, "-o", folder / "kernel.cubin"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr


def test_integers_hold_the_sum_of_all_map_gradients():
    pytest.importorskip("numba_cuda")
    from proba.kernels.cuda import HEADROOM, integer_scale

    largest = np.array([0.0, 1e-12, 3.0, 1e20], np.float32)
    scale = integer_scale(torch.from_numpy(largest), 1000).numpy()
    filled = scale * largest.astype(np.float64) * 1000
    assert np.all(filled < 2.0**HEADROOM) and np.all(filled[1:] >= 2.0 ** (HEADROOM - 1))
    assert np.all(np.log2(scale) % 1 == 0)


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install"):
        kernels.machine("cuda")


@needs_numba_cuda
def test_a_missing_gpu_is_told():
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="No NVIDIA GPU"):
        kernels.machine("cuda")
