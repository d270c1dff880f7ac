"""What dynet_compat uses of CuPy, over the memory of the emulation, which is the host's."""

import ctypes

import numpy as np
from numpy import add

from . import cuda


def asarray(floats):
    described = floats.__cuda_array_interface__
    address, _ = described["data"]
    rows, columns = described["shape"]
    return np.ctypeslib.as_array((ctypes.c_float * columns * rows).from_address(address))


__all__ = ["add", "asarray", "cuda"]
