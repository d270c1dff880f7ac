# ruff: noqa: UP031
"""Model files of the real DyNet 2.1.2. Run in a Python 3.8 environment that has it (see record.py).

    .oracle/bin/python tests/oracle/record_files.py record FOLDER    write all files (default: data/files)
    .oracle/bin/python tests/oracle/record_files.py read FOLDER      read the files there, write them again

`read` loads every pair of files into a new collection and saves the objects as FOLDER/again-NAME; every text
file populates a model of its kind, which is saved in the same way.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
os.environ["DYNET_COMPAT_TEST_LIBRARY"] = "dynet"

from support import models  # noqa: E402


def record(dy: Any, folder: str) -> None:
    """All models, and text files."""
    for name in models.MODELS:
        _, objects = models.made(dy, name)
        dy.save("%s/%s" % (folder, name), objects)
    models.write_texts(dy, folder)
    models.write_special(dy, folder)


def read(dy: Any, folder: str) -> None:
    """Load and save again."""
    for meta in sorted(Path(folder).glob("*.meta")):
        pc = dy.ParameterCollection()  # must stay: the reference does not keep it for its parameters
        objects = dy.load(str(meta)[: -len(".meta")], pc)
        dy.save("%s/again-%s" % (folder, meta.name[: -len(".meta")]), objects)
    for name in models.COLLECTIONS:
        path = "%s/%s.txt" % (folder, name)
        if os.path.exists(path):
            pc = dy.ParameterCollection()
            models.COLLECTIONS[name](dy, pc)
            pc.populate(path)
            pc.save("%s/again-%s.txt" % (folder, name))


if __name__ == "__main__":
    import dynet

    if "dynet_compat" in sys.modules:
        raise SystemExit("this must run on the real DyNet")
    target = sys.argv[2] if len(sys.argv) > 2 else str(HERE / "data" / "files")
    os.makedirs(target, exist_ok=True)
    {"record": record, "read": read}[sys.argv[1]](dynet, target)
