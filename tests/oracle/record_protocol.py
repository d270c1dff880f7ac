"""Record the real DyNet 2.1.2's answers to tests/compat/protocol.py in data/protocol.npz (see record.py):

.oracle/bin/python tests/oracle/record_protocol.py
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "compat"))

import protocol  # noqa: E402

if __name__ == "__main__":
    sys.argv[1:] = ["--library", "dynet", "--out", str(HERE / "data" / "protocol.npz")]
    protocol.main()
