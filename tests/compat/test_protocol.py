"""The calls of protocol_cases.txt: ours answer as the real DyNet did, except where it is said below."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import protocol  # noqa: E402
from support import oracle, records  # noqa: E402
from support.subject import IS_REFERENCE  # noqa: E402

CASES = protocol.all_cases()
SHARE = 10  # names per test

# Names of cases (regular expressions) -> what ours give instead: an exception, or "answers". The reference
# dies in many more calls; there ours raise, or answer where the call makes sense.
DIFFERENCES = {
    # None as an Expression is a TypeError like any other object
    r"\w+ add_none": "raises TypeError",
    # keywords are accepted everywhere
    r"\w+ sd_kw": "answers",
    # rates of dropout are checked by all builders
    r"(GRU|FastLSTM) (sd_bad|sd_neg)|builder spneg": "raises ValueError",
    # a spec without the optional values
    r"(VanillaLSTM|LSTM|SparseLSTM) fspec3": "answers",
    # CompactVanillaLSTMBuilder takes what VanillaLSTMBuilder takes
    r"CompactVanillaLSTM (add_mat|add_col|batch_mixed|masks_bb|sd_batch21)": "answers",
    # the reference dies, for ours the calls have a meaning
    r"SparseLSTM (vecsL|vecs_outL|vecs_tuple|vecs_gen|vecs_raw\w*|seth0)|FastLSTM L0b": "answers",
    # initialisers: numbers that are no distribution, arrays and files of another size, missing files
    r"initialiser (glk 4|non .*) add_\w+": "raises ValueError",
    r"initialiser (ff|ffk|np|npk|npl) (\(2,3\)|\(3,3\)|4|\(2,3,4\)) add_\w+": "raises ValueError",
    r"initialiser ffno .*": "raises RuntimeError",
    # NumPy's numbers are numbers; 'saxe' is a name, too; a float or a list as dim
    r"initialiser (npf|npi) .*|initialiser s_saxe \(3,3\) .*|argument (npi|fl|lst)": "answers",
    r"initialiser s_saxe .*": "raises RuntimeError",
    r"initialiser s_he \(\) add_parameters": "answers",
    # parameters without dimensions
    r"initialiser (glorot|none|n1|s_he) \(\) add_\w+": "raises ValueError",
    r"initialiser arr0 .* add_lookup_parameters": "raises ValueError",
    r"initialiser s_he \(1,\) add_lookup_parameters": "answers",
    # builders say what they are in place of an address
    r"\w+ str": "answers",
    # names of older versions, with a notice
    r"\w+ (epoch0|e0|edecay|upd_arg)": "answers",
    # arrays are operands
    r"\w+ add_np": "answers",
    r"\w+ lr_del": "raises TypeError",
    r"decay base": "raises TypeError",
    r"decay nan": "raises ValueError",
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(records.untext(oracle.recorded("protocol")["answers"]))
    return answers


def differs(got: Any, want: Any) -> bool:
    """Numbers within 1e-4, all else exactly."""
    if isinstance(want, list):
        return not isinstance(got, list) or len(got) != len(want) or any(map(differs, got, want))
    if isinstance(want, float) and isinstance(got, (int, float)) and not isinstance(got, bool):
        return not np.isclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    return bool(type(got) is not type(want) or got != want)


def is_stale(got: Any, want: Any) -> bool:
    """Ours is both of what the reference raises for expressions and states of an earlier graph."""
    return got == "raises StaleExpressionError" and want in ("raises ValueError", "raises RuntimeError")


def raised(answer: Any) -> bool:
    return isinstance(answer, str) and answer.startswith("raises ")


def allowed(name: str) -> Optional[str]:
    return next((ours for pattern, ours in DIFFERENCES.items() if re.fullmatch(pattern, name)), None)


@pytest.mark.skipif(IS_REFERENCE, reason="calls that end DyNet's process are among them")
@pytest.mark.parametrize("start", range(0, len(CASES), SHARE))
def test_answers(dy: Any, start: int, recorded: dict[str, Any], tmp_path: Path) -> None:
    numbers = protocol.number_file(str(tmp_path))
    wrong = []
    for name in list(CASES)[start : start + SHARE]:
        dy.renew_cg()
        got, want = protocol.answer(dy, CASES[name], numbers), recorded[name]
        if is_stale(got, want) or (want != "dies" and not differs(got, want)):
            continue
        ours = allowed(name)
        if ours is None and want == "dies" and raised(got):
            continue
        if ours is None or (raised(got) if ours == "answers" else got != ours):
            wrong.append(f"{name}: got {str(got)[:150]}, DyNet {str(want)[:150]}, allowed {ours}")
    assert not wrong, "\n".join(wrong)


def test_recording_has_every_case(recorded: dict[str, Any]) -> None:
    assert set(recorded) == set(CASES), "run tests/oracle/record_protocol.py"
    assert len(CASES) > 1500


def test_differences_are_some(recorded: dict[str, Any]) -> None:
    """Every pattern is of some case, and most answers are not covered by any."""
    for pattern in DIFFERENCES:
        assert any(re.fullmatch(pattern, name) for name in CASES), pattern
    assert sum(allowed(name) is not None for name in CASES) < 0.12 * len(CASES)
