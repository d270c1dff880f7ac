"""Arrays of other libraries on a device that are refused. Run on the emulation by test_exchange.py."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.exchange import ByDlpack, ByInterface
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("an addition", allow_module_level=True)

from dynet_compat import _core

pytestmark = pytest.mark.skipif(
    _core._device_options()["device"] != "emulation", reason="runs on the emulation, by test_exchange.py"
)
A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"mask": object()}, "has a mask"),
        ({"typestr": "<c8"}, "expected real numbers for arr, got an array of <c8"),
        ({"typestr": ">f4"}, "of type >f4"),
        ({"typestr": "<M8"}, "expected real numbers"),
        ({"stream": 0}, "stream is 0"),
        ({"strides": (4,)}, "not a stride for each axis"),
        ({"strides": (16, 6)}, "multiples of 4 bytes"),
        ({"shape": (3, 400)}, "no device memory"),
        ({"shape": (1,) * 9, "strides": None}, "9 axes, more than 8"),
        ({"shape": (2**20, 2**20)}, r"2\*\*31 elements"),
        ({"shape": ()}, "1 to 7 axes"),
        ({"shape": (5,), "strides": (2**62,)}, "out of all memory"),
        ({"strides": (-(2**63), 4)}, "out of all memory"),
        ({"strides": (2**62, 2**62)}, "out of all memory"),
        ({"shape": (2,), "strides": (2**63 - 4,)}, "out of all memory"),
        ({"data": ("x", False)}, "its data is"),
        ({"data": None}, "its data is None"),
        ({"data": (5,)}, "its data is"),
        ({"shape": None}, "its shape is None"),
        ({"typestr": 5}, "its typestr is 5"),
        ({"stream": "x"}, "its stream is 'x'"),
        ({"stream": -1}, "its stream is -1"),
    ],
)
def test_refused_interfaces(dy: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        dy.inputTensor(ByInterface(A, **changes))
    assert str(caught.value).startswith("inputTensor()")


def test_memory_of_the_host_is_refused(dy: Any) -> None:
    given = ByInterface(A)
    own = np.ones(12, np.float32)
    with pytest.raises(ValueError, match="given for arr: cannot read 48 bytes that are no device memory"):
        dy.inputTensor(ByInterface(A, data=(own.ctypes.data, False)))
    with pytest.raises(ValueError, match="on a device of type 7"):
        dy.inputTensor(ByDlpack(A, device=(7, 0)))
    with pytest.raises(ValueError, match="version 2 of DLPack"):
        dy.inputTensor(ByDlpack(A, version=2))
    with pytest.raises(TypeError, match="DLPack's type 2, 16 bits|expected real numbers"):
        dy.inputTensor(ByDlpack(A, lanes=2))
    assert np.array_equal(dy.inputTensor(given).npvalue(), A)


class Producer:
    """Of DLPack, which answers what it is told to."""

    def __init__(self, device: Any, capsule: Any = None) -> None:
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        if isinstance(self.capsule, type):
            raise self.capsule("no more")
        return self.capsule


@pytest.mark.parametrize(
    "given, words",
    [
        (Producer(None), r"its __dlpack_device__\(\) is None"),
        (Producer((2,)), r"its __dlpack_device__\(\) is \(2,\)"),
        (Producer((2**40, 0)), r"its __dlpack_device__\(\) is 1099511627776"),
        (Producer(("a", 0)), "it raised ValueError: invalid literal"),
        (Producer((2, 0), 5), r"its __dlpack__\(\) is 5, no capsule"),
        (Producer((2, 0), KeyError), "it raised KeyError: 'no more'"),
        (Producer((2, 0), RuntimeError), "it raised RuntimeError: no more"),
        (SimpleNamespace(__cuda_array_interface__="text"), "its __cuda_array_interface__ is 'text', no dict"),
    ],
)
def test_producers_that_are_wrong(dy: Any, given: Any, words: str) -> None:
    p = dy.ParameterCollection().add_parameters((3, 4))
    for op, name, call in (
        ("inputTensor", "arr", dy.inputTensor),
        ("inputVector", "v", dy.inputVector),
        ("set_value", "arr", p.set_value),
    ):
        with pytest.raises(ValueError, match=rf"{op}\(\): cannot take .* given for {name}: {words}"):
            call(given)


def test_interrupts_go_through(dy: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        dy.inputTensor(Producer((2, 0), KeyboardInterrupt))

    class Interrupted:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dy.inputVector(Interrupted())


@pytest.mark.parametrize("version", [1, None])
@pytest.mark.parametrize(
    "changes, words",
    [
        ({"axes": 2**30}, "1073741824 axes"),
        ({"axes": -1}, "-1 axes"),
        ({"shape": None}, "no shape"),
        ({"strides": (ctypes.c_int64 * 2)(2**62, 1)}, "out of all memory"),
    ],
)
def test_axes_are_checked_before_they_are_read(
    dy: Any, version: Any, changes: dict[str, Any], words: str
) -> None:
    given = ByDlpack(A, version=version, **changes)
    with pytest.raises(ValueError, match=rf"inputTensor\(\): .* given for arr: .*{words}"):
        dy.inputTensor(given)
    assert given.deleted == 1


@pytest.mark.parametrize("version", [1, None])
def test_deleters_are_called_once(dy: Any, version: Any) -> None:
    given = ByDlpack(A, version=version)
    x = dy.inputTensor(given)
    assert given.deleted == 1 and np.array_equal(x.npvalue(), A)
    assert given.streams == [x.tensor_value().__cuda_array_interface__["stream"]], "ours: it makes it wait"
    complex_numbers = ByDlpack(A.astype("c8"), version=version)
    for wrong in (complex_numbers, ByDlpack(A, version=version, lanes=3)):
        with pytest.raises(TypeError):
            dy.inputTensor(wrong)
        assert wrong.deleted == 1
