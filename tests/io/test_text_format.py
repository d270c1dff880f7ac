"""DyNet's text files: form, keys, gradients, what damaged and unfitting files raise, random draws."""

from __future__ import annotations

import inspect
import os
import struct
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from support.models import values_of
from support.subject import IS_REFERENCE

pytestmark = pytest.mark.skipif(IS_REFERENCE, reason="messages and repairs of ours")


def small(dy: Any) -> tuple[Any, Any, Any, Any]:
    pc = dy.ParameterCollection()
    return (
        pc,
        pc.add_parameters((2, 3), name="W"),
        pc.add_parameters(2),
        pc.add_lookup_parameters((3, 2), name="E"),
    )


def contents(pc: Any) -> list[np.ndarray]:
    return [values_of(p) for p in [*pc.parameters_list(), *pc.lookup_parameters_list()]]


def unchanged(before: list[np.ndarray], pc: Any) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(before, contents(pc)))


# ------------------------------------------------------------------------------------------- numbers


def test_numbers_are_printed_as_by_c(dy: Any, tmp_path: Path) -> None:
    """Random bit patterns, powers of two and ten and their neighbours, subnormal and largest numbers."""
    rng = np.random.RandomState(5)
    bits = rng.randint(0, 2**32, size=20000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    powers = np.array([[2.0**e, -(10.0 ** min(max(e // 3, -44), 38))] for e in range(-149, 128)])
    near = powers.astype(np.float32).reshape(-1)
    halves = (np.arange(1, 4000, dtype=np.float32) / 64).astype(np.float32)
    every = np.concatenate(
        [bits, near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(9e37)), halves,
         np.array([0.0, -0.0, 3.4028235e38, 1e-45, 9.9999999e-20, 999999999.0], dtype=np.float32)]
    )  # fmt: skip
    every = every[np.isfinite(every)]
    p = dy.ParameterCollection().parameters_from_numpy(every)
    p.save(tmp_path / "f")
    header, line = (tmp_path / "f").read_text().splitlines()
    assert line == "".join("%+.8e " % x for x in every.tolist())  # noqa: UP031
    assert header == f"#Parameter# /_0 {{{len(every)}}} {16 * len(every) + 1} ZERO_GRAD"
    q = dy.ParameterCollection().load_param(tmp_path / "f", "/_0")
    assert values_of(q).tobytes() == every.tobytes()


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("-2.5", -2.5), ("+3e2", 300.0), (".5", 0.5), ("1e-50", 0.0), ("0.1", 0.1),
     ("-inf", -np.inf), ("inf", np.inf), ("nan", np.nan), ("-nan", np.nan), ("1.401298464e-45", 1.4013e-45),
     ("16777217", 16777216.0), ("+1.0000000596046447e+00", 1.0), ("+1.000000059604645e+00", 1.0000001)],
)  # fmt: skip
def test_numbers_of_any_width(dy: Any, tmp_path: Path, text: str, value: float) -> None:
    (tmp_path / "f").write_text(f"#Parameter# /p {{2}} 9 ZERO_GRAD\n{text} 7 \n")
    p = dy.ParameterCollection().load_param(tmp_path / "f", "/p")
    assert values_of(p).tobytes() == np.array([value, 7.0], dtype=np.float32).tobytes() or np.isnan(value)
    assert np.isnan(values_of(p)[0]) == np.isnan(value) and values_of(p)[1] == 7.0


@pytest.mark.parametrize(
    "text", ["1e39", "-1e400", "--1", "+-1", "1.2.3", "0x10", "e5", "1e", "one", "+", "1,5"]
)
def test_what_is_no_number(dy: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(f"#Parameter# /p {{2}} 9 ZERO_GRAD\n2 {text} \n")
    pc = dy.ParameterCollection()
    with pytest.raises(
        RuntimeError, match=r"line 2: Parameter /p \{2\}: expected 2 values, found .* for number 2"
    ):
        pc.load_param(tmp_path / "f", "/p")
    assert pc.parameters_list() == []


# ---------------------------------------------------------------------------------------- older files


def test_files_of_2_0(dy: Any, tmp_path: Path) -> None:
    """Numbers of any width, with and without the word about the gradient, with and without its line."""
    lines = [
        "#Parameter# /a {2} 12 ZERO_GRAD", "0.5 -1.25 ",
        "#Parameter# /b {2} 8", "1 2",
        "#Parameter# /c {2} 16", "3 4 ", "5 6 ",
        "#LookupParameter# /d {1,2} 16 FULL_GRAD", "7 8", "9 10",
    ]  # fmt: skip
    for end in ("\n", "\r\n", " \n"):
        (tmp_path / "f").write_bytes((end.join(lines) + end).encode())
        pc = dy.ParameterCollection()
        ps = [pc.add_parameters(2) for _ in range(3)]
        table = pc.add_lookup_parameters((2, 1))
        pc.populate(tmp_path / "f")
        assert [values_of(p).tolist() for p in ps] == [[0.5, -1.25], [1.0, 2.0], [3.0, 4.0]]
        assert all(p.grad_as_array().tolist() == [0.0, 0.0] for p in ps)
        assert table.as_array().tolist() == [[7.0], [8.0]]
        assert table.grad_as_array().tolist() == [[9.0], [10.0]]
        assert values_of(dy.ParameterCollection().load_param(tmp_path / "f", "/c")).tolist() == [3.0, 4.0]


def test_blank_lines_and_empty_files(dy: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\n \n#Parameter# /a {1} 17 ZERO_GRAD\n+1.00000000e+00 \n\n\n")
    assert dy.ParameterCollection().load_param(tmp_path / "f", "/a").as_array() == [1.0]
    (tmp_path / "g").write_text("")
    dy.ParameterCollection().populate(tmp_path / "g")


# -------------------------------------------------------------------------------------- damaged files


def test_every_truncation_is_found(dy: Any, tmp_path: Path) -> None:
    """Cut anywhere, a file either ends after a block or raises; nothing is loaded."""
    pc = small(dy)[0]
    pc.save(tmp_path / "f")
    whole = (tmp_path / "f").read_bytes()
    before = contents(pc)
    for p in pc.parameters_list():
        p.scale(2)
    changed = contents(pc)
    for length in range(len(whole)):
        (tmp_path / "g").write_bytes(whole[:length])
        with pytest.raises(RuntimeError, match="g, line|g: expected|Nothing was loaded"):
            pc.populate(tmp_path / "g")
        assert unchanged(changed, pc)
    pc.populate(tmp_path / "f")
    assert unchanged(before, pc)


DAMAGED: list[tuple[Callable[[str], str], str]] = [
    (
        lambda s: s.replace("/W {2,3}", "/W {2,4}"),
        r"line 2: Parameter /W \{2,4\}: expected 8 values, found 6",
    ),
    (
        lambda s: s.replace("/W {2,3}", "/W {2,2}"),
        r"line 2: Parameter /W \{2,2\}: expected 4 values, found more",
    ),
    (lambda s: s.replace("{2,3}", "{-2,3}"), r"line 1: expected sizes .* found '\{-2,3\}'"),
    (lambda s: s.replace("{2,3}", "{0,3}"), "line 2: .* expected 0 values, found more"),
    (lambda s: s.replace("{2,3}", "{2,3,}"), "line 1: expected sizes .* missing"),
    (lambda s: s.replace("{2,3}", "{2;3}"), "line 1: expected sizes .* commas"),
    (lambda s: s.replace("{2,3}", "2,3"), "line 1: expected sizes .* braces"),
    (lambda s: s.replace("{2,3}", "{4294967295,4294967295}"), "line 1: .* more numbers than any file"),
    (lambda s: s.replace("{2,3}", "{99999999999999999999}"), "line 1: expected sizes"),
    (lambda s: s.replace("{2,3}", "{1,1,1,1,1,1,1,1,6}"), "line 1: .* more than 7 sizes"),
    (lambda s: s.replace("{2,3}", "{1000000,100000}"), "line 2: .* expected 100000000000 values, found 6"),
    (
        lambda s: s.replace("#LookupParameter# /E {2,3}", "#LookupParameter# /E {}"),
        "line 5: .* a table has rows",
    ),
    (lambda s: s.replace("#Parameter# /W", "#Parameters# /W"), "line 1: .* no such kind of block"),
    (lambda s: s.replace("#Parameter# /W", "#Parameter# "), "line 1: expected .* the key is empty"),
    (lambda s: s.replace("ZERO_GRAD", "HALF_GRAD", 1), "line 1: .* neither ZERO_GRAD nor FULL_GRAD"),
    (lambda s: s.replace("ZERO_GRAD", "ZERO_GRAD x", 1), "line 1: .* 4 or 5 words"),
    (lambda s: s.replace(" 97 ", " -97 ", 1), "line 1: .* bytes is no number"),
    (lambda s: s.replace(" 97 ", " 9e7 ", 1), "line 1: .* bytes is no number"),
    (
        lambda s: s.replace("ZERO_GRAD", "FULL_GRAD", 1),
        "line 3: Parameter /W .*: expected 6 gradients, found '#Par",
    ),
    (
        lambda s: "junk\n" + s,
        "line 1: expected '#Parameter#' or '#LookupParameter#', found 'junk': not a model",
    ),
    (lambda s: s + "junk\n", "line 7: expected '#Parameter#' or '#LookupParameter#', found 'junk'"),
    (lambda s: "\x00\x01" + s, r"line 1: .* found '\?\?#Par"),
    (lambda s: s.replace("\n", " "), "line 1: .* no end"),
    (lambda s: "#" * 100000, "line 1: the header .* no end"),
    (lambda s: s.replace("e+00 ", "e+00 " + 9000 * "0", 1), "line [246]: .* expected . values, found"),
]


@pytest.mark.parametrize("number", range(len(DAMAGED)))
def test_damaged_files(dy: Any, tmp_path: Path, number: int) -> None:
    damage, message = DAMAGED[number]
    pc = small(dy)[0]
    pc.save(tmp_path / "f")
    text = (tmp_path / "f").read_text()
    assert damage(text) != text
    (tmp_path / "g").write_text(damage(text))
    before = contents(pc)
    with pytest.raises(RuntimeError, match=message) as raised:
        pc.populate(tmp_path / "g")
    assert str(tmp_path / "g") in str(raised.value) and "Nothing was loaded" in str(raised.value)
    assert unchanged(before, pc)


def test_boost_archive(dy: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("22 serialization::archive 10 0 0 0 0 0 1 2\n")
    for call in (dy.ParameterCollection().populate, lambda f: dy.ParameterCollection().load_param(f, "/a")):
        with pytest.raises(RuntimeError, match="Boost archive of DyNet 1.x"):
            call(tmp_path / "f")


def test_binary_file(dy: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(struct.pack("<4096d", *range(4096)))
    with pytest.raises(RuntimeError, match="not a model file of DyNet"):
        dy.ParameterCollection().populate(tmp_path / "f")


def test_mismatch_is_shown_as_a_diff(dy: Any, tmp_path: Path) -> None:
    pc = small(dy)[0]
    pc.save(tmp_path / "f")
    other = dy.ParameterCollection()
    other.add_parameters((2, 3))
    other.add_parameters(3, name="b")
    other.add_lookup_parameters((3, 2))
    before = contents(other)
    with pytest.raises(RuntimeError) as raised:
        other.populate(tmp_path / "f")
    text = str(raised.value)
    assert f"{tmp_path / 'f'}, line 3: expected Parameter /b {{3}}, found Parameter /_0 {{2}}" in text
    assert text.splitlines()[1:] == [
        f"--- {tmp_path / 'f'}",
        "+++ /",
        "  Parameter /_0 {2,3}",
        "- Parameter /_0 {2}  (line 3)",
        "+ Parameter /b {3}",
        "  LookupParameter /_1 {2,3}",
    ]
    assert unchanged(before, other)


def test_long_diffs_are_cut(dy: Any, tmp_path: Path) -> None:
    pc, other = dy.ParameterCollection(), dy.ParameterCollection()
    for size in range(1, 400):
        pc.add_parameters(size)
        other.add_parameters(size + (size > 100) * (size % 2))
    pc.save(tmp_path / "f")
    with pytest.raises(RuntimeError, match=r"line 201: expected .* \{102\}, found .* \{101\}") as raised:
        other.populate(tmp_path / "f")
    assert len(str(raised.value).splitlines()) < 30
    with pytest.raises(RuntimeError, match=r"expected no more, found Parameter /_0 \{1\}"):
        dy.ParameterCollection().populate(tmp_path / "f")
    other.add_parameters(1)


@pytest.mark.parametrize("collection", ["fewer", "more", "trailing"])
def test_numbers_of_parameters_must_agree(dy: Any, tmp_path: Path, collection: str) -> None:
    small(dy)[0].save(tmp_path / "f")
    pc = dy.ParameterCollection()
    pc.add_parameters((2, 3, 1) if collection == "trailing" else (2, 3))
    if collection != "fewer":
        pc.add_parameters(2)
    if collection == "more":
        pc.add_parameters(2)
    pc.add_lookup_parameters((3, 2))
    before = contents(pc)
    with pytest.raises(RuntimeError, match="The file has 2 Parameters and 1 LookupParameters"):
        pc.populate(tmp_path / "f")
    assert unchanged(before, pc)


# ------------------------------------------------------------------------------------ keys and errors


def keys_of(path: Path) -> list[str]:
    return [line.split()[1] for line in path.read_text().splitlines() if line.startswith("#")]


def test_keys(dy: Any, tmp_path: Path) -> None:
    pc, p, _, table = small(dy)
    sub = pc.add_subcollection("s")
    sub.add_parameters(1, name="b")
    f = tmp_path / "f"
    for key, expected in (("", ["/W", "/_0", "/s/b", "/E"]), ("/k", ["/k/W", "/k/_0", "/k/s/b", "/k/E"]),
                          ("/k/l/", ["/k/l/W", "/k/l/_0", "/k/l/s/b", "/k/l/E"])):  # fmt: skip
        pc.save(f, key)
        assert keys_of(f) == expected
        pc.populate(f, key)
    sub.save(f)
    assert keys_of(f) == ["/s/b"]
    sub.save(f, "/k")
    assert keys_of(f) == ["/k/b"]
    p.save(f, "any-key")
    table.save(f, "/W", append=True)
    p.save(f, append=True)
    assert keys_of(f) == ["any-key", "/W", "/W"]
    p.populate(f, "/W")
    table.populate(f, "/W")


@pytest.mark.parametrize("key", ["k", "/", "/a b", "/a#b", "/a\tb", "/a\nb", "/a\0b"])
def test_bad_keys(dy: Any, tmp_path: Path, key: str) -> None:
    pc, p, *_ = small(dy)
    with pytest.raises(ValueError, match="expected a key"):
        pc.save(tmp_path / "f", key)
    if key not in ("k", "/"):
        with pytest.raises(ValueError, match="expected a key"):
            p.save(tmp_path / "f", key)
    assert list(tmp_path.iterdir()) == []


def test_prefixes_end_at_a_slash(dy: Any, tmp_path: Path) -> None:
    pc = dy.ParameterCollection()
    a, ab = (pc.add_subcollection(name).add_parameters(2) for name in ("a", "ab"))
    pc.save(tmp_path / "f")
    for key in ("/a", "/a/"):
        other = dy.ParameterCollection()
        p = other.add_parameters(2)
        other.populate(tmp_path / "f", key)
        assert p.as_array().tolist() == a.as_array().tolist() != ab.as_array().tolist()
    for key in ("/b", "a", "/a/_0"):
        with pytest.raises(RuntimeError, match="has no keys that start with .* it has /a/_0, /ab/_0"):
            other.populate(tmp_path / "f", key)


def test_missing_keys(dy: Any, tmp_path: Path) -> None:
    pc, p, _, table = small(dy)
    pc.save(tmp_path / "f")
    with pytest.raises(RuntimeError, match="no Parameter with the key '/w'; it has /W"):
        pc.load_param(tmp_path / "f", "/w")
    with pytest.raises(RuntimeError, match="'/E': it is a LookupParameter there, line 5"):
        p.populate(tmp_path / "f", "/E")
    with pytest.raises(RuntimeError, match="'/W': it is a Parameter there, line 1"):
        pc.load_lookup_param(tmp_path / "f", "/W")
    with pytest.raises(
        RuntimeError, match=r"line 3: expected sizes \{2,3\} for /W, found Parameter /_0 \{2\}"
    ):
        p.populate(tmp_path / "f", "/_0")
    for call in (p.populate_from_textfile, table.populate, lambda f: p.populate(f, ""),
                 lambda f: pc.load_param(f, "")):  # fmt: skip
        with pytest.raises(ValueError, match="expected the key"):
            call(tmp_path / "f")
    with pytest.raises(TypeError, match="key"):
        p.populate(tmp_path / "f")
    assert len(pc.parameters_list()) == 2


def test_files_that_cannot_be_used(dy: Any, tmp_path: Path) -> None:
    pc, p, *_ = small(dy)
    for call in (pc.save, p.save, pc.write_to_textfile):
        for name in (tmp_path / "no" / "f", tmp_path, ""):
            with pytest.raises(RuntimeError, match="cannot write"):
                call(name)
    for call in (pc.populate, lambda f: p.populate(f, "/W"), lambda f: pc.load_param(f, "/W")):
        for name in (tmp_path / "none", tmp_path):
            with pytest.raises(RuntimeError, match="cannot read"):
                call(name)
    for call in (pc.save, p.save, pc.populate):
        with pytest.raises(TypeError, match="expected a file name, got int"):
            call(3)
    with pytest.raises(TypeError, match="expected a str"):
        p.save(tmp_path / "f", 3)


def test_signatures_and_old_names(dy: Any, tmp_path: Path) -> None:
    pc, p, _, table = small(dy)
    assert str(inspect.signature(dy.ParameterCollection.populate)).startswith("(self: 'Any', fname")
    assert list(inspect.signature(pc.save).parameters) == ["fname", "name", "append"]
    assert list(inspect.signature(pc.write_to_textfile).parameters) == ["fname", "key", "append"]
    assert list(inspect.signature(p.save).parameters) == ["fname", "key", "append"]
    assert inspect.signature(p.populate).parameters["key"].default is inspect.Parameter.empty
    assert inspect.signature(table.populate).parameters["key"].default == ""
    assert dy.Parameters.save.__qualname__ == "Parameters.save" and table.save.__name__ == "save"
    pc.write_to_textfile(tmp_path / "f", "/k", True)
    pc.populate_from_textfile(tmp_path / "f", "/k")
    p.write_to_textfile(tmp_path / "f", "key")
    p.populate_from_textfile(fname=tmp_path / "f", key="key")
    table.write_to_textfile(str(tmp_path / "f"))
    table.populate_from_textfile(bytes(tmp_path / "f"), "/E")


# --------------------------------------------------------------------------- what loading does to a model


def test_load_param(dy: Any, tmp_path: Path) -> None:
    """Names come from the file, counters go on, the default initialiser draws."""
    pc, p, _, table = small(dy)
    pc.save(tmp_path / "f")
    other = dy.ParameterCollection()
    sub = other.add_subcollection("s")
    dy.reset_random_seed(3)
    loaded = [sub.load_param(tmp_path / "f", "/W"), sub.load_lookup_param(tmp_path / "f", "/E")]
    after = other.add_parameters(1).as_array()
    assert [x.name() for x in loaded] == ["/W", "/E"] and sub.add_parameters(1).name() == "/s/_2"
    assert all(values_of(a).tobytes() == values_of(b).tobytes() for a, b in zip(loaded, (p, table)))
    dy.reset_random_seed(3)
    fresh = dy.ParameterCollection()
    fresh.add_parameters((2, 3))
    fresh.add_lookup_parameters((3, 2))
    assert fresh.add_parameters(1).as_array().tolist() == after.tolist()
    sub.save(tmp_path / "g", "/k")  # DyNet: IndexError
    assert keys_of(tmp_path / "g") == ["/k/W", "/k/_2", "/k/E"]


def test_loaded_gradients(dy: Any, tmp_path: Path) -> None:
    """They take part in the next update and in the next backward, but do not count when saved again."""
    pc, p, _, table = small(dy)
    dy.renew_cg()
    (dy.sum_elems(p) + dy.sum_elems(table[1])).backward()
    pc.save(tmp_path / "f")
    assert (tmp_path / "f").read_text().count("FULL_GRAD") == 2
    pc, p, _, table = small(dy)
    pc.populate(tmp_path / "f")
    assert p.grad_as_array().tolist() == np.ones((2, 3)).tolist()
    assert table.grad_as_array().tolist() == [[0, 0], [1, 1], [0, 0]]
    assert table.row_grad_as_array(1).tolist() == [1, 1] and table.rows_grad_as_array([0, 1])[1].tolist() == [
        1,
        1,
    ]
    table.scale_gradient(2)
    assert table.grad_as_array().tolist() == [[0, 0], [2, 2], [0, 0]]
    pc.save(tmp_path / "g")
    assert "FULL_GRAD" not in (tmp_path / "g").read_text()
    values, rows = p.as_array(), table.as_array()
    trainer = dy.SimpleSGDTrainer(pc, 1.0)
    trainer.set_clip_threshold(0)
    trainer.update()  # as in DyNet: a row waits until backward reaches it
    assert np.allclose(p.as_array(), values - 1) and np.array_equal(table.as_array(), rows)
    dy.renew_cg()
    (dy.sum_elems(table[1]) + dy.sum_elems(table[2])).backward()
    assert table.grad_as_array().tolist() == [[0, 0], [3, 3], [1, 1]]
    trainer.update()
    assert np.allclose(table.as_array(), rows - [[0, 0], [3, 3], [1, 1]])
    assert not table.grad_as_array().any()


def test_loading_over_gradients(dy: Any, tmp_path: Path) -> None:
    pc, p, _, table = small(dy)
    pc.save(tmp_path / "zero")
    dy.renew_cg()
    (dy.sum_elems(p) + dy.sum_elems(table)).backward()
    pc.populate(tmp_path / "zero")
    assert not p.grad_as_array().any() and not table.grad_as_array().any()
    pc.save(tmp_path / "g")  # the flag of backward stays, as in DyNet
    assert (tmp_path / "g").read_text().count("FULL_GRAD") == 2
    dy.renew_cg()
    dy.sum_elems(table).backward()
    assert table.grad_as_array().tolist() == np.ones((3, 2)).tolist()
    dy.SimpleSGDTrainer(pc).update()
    assert not table.grad_as_array().any()


def test_gradients_of_tables_that_are_not_updated(dy: Any, tmp_path: Path) -> None:
    """They stay for good: as in DyNet, they are not written where rows were read in batches alone."""

    def flags(*reads: Any) -> list[str]:
        pc = dy.ParameterCollection()
        table = pc.add_lookup_parameters((3, 2))
        table.set_updated(False)
        trainer = dy.SimpleSGDTrainer(pc)
        for read in reads:
            dy.renew_cg()
            dy.sum_batches(dy.sum_elems(read(table))).backward()
            trainer.update()
            assert table.grad_as_array().any()
        pc.save(tmp_path / "f")
        return [line.split()[-1] for line in (tmp_path / "f").read_text().splitlines() if line[0] == "#"]

    def batch(table: Any) -> Any:
        return dy.lookup_batch(table, [0, 2])

    def row(table: Any) -> Any:
        return table[1]

    def batch_of_one(table: Any) -> Any:
        return dy.lookup_batch(table, [1])

    assert flags(batch) == flags(batch_of_one) == flags(batch, batch) == ["ZERO_GRAD"]
    assert flags(row) == flags(batch, row) == flags(row, batch) == ["FULL_GRAD"]


def test_graph_keeps_the_values_it_has_seen(dy: Any, tmp_path: Path) -> None:
    pc, p, *_ = small(dy)
    pc.save(tmp_path / "f")
    stored = float(p.as_array().sum())
    p.set_value(np.ones((2, 3)))
    dy.renew_cg()
    e = dy.sum_elems(p)
    assert e.value() == 6.0
    pc.populate(tmp_path / "f")
    assert e.value() == 6.0
    dy.renew_cg()
    assert dy.sum_elems(p).value() == pytest.approx(stored, rel=1e-5)


def test_weight_decay_is_in_the_file(dy: Any, tmp_path: Path) -> None:
    pc = dy.ParameterCollection()
    pc.set_weight_decay(0.25)
    p = pc.add_parameters(3, init=1.0)
    dy.SimpleSGDTrainer(pc).update()
    dy.renew_cg()
    effective = (p * 1).npvalue()
    p.save(tmp_path / "f")
    assert effective.tolist() == [0.75] * 3
    assert values_of(dy.ParameterCollection().load_param(tmp_path / "f", "/_0")).tolist() == [0.75] * 3


def test_populate_under_weight_decay(dy: Any, tmp_path: Path) -> None:
    """As in DyNet the values of the file become raw ones: the factor of this collection applies once more."""
    pc = dy.ParameterCollection()
    pc.set_weight_decay(0.25)
    p = pc.add_parameters(3, init=1.0)
    dy.SimpleSGDTrainer(pc).update()
    pc.save(tmp_path / "f")
    pc.populate(tmp_path / "f")
    dy.renew_cg()
    assert p.as_array().tolist() == [0.75] * 3 and (p * 1).npvalue().tolist() == [0.5625] * 3


def test_large_file_in_pieces(dy: Any, tmp_path: Path) -> None:
    """Lines longer than the buffers, of every alignment."""
    rng = np.random.RandomState(1)
    pc = dy.ParameterCollection()
    for size in (65535, 65536, 65537, 200001):
        pc.parameters_from_numpy(rng.randn(size).astype(np.float32))
    pc.save(tmp_path / "f")
    other = dy.ParameterCollection()
    for p in pc.parameters_list():
        other.add_parameters(p.shape())
    other.populate(tmp_path / "f")
    assert unchanged(contents(pc), other)
    wide = (tmp_path / "f").read_text().replace(" ", "   ").replace("   ZERO", " ZERO").replace("}   ", "} ")
    wide = wide.replace("#   ", "# ").replace("   {", " {")
    (tmp_path / "g").write_text(wide)
    other.populate(tmp_path / "g")
    assert unchanged(contents(pc), other)


def test_names_that_are_no_text(dy: Any, tmp_path: Path) -> None:
    """File names of any bytes, keys of text; a damaged key harms nobody who goes by order."""
    pc, p, *_ = small(dy)
    name = bytes(tmp_path) + b"/\xff\xfe"
    pc.save(name)
    pc.populate(name)
    for call in (lambda: p.save(name, "\ud800"), lambda: p.populate(name, "\ud800"),
                 lambda: pc.populate(name, "/\ud800"), lambda: pc.load_param(name, "\ud800")):  # fmt: skip
        with pytest.raises(ValueError, match="expected text for"):
            call()
    data = Path(os.fsdecode(name)).read_bytes()
    Path(os.fsdecode(name)).write_bytes(data.replace(b"/W", b"/\xff"))
    pc.populate(name)
    Path(os.fsdecode(name)).write_bytes(data.replace(b"/W", b"/\xff")[:60])
    with pytest.raises(RuntimeError, match=r"line 2: Parameter /\? \{2,3\}: the file is truncated"):
        pc.populate(name)
    with pytest.raises(RuntimeError, match=r"expected .*, found Parameter /\\xff \{2,3\}"):
        Path(os.fsdecode(name)).write_bytes(data.replace(b"/W", b"/\xff"))
        dy.ParameterCollection().populate(name)
    p.save(tmp_path / "f", "/é")
    assert pc.load_param(tmp_path / "f", "/é").name() == "/é"
