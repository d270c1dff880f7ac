"""What tests of the driver backend share: a driver without a GPU, and the backend over it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import fake_gpu
from support.subject import ON_GPU


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The driver, and the backend."""
    if ON_GPU:
        pytest.skip("a driver without a GPU, in a process that has one")
    folder = tmp_path_factory.mktemp("driver")
    return fake_gpu.build_fake(folder), fake_gpu.build_shim(folder)


@pytest.fixture
def fake(built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake_gpu.Fake:
    path = Path(shutil.copy(built[0], tmp_path / "fake.so"))
    monkeypatch.setenv("DYNET_COMPAT_LIBCUDA", str(path))
    return fake_gpu.Fake(path)


@pytest.fixture
def driver(built: tuple[Path, Path], fake: fake_gpu.Fake, tmp_path: Path) -> Iterator[fake_gpu.Driver]:
    """The backend, of no device yet. Closed at the end: statics of two libraries end in any order."""
    driver = fake_gpu.Driver(Path(shutil.copy(built[1], tmp_path / "shim.so")))
    yield driver
    driver.close()


@pytest.fixture
def gpu(driver: fake_gpu.Driver) -> fake_gpu.Driver:
    driver.open()
    return driver
