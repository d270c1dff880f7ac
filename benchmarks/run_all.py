"""Run every benchmark of this folder and merge what they wrote into results/all.json.

Each gets `--output FILE` and writes JSON to it. `--full` measures all sizes, and longer.
vs_dynet.py and reads.py compare with DyNet where a Python has it, vs_torch.py with PyTorch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
BENCHMARKS = ("starts", "record", "plan", "launches", "reads", "vs_dynet", "vs_torch")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all sizes in vs_dynet.py, longer slices")
    parser.add_argument("--reference-python", metavar="PATH", help="a Python that has the original dynet")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has PyTorch")
    args = parser.parse_args(argv)

    RESULTS.mkdir(exist_ok=True)
    merged = {}
    failed = []
    for name in BENCHMARKS:
        script = HERE / (name + ".py")
        output = RESULTS / (name + ".json")
        output.unlink(missing_ok=True)
        command = [sys.executable, str(script), "--output", str(output)]
        if name == "vs_dynet":
            command += [] if args.full else ["--quick"]
        if name in ("reads", "vs_dynet"):
            command += ["--reference-python", args.reference_python] if args.reference_python else []
        if name == "vs_torch":
            command += [] if args.full else ["--repeats", "3", "--slice", "0.4"]
            command += ["--torch-python", args.torch_python] if args.torch_python else []
        print(f"== {name}", flush=True)
        if subprocess.run(command).returncode:
            failed.append(name)
        if output.exists():
            merged[name] = json.loads(output.read_text(encoding="utf-8"))
    (RESULTS / "all.json").write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
    for name in failed:
        print(f"FAILED {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
