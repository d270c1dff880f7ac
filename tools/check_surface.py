"""Compare the package with the list of DyNet's names, and print what is missing or different.

    python tools/check_surface.py SURFACE.json

Every function, class, member, property, alias, constant and default value of the list is looked up in
`dynet_compat`, and every parameter's name, kind and place is read with `inspect.signature`. Exit status 1
when something is missing, or differs without standing in ALLOWED below.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

Entry = Mapping[str, Any]

DEVICE = "an optional argument more: every op can name its device"
LEGACY = "an optional argument more, of an older DyNet (see dynet_compat.api.legacy)"
OPERATOR = "an operator slot of C: its operands have no names"

# Differences that are meant: (name, what is reported) -> reason. The texts must agree exactly, and an entry
# that no longer occurs is reported as well.
ALLOWED: dict[tuple[str, str], str] = {
    **{(name, "extra parameter device=''"): DEVICE
       for name in ("zeros", "zeroes", "ones", "constant", "random_normal", "random_bernoulli",
                    "random_uniform", "random_gumbel")},
    ("flip_gradient", "extra parameter lambd=1.0"): LEGACY,
    ("Trainer.update", "extra parameter s=1.0"): LEGACY,
    ("CyclicalSGDTrainer.update", "extra parameter s=1.0"): LEGACY,
    ("Trainer.update_epoch", "default of r: 1.0, not required"): "1.x: the argument was optional",
    ("parameter", "extra parameter update=True"): LEGACY,
    ("dynet_config.set", "default of autobatch: _UNSET"): "0, but told from a 0 that the user wrote",
    ("load", "extra parameter trusted=()"): "an addition: classes that a .meta file may name",
    ("load_generator", "extra parameter trusted=()"): "as load",
    **{(f"{kind}.npvalue", "extra parameter device=''"): "an addition: a GPU's array, which stays there"
       for kind in ("Expression", "Parameters", "LookupParameters")},
    ("LookupParameters.expr", "extra parameter update=True"): "an addition: False passes no gradient",
}  # fmt: skip

# What DyNet's module for drawings is made of inside. Ours draws what the API records and needs none of it.
DRAWING_INTERNALS = frozenset(
    "new_index make_dim ensure_freshness copy_dim ensure_same_dim ensure_mul_dim ensure_all_same_dim _add "
    "_mul _neg _scalarsub _cadd _cmul _cdiv GVExpr new_builder_num shape_str make_network_graph parents_of "
    "collapse_birnn_states SimpleConcreteDim InvalidConcreteDim Initializer GVNode".split()
)


class Difference(NamedTuple):
    """Something missing or different."""

    name: str
    what: str
    missing: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


# ---------------------------------------------------------------- signatures


def signature_of(item: Any) -> Optional[inspect.Signature]:
    """The signature, or None where Python cannot tell."""
    try:
        return inspect.signature(item)
    except (ValueError, TypeError):
        return None


def shown(value: Any) -> str:
    """A default value as the reports write it."""
    return type(value).__name__.upper() if type(value).__name__ == "_Unset" else repr(value)


def same_default(value: Any, wanted: Any) -> bool:
    """Equal, where JSON has no tuples, and DyNet's floats are 32 bits long."""
    if type(value).__name__ == "_Unset":
        return False
    if isinstance(value, (tuple, list)) and isinstance(wanted, list):
        return list(value) == wanted
    if isinstance(wanted, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return abs(value - wanted) <= 1e-7 * abs(wanted)
    if isinstance(wanted, bool) != isinstance(value, bool):
        return False
    return bool(value == wanted)


def parameter_differences(
    name: str, found: Sequence[inspect.Parameter], wanted: Sequence[Entry]
) -> Iterator[Difference]:
    """Differences of two lists of parameters, without self."""
    kinds = {"var_positional": "VAR_POSITIONAL", "var_keyword": "VAR_KEYWORD"}
    for place, parameter in enumerate(wanted):
        own_kind = kinds.get(parameter["kind"], parameter["kind"].upper())
        if place >= len(found):
            yield Difference(name, f"parameter {parameter['name']} is missing")
            continue
        has = found[place]
        if has.kind.name != own_kind:
            yield Difference(name, f"kind of {has.name}: {has.kind.name}, not {own_kind}")
        if own_kind.startswith("VAR_"):
            continue  # the name of *args says nothing to a caller
        if has.name != parameter["name"]:
            yield Difference(name, f"parameter {place + 1} is {has.name}, not {parameter['name']}")
        yield from default_differences(name, has, parameter)
    for has in found[len(wanted) :]:
        default = "" if has.default is inspect.Parameter.empty else f"={shown(has.default)}"
        yield Difference(name, f"extra parameter {has.name}{default}")


def default_differences(name: str, has: inspect.Parameter, wanted: Entry) -> Iterator[Difference]:
    """Differences of one parameter's default value."""
    optional = has.default is not inspect.Parameter.empty
    if "default" not in wanted:
        if optional:
            yield Difference(name, f"default of {has.name}: {shown(has.default)}, not required")
    elif not optional:
        yield Difference(name, f"default of {has.name}: none, not {wanted['default']!r}")
    elif not same_default(has.default, wanted["default"]):
        yield Difference(name, f"default of {has.name}: {shown(has.default)}")


def check_callable(name: str, item: Any, entry: Entry, bound: bool) -> Iterator[Difference]:
    """A function; or, with `bound`, a method or class, whose list of parameters begins with self or cls."""
    if not callable(item) and not isinstance(item, (classmethod, staticmethod)):
        yield Difference(name, "is not callable")
        return
    signature = signature_of(item)
    if signature is None:
        yield Difference(name, "has no signature")
        return
    wanted = entry["params"][1:] if bound else entry["params"]
    yield from parameter_differences(name, list(signature.parameters.values()), wanted)


# ---------------------------------------------------------------- modules and classes


class Surface:
    """The checks over one list."""

    def __init__(self, surface: Mapping[str, Any]) -> None:
        self.surface = surface
        self.checked = 0

    def look_up(self, owner: Any, name: str, path: str) -> tuple[Any, list[Difference]]:
        """The attribute, or the report that there is none."""
        self.checked += 1
        if not hasattr(owner, name):
            return None, [Difference(path, "is missing", True)]
        return getattr(owner, name), []

    def functions(self, module: Any, entries: Mapping[str, Entry], prefix: str = "") -> Iterator[Difference]:
        for name, entry in entries.items():
            item, missing = self.look_up(module, name, prefix + name)
            yield from missing or check_callable(prefix + name, item, entry, False)

    def classes(self, module: Any, entries: Mapping[str, Entry], prefix: str = "") -> Iterator[Difference]:
        for name, entry in entries.items():
            item, missing = self.look_up(module, name, prefix + name)
            yield from missing
            if item is None:
                continue
            if not isinstance(item, type):
                yield Difference(prefix + name, "is not a class")
                continue
            base = entry["base"]
            if base != "object" and base not in [c.__name__ for c in item.__mro__[1:]]:
                yield Difference(prefix + name, f"is not derived from {base}")
            for member in entry["members"].values():
                yield from self.member(item, f"{prefix}{name}.{member['name']}", member)
            for member_name in entry.get("inherited_members", []):
                yield from self.look_up(item, member_name, f"{prefix}{name}.{member_name}")[1]

    def member(self, owner: type, path: str, entry: Entry) -> Iterator[Difference]:
        name = entry["name"]
        item, missing = self.look_up(owner, name, path)
        if missing:
            yield from missing
        elif entry["kind"] == "property":
            yield from self.property_of(owner, path, entry)
        elif name == "__init__":
            yield from check_callable(path, owner, entry, True)
        elif name.startswith("__"):
            yield from self.operator(path, item, entry)
        else:
            # self is not in the signature of what a class method is bound to
            unbound = inspect.getattr_static(owner, name)
            own = entry["params"][1:]
            signature = signature_of(item)
            if signature is None:
                yield Difference(path, "has no signature")
                return
            found = list(signature.parameters.values())
            if not entry.get("classmethod") and not isinstance(unbound, (classmethod, staticmethod)):
                found = found[1:]
            yield from parameter_differences(path, found, own)

    @staticmethod
    def operator(path: str, item: Any, entry: Entry) -> Iterator[Difference]:
        """A special method: of a slot only the number of operands can be compared."""
        signature = signature_of(item)
        if signature is None:
            yield Difference(path, "has no signature")
            return
        most = len(entry["params"])
        needed = [p for p in signature.parameters.values() if p.default is inspect.Parameter.empty]
        if len(needed) > most or len(signature.parameters) < min(most, 2):
            yield Difference(path, f"takes {len(needed)} operands, not {most}")

    @staticmethod
    def property_of(owner: type, path: str, entry: Entry) -> Iterator[Difference]:
        item = inspect.getattr_static(owner, entry["name"])
        for base in owner.__mro__:
            item = vars(base).get(entry["name"], item)
        if not (isinstance(item, property) or inspect.isgetsetdescriptor(item)):
            yield Difference(path, "is not a property")
        elif isinstance(item, property) and (item.fset is not None) != entry["writable"]:
            yield Difference(path, "is writable" if item.fset else "is not writable")

    def constants(self, module: Any, entries: Mapping[str, Entry]) -> Iterator[Difference]:
        for name, entry in entries.items():
            if name == "_params":  # exists only where dynet_config was used before the import
                continue
            value, missing = self.look_up(module, name, name)
            yield from missing
            if missing:
                continue
            kinds = {"bool": bool, "str": str, "dict|None": (dict, type(None))}
            if not isinstance(value, kinds[entry["type"]]):
                yield Difference(name, f"is a {type(value).__name__}, not {entry['type']}")
            if "value" in entry and value != entry["value"]:
                yield Difference(name, f"is {value!r}, not {entry['value']!r}")

    def aliases(self, module: Any) -> Iterator[Difference]:
        for alias, name in self.surface["class_aliases"].items():
            value, missing = self.look_up(module, alias, alias)
            yield from missing
            if not missing and value is not getattr(module, name, None):
                yield Difference(alias, f"is not {name}")
        exported = getattr(module, "__all__", None)
        for name in self.surface["star_import_leaks"]:
            yield from self.look_up(module, name, name)[1]
            if exported is not None and name not in exported:
                yield Difference(name, "is not given by `from dynet import *`")
        for name in self.surface["module_aliases"]:
            self.checked += 1
            if not (Path(module.__file__).parent / "startup" / "shims" / "modules" / f"{name}.py").is_file():
                yield Difference(name, "is no module of the shims", True)

    def drawings(self, dy: Any, entries: Mapping[str, Any]) -> Iterator[Difference]:
        """A drawing runs the API: of DyNet's names for drawings there is each one that programs use."""
        drawing = importlib.import_module("dynet_compat.inspection.drawing")
        own = {"print_graphviz": entries["functions"]["print_graphviz"]}
        yield from self.functions(drawing, own, "dynet_viz.")
        for name in {*entries["functions"], *entries["classes"]} - DRAWING_INTERNALS:
            yield from self.look_up(dy, name, f"dynet_viz.{name}")[1]

    def run(self) -> list[Difference]:
        """All differences, documented ones included."""
        dy = importlib.import_module("dynet_compat")
        config = importlib.import_module("dynet_compat.startup.shims.dynet_config")
        s = self.surface
        found = [*self.functions(dy, s["functions"]), *self.classes(dy, s["classes"])]
        found += self.constants(dy, s["dynet_module"]["constants"])
        found += self.functions(dy, s["dynet_module"]["functions"])
        found += self.aliases(dy)
        found += self.functions(config, s["dynet_config"]["functions"], "dynet_config.")
        found += self.drawings(dy, s["dynet_viz"])
        return found


def undocumented(found: Sequence[Difference]) -> list[Difference]:
    """What ALLOWED does not excuse, and what it excuses without need."""
    occurring = {(d.name, d.what) for d in found}
    left = [d for d in found if (d.name, d.what) not in ALLOWED]
    for name, what in ALLOWED:
        if (name, what) not in occurring:
            left.append(Difference(name, f"allowed, but does not occur: {what}"))
    return left


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("surface", type=Path, help="the list of names, as JSON")
    arguments = parser.parse_args()
    surface = Surface(json.loads(arguments.surface.read_text(encoding="utf-8")))
    found = surface.run()
    left = undocumented(found)
    for difference in left:
        print(difference)
    missing = sum(d.missing for d in left)
    print(
        f"{surface.checked} names checked: {missing} missing, {len(left) - missing} undocumented "
        f"differences, {sum((d.name, d.what) in ALLOWED for d in found)} documented"
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
