"""All ways of changing files that a program may find; each must happen, and none to the user's own files.

Arguments: the folder with what `test_files.py` put there, and perhaps "native" for what other programs do.
"""

import glob
import io
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import numpy as np


def text(path):
    with open(path) as file:
        return file.read()


def write(path, mode, words):
    with open(path, mode) as file:
        file.write(words)


def relative():
    write("log.txt", "a", "more\n")
    assert text("log.txt") == "original\nmore\n"
    write("link.txt", "a", "by the link\n")  # to log.txt
    assert text("log.txt").endswith("by the link\n")
    write("dirlink/new.txt", "w", "new")  # in a folder beside this one
    write("../other/up.txt", "w", "up")
    io.FileIO("raw.bin", "w").write(b"1")
    os.remove("gone.txt")
    pathlib.Path("data/deep/0.txt").write_text("changed")
    os.rename("data/deep/2.txt", "data/deep/two.txt")
    write("data/deep/two.txt", "a", "!")
    os.link("data/deep/3.txt", "hard.txt")
    write("hard.txt", "w", "x")
    os.utime("stamped.txt", (1, 1))
    os.truncate("stamped.txt", 3)
    sqlite3.connect("x.db").execute("create table t(a)").connection.close()
    os.chdir("../other")
    write("by_chdir.txt", "w", "x")
    write("far.txt", "r+", "F")
    os.chdir("../project")
    shutil.rmtree("data")
    assert not os.path.exists("data")


def absolute(base):
    project, other = os.path.join(base, "project"), os.path.join(base, "other")
    write(project + "/big.txt", "r+", "BIG")
    assert text("big.txt").startswith("BIG"), text("big.txt")
    write("abslink.txt", "a", "x")  # to other/far.txt
    assert text(other + "/far.txt").endswith("x")
    write(other + "/far2.txt", "w", "q")
    names = ["by_chdir.txt", "far.txt", "far2.txt", "new.txt", "up.txt"]
    assert sorted(os.listdir(other)) == names, os.listdir(other)
    assert sorted(map(os.path.basename, glob.glob(other + "/*"))) == names
    os.makedirs(base + "/models/a/b", exist_ok=True)
    pathlib.Path(base, "models/a/b/c.txt").write_text("c")
    pathlib.Path(other, "far2.txt").unlink()
    os.chmod(base + "/models/abs.model", 0o600)
    np.save(project + "/array.npy", np.ones(3))
    np.ones(3, np.float32).tofile(project + "/array.bin")
    np.memmap(project + "/map.bin", np.float32, "w+", shape=(2,))[:] = 1
    shutil.copy(project + "/big.txt", project + "/big2.txt")
    shutil.move("big2.txt", project + "/big3.txt")
    with open(os.open(project + "/os.txt", os.O_WRONLY | os.O_CREAT), "w") as file:
        file.write("z")
    os.replace(project + "/os.txt", other + "/os.txt")
    os.symlink(project + "/log.txt", project + "/made.txt")
    write(project + "/made.txt", "a", "z")
    here = os.path.dirname(os.path.realpath(__file__))
    write(os.path.join(here, "beside.txt"), "w", "b")
    walked = [name for _, _, names in os.walk(base) for name in names]
    assert {"log.txt", "far.txt", "c.txt", "beside.txt", "abs.model"} <= set(walked), walked
    assert os.path.realpath("/usr/bin") and os.path.isdir(tempfile.mkdtemp())


def refused(base):
    """What cannot be redirected must fail."""
    for path in (base + "/models/abs.model", base + "/models/evil.txt"):
        try:
            io.FileIO(path, "w")
        except PermissionError:
            continue
        raise AssertionError("FileIO wrote " + path)


def native(base):
    """Programs that Python does not see: beside the script they work; elsewhere the kernel refuses."""
    subprocess.run("echo more >> native.txt; echo new > native_new.txt", shell=True, check=True)
    assert text("native.txt") == "original\nmore\n"
    for path in ("models/abs.model", "outside/native.txt"):
        subprocess.run(f"echo evil >> {base}/{path}", shell=True, stderr=subprocess.DEVNULL, check=False)


def held(base):
    """Names relative to an open folder, which is not the working one."""
    outside = os.path.join(base, "outside")
    folder = os.open(outside, os.O_RDONLY)
    os.unlink("native.txt", dir_fd=folder)
    with open(os.open("new.model", os.O_WRONLY | os.O_CREAT, dir_fd=folder), "w") as file:
        file.write("x")
    os.rename("new.model", "newer.model", src_dir_fd=folder, dst_dir_fd=folder)
    os.close(folder)
    assert os.listdir(outside) == ["newer.model"], os.listdir(outside)


def main():
    base = sys.argv[1]
    relative()
    absolute(base)
    held(base)
    refused(base)
    if "native" in sys.argv:
        native(base)
    print("all written")


if __name__ == "__main__":
    main()
