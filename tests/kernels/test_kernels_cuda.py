"""The CUDA kernel without a GPU: in numba's simulator against the reference, and compiled to machine code."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numba as nb
import numpy as np
import pytest

from proba import kernels
from proba.errors import InputError

needs_numba_cuda = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
f4, f8, i4, i8 = nb.float32, nb.float64, nb.int32, nb.int64
WINDOW = (
    i4[:, ::1], i8[::1], i8[::1], f4[::1], f4[::1], f4[::1], f4[::1], f4[:, ::1], i8[::1], i8, i8[::1],
)  # fmt: skip
SIGNATURES = {
    "_edge_sums": (
        *WINDOW, f4[:, :, :, :, ::1], f4[:, :, ::1], f4[:, :, :, ::1], f4[:, ::1], f4[::1], f4, f4, f4,
        f4[:, :, ::1], f4[:, :, ::1],
    ),
    "_scatter": (*WINDOW, f4[:, :, ::1], f8[::1], i8[:, :, :, :, ::1]),
    "_collect_maps": (i8[:, ::1], f8[::1], f4[:, ::1]),
}  # fmt: skip


@needs_numba_cuda
def test_agrees_with_the_reference_in_the_simulator():
    script = Path(__file__).with_name("cuda_simulation.py")
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("agrees") == 4


@needs_numba_cuda
@pytest.mark.parametrize("name", SIGNATURES)
def test_compiles_for_a_gpu(name, monkeypatch, tmp_path):
    from numba import cuda
    from numba.cuda import dispatcher

    from proba.kernels import cuda as kernel

    # A function that the kernel calls is compiled for the GPU at hand; here there may be none.
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=(8, 6)))
    try:
        ptx, _ = cuda.compile_ptx(getattr(kernel, name), SIGNATURES[name], cc=(8, 6))
    except Exception as error:
        if any(library in str(error).upper() for library in ("NVVM", "LIBNVRTC")):
            pytest.skip("NVIDIA's compiler libraries are not installed: pip install 'proba-sfm[cuda]'")
        raise
    assert ".target sm_86" in ptx
    atomics = [line for line in ptx.splitlines() if "atom." in line]
    assert bool(atomics) == (name == "_scatter")
    assert all("add.u64" in line or "add.s64" in line for line in atomics), "only integers add up in any order"
    assert name != "_edge_sums" or ".f64" not in ptx, "double precision is slow on most GPUs"
    assemblers = sorted(Path(nb.__file__).parents[1].glob("nvidia/**/bin/ptxas"))
    if not assemblers:
        pytest.skip("compiled to PTX; the assembler ptxas is not installed")
    source = tmp_path / "kernel.ptx"
    source.write_text(ptx)
    done = subprocess.run(
        [assemblers[0], "-arch=sm_86", "-v", source, "-o", tmp_path / "kernel.cubin"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr


def test_integers_hold_the_sum_of_all_map_gradients():
    pytest.importorskip("numba_cuda")
    from proba.kernels.cuda import HEADROOM, _integer_scale

    largest = np.array([0.0, 1e-12, 3.0, 1e20], np.float32)
    scale = _integer_scale(largest, 1000)
    filled = scale * largest.astype(np.float64) * 1000
    assert np.all(filled < 2.0**HEADROOM) and np.all(filled[1:] >= 2.0 ** (HEADROOM - 1))
    assert np.all(np.log2(scale) % 1 == 0)


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install"):
        kernels.evaluator("cuda")


@needs_numba_cuda
def test_a_missing_gpu_is_told():
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="No NVIDIA GPU"):
        kernels.evaluator("cuda")
