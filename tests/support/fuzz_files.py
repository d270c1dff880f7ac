"""Damaged and hostile model files. Run as a child: `fuzz_files.py SEED COUNT`.

Each file is one of the reference's or a changed .meta; it is loaded into a collection that has parameters.
An exception is fine if it leaves the collection as it was. The process must not die, take long, load a part,
or do anything but read the two files: Python reports that to an audit hook.
"""

from __future__ import annotations

import difflib  # noqa: F401 - these two would be imported on first use, while the hook watches
import hashlib  # noqa: F401
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from support import models, oracle  # noqa: E402
from support.subject import subject  # noqa: E402

FILES = oracle.DATA / "files"
SECONDS = 20
MEMORY = 1 << 30  # more than the process has at the start
WATCHED = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "import", "exec", "compile", "marshal.")
NUMBERS = [
    "-1",
    "0",
    "4294967295",
    "4294967296",
    "99999999999999999999",
    "1e99",
    "-inf",
    "nan",
    "",
    "+",
    "2",
    "3",
]
HOSTILE = [
    b"cos\nsystem\n(S'true'\ntR",
    b"cbuiltins\neval\n(S'1'\ntR",
    b"csupport.models\nTagger\n(I1\ntR",
    b"csupport.models\nTagger\n",
    b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R",
    b"c_dynet\nsave\n",
    b"c_dynet\nGRUBuilder\n)R",
    b"csubprocess\nPopen\n",
    b"cantigravity\nfly\n",
    b")\x81",
    b"}b",
    b"R",
    b"2",
    b"0",
    b"(",
    b"t",
    b"}(",
    b"u",
    b"J\xff\xff\xff\x7f",
    b"\x8a\x0a" + b"\x7f" * 10,
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff",
]
watching = False
seen: list[str] = []


def audit(event: str, arguments: Any) -> None:
    if not watching:
        return
    if event == "open" and isinstance(arguments[1], str) and not set(arguments[1]) & set("wax+"):
        return
    if event.startswith(WATCHED) or event == "open":
        seen.append(f"{event} {arguments!r:.200}")


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One change of one of many kinds."""
    if not data:
        return rng.choice(HOSTILE)
    kind = rng.randrange(10)
    at = rng.randrange(len(data))
    to = min(len(data), at + rng.choice([1, 2, 8, 50, 400]))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 8))) + data[at:]
    if kind == 3:
        return data[:at] + data[to:]
    if kind == 4:
        return data[:to] + data[at:to] * rng.choice([1, 1, 3, 1000]) + data[to:]
    if kind == 5:
        lines = data.split(b"\n")
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)
    if kind == 6:
        words = data.split(b" ")
        words[rng.randrange(len(words))] = rng.choice(NUMBERS).encode()
        return b" ".join(words)
    if kind == 7:
        start = data.find(b"{", at)
        end = data.find(b"}", start)
        sizes = ",".join(rng.choice(NUMBERS) for _ in range(rng.randint(0, 9)))
        return data[: start + 1] + sizes.encode() + data[end:] if 0 <= start < end else data[:at]
    if kind == 8:
        return data[:at] + rng.choice(HOSTILE) + data[at:]
    return data[:at] + rng.choice(HOSTILE) + data[to:]


def in_collection(pc: Any) -> Any:
    ps = [*pc.parameters_list(), *pc.lookup_parameters_list()]
    return [(p.name(), models.values_of(p).tobytes(), p.grad_as_array().tobytes()) for p in ps]


def target(dy: Any, name: str) -> Any:
    """A collection that the undamaged file fits, with a gradient."""
    pc, _ = models.made(dy, name)
    pc.add_lookup_parameters((2, 2)) if name == "nothing" else None
    for p in pc.parameters_list()[:1]:
        dy.renew_cg()
        dy.sum_elems(p).backward()
    return pc


def one(dy: Any, rng: random.Random, folder: str) -> str:
    """One file, one call; returns what happened."""
    global watching
    name = rng.choice(list(models.MODELS))
    pc = target(dy, name)
    data, meta = ((FILES / (name + end)).read_bytes() for end in (".data", ".meta"))
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if rng.random() < 0.5:
            data = mutate(rng, data)
        else:
            meta = mutate(rng, meta)
    base = os.path.join(folder, "m")
    Path(base + ".data").write_bytes(data)
    Path(base + ".meta").write_bytes(meta)
    first = [*pc.parameters_list(), *pc.lookup_parameters_list()][0]
    keys = [p.name() for p in pc.parameters_list()] or ["/W"]
    calls: list[Callable[[], Any]] = [
        lambda: dy.load(base, pc),
        lambda: list(dy.load_generator(base, dy.ParameterCollection())),
        lambda: pc.populate(base + ".data"),
        lambda: pc.populate(base + ".data", rng.choice(["/", "/u", "/inner"])),
        lambda: pc.load_param(base + ".data", rng.choice(keys)),
        lambda: pc.load_lookup_param(base + ".data", "/E"),
        lambda: first.populate(base + ".data", first.name()),
    ]
    call = calls[rng.choice([0, 0, 0, 1, 2, 3, 4, 5, 6])]
    before = in_collection(pc)
    signal.alarm(SECONDS)
    watching = True
    try:
        call()
        outcome = "loaded"
    except Exception as error:  # noqa: BLE001 - any exception, but what it leaves is checked
        outcome = type(error).__name__
    finally:
        watching = False
        signal.alarm(0)
    assert not seen, f"a file ran code: {seen}"
    if outcome != "loaded":
        assert in_collection(pc) == before, f"half-loaded: {outcome}"
    return outcome


def main(seed: int, count: int) -> None:
    dy = subject()
    pickle.dumps(np.float32(1))
    with tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        one(dy, random.Random(0), folder)  # imports what is imported late
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        sys.addaudithook(audit)
        outcomes: dict[str, int] = {}
        for number in range(count):
            case = random.Random(f"{seed}-{number}")
            try:
                outcome = one(dy, case, folder)
            except BaseException:
                print(f"case {seed}-{number}", file=sys.stderr, flush=True)
                raise
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        print("survived", count, outcomes)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
