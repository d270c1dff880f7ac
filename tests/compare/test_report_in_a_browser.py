"""The HTML report of `compare` as Chromium shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.comparing import SELF
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("for dynet_compat", allow_module_level=True)

SCRIPTS = Path(__file__).resolve().parent / "scripts"


def self_contained(page: str) -> bool:
    """Nothing is loaded from elsewhere and nothing runs."""
    loaded = re.findall(r"""(?:src|href|url|@import|<script|<link|<iframe)\s*[=("']?""", page)
    return not loaded and set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no Chromium")


def colours(png: Path) -> dict[tuple[int, int, int], int]:
    """How often each colour is in a PNG as Chromium writes it: 8 bits, RGB or RGBA, not interlaced."""
    import struct
    import zlib

    import numpy as np

    data = png.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6)
    at, packed = 8, b""
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        packed += data[at + 8 : at + 8 + size] if name == b"IDAT" else b""
        at += size + 12
    pixel = 3 if kind == 2 else 4
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * pixel)
    above = np.zeros(width * pixel, np.uint8)
    counts: dict[tuple[int, int, int], int] = {}
    for row in rows:
        mode, line = int(row[0]), row[1:].astype(np.int64)
        line = unfilter(mode, line, above.astype(np.int64), pixel)
        above = line.astype(np.uint8)
        found, number = np.unique(above.reshape(width, pixel)[:, :3], axis=0, return_counts=True)
        for colour, n in zip(map(tuple, found.tolist()), number.tolist()):
            counts[colour] = counts.get(colour, 0) + n
    return counts


def unfilter(mode: int, line: Any, above: Any, pixel: int) -> Any:
    """One line of a PNG; the filters are those of its specification."""
    if mode == 0:
        return line
    if mode == 2:
        return (line + above) % 256
    out = line.copy()
    for i in range(len(out)):
        left = int(out[i - pixel]) if i >= pixel else 0
        up, corner = int(above[i]), int(above[i - pixel]) if i >= pixel else 0
        if mode == 1:
            guess = left
        elif mode == 3:
            guess = (left + up) // 2
        else:
            p = left + up - corner
            guess = min((left, up, corner), key=lambda v: abs(p - v))
        out[i] = (int(line[i]) + guess) % 256
    return out


def test_report_in_a_browser(command: Any, tmp_path: Path) -> None:
    """Chromium shows the plots: each one's colours are on the screen, not only white."""
    browser = chromium()
    done = command(*SELF, "--repeats", "1", SCRIPTS / "small.py", "6", times=True)
    assert done.status == 0, done.out + done.err
    assert self_contained(done.report)
    picture = tmp_path / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,1300"]
    page = (tmp_path / "report.html").as_uri()
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    subprocess.run(
        [browser, *options, profile, f"--screenshot={picture}", page],
        capture_output=True,
        timeout=300,
        check=True,
    )
    counts = colours(picture)
    total = sum(counts.values())
    assert total == 1100 * 1300 and len(counts) > 50
    # Recording's bar, our colour (the histogram's), what is equal.
    for colour, least in (((0x0E, 0x74, 0x90), 100), ((0x1D, 0x4E, 0xD8), 3000), ((0x15, 0x80, 0x3D), 200)):
        assert counts.get(colour, 0) > least, (colour, counts.get(colour, 0))
    assert max(counts.values()) < 0.97 * total
