"""Record the losses of tests/compat/traces.py under the real DyNet 2.1.2, in data/traces.npz (see record.py):

.oracle/bin/python tests/oracle/record_traces.py
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "compat"))

import traces  # noqa: E402

if __name__ == "__main__":
    sys.argv[1:] = ["--library", "dynet", "--out", str(HERE / "data" / "traces.npz")]
    traces.main()
