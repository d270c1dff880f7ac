"""print_text_graphviz calls nodes what DyNet calls them."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import Any

import pytest
from ops.cases import CASES
from oracle.record_descriptions import TARGET, key_of, words_of
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="compares with the reference")

RECORDED: dict[str, str] = json.loads(TARGET.read_text(encoding="utf-8"))
CASE_OF = {key_of(case): case for case in CASES}

# Where we record other nodes than DyNet: dropout as a product with random numbers, x - y as one node ...
OTHER_NODES = re.compile(
    r"dropout|noise|const_parameter|vanilla_lstm_gates|layer_norm|emax|\*\* | - x\[0\]|x\[0\] - |\[[^\]]*:"
    r"|pick_batch_elem\(|reshape\(x\[0\], \(3, 2\)\)"
)


def printed(dy: Any) -> str:
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        dy.print_text_graphviz()
    return text.getvalue()


def test_same_words(dy: Any) -> None:
    compared = {key: words for key, words in RECORDED.items() if not OTHER_NODES.search(key)}
    assert len(compared) > 600
    ours = {key: words_of(dy, CASE_OF[key], printed) for key in compared}
    assert {k: (w, ours[k]) for k, w in compared.items() if w != ours[k]} == {}


@pytest.mark.parametrize("key", [key for key in RECORDED if OTHER_NODES.search(key)])
def test_other_nodes_have_words_too(dy: Any, key: str) -> None:
    words = words_of(dy, CASE_OF[key], printed)
    assert words and not re.search(r"v\d+", words)


def test_every_op_has_words(dy: Any) -> None:
    """None fails, whatever its attributes: all cases once."""
    for case in CASES:
        assert words_of(dy, case, printed) or case.expr.startswith("dy.parameter(")


def test_names_instead_of_addresses(dy: Any) -> None:
    pc = dy.ParameterCollection()
    W, E = pc.add_parameters((2, 3), name="W"), pc.add_lookup_parameters((5, 3), name="E")
    dy.renew_cg()
    W * E[2]
    text = printed(dy)
    assert 'label="v0 = lookup_parameters(|x|=5 --> {3}) @ /E"' in text.replace("v1", "v0")
    assert "= parameters({2,3}) @ /W" in text
