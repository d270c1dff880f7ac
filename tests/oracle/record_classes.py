"""Record the real DyNet 2.1.2's answers to tests/compat/class_cases.py in data/classes.npz (see record.py):

.oracle/bin/python tests/oracle/record_classes.py
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "compat"))

import class_cases  # noqa: E402

if __name__ == "__main__":
    sys.argv[1:] = ["--library", "dynet", "--out", str(HERE / "data" / "classes.npz")]
    class_cases.main()
