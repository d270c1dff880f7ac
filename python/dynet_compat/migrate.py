"""`python -m dynet_compat migrate script.py`: changes what a DyNet script must or should say.

Imports of DyNet become imports of dynet_compat; renamed functions and arguments get their present names; what
a program must decide for itself is only pointed at. The rest of the text stays as it is, comments and layout
included. Needs the extra `[migrate]` (libcst).
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

MODULES = {"dynet", "_dynet", "_gdynet"}

# Functions that only changed their names.
RENAMED = {
    "Model": "ParameterCollection",
    "zeroes": "zeros",
    "cwise_multiply": "cmult",
    "LSTMBuilder": "VanillaLSTMBuilder",
}
# Trainer arguments of 1.x and 2.0.
ARGUMENTS = {"e0": "learning_rate", "e0_min": "learning_rate_min", "e0_max": "learning_rate_max"}
TRAINERS = {
    "SimpleSGDTrainer",
    "MomentumSGDTrainer",
    "AdagradTrainer",
    "RMSPropTrainer",
    "CyclicalSGDTrainer",
}
# What the program's author must look at: method or function name -> why.
LOOK_AT = {
    "expr": "a constant since DyNet 2.1: to train it, write the parameter itself or expr(update=True)",
    "update_epoch": "has no effect since DyNet 2.0: set trainer.learning_rate, or call restart()",
    "matInput": "was removed: inputTensor(numpy array)",
    "inputMatrix": "was removed: inputTensor(numpy array)",
    "load_all": "was removed: dy.load(name, collection)",
    "save_all": "was removed: dy.save(name, objects)",
}


class Note(NamedTuple):
    """Something a change cannot decide."""

    line: int
    text: str


class Migration(NamedTuple):
    """What `migrate` made of a source text."""

    old: str
    new: str
    notes: list[Note]

    def diff(self, name: str) -> str:
        """Unified diff, empty when nothing changes."""
        lines = difflib.unified_diff(
            self.old.splitlines(keepends=True), self.new.splitlines(keepends=True), name, name
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def migrate(source: str) -> Migration:
    """Change a source text.

    Args:
        source: a Python 3 program that uses DyNet.
    Returns:
        The old and the new text, and notes on what the author must look at.
    Raises:
        SyntaxError: the text is not Python 3, with the line.
        ImportError: libcst is not installed.
    Example:
        >>> from dynet_compat.migrate import migrate
        >>> migrate("import dynet as dy").new
        'import dynet_compat as dy'
    """
    try:
        import libcst as cst
    except ImportError:
        raise ImportError('migrate needs libcst: pip install "dynet_compat[migrate]"') from None
    from libcst.metadata import MetadataWrapper

    try:
        tree = MetadataWrapper(cst.parse_module(source))
    except cst.ParserSyntaxError as error:
        reason = f"not Python 3 at line {error.raw_line}: {error.message.splitlines()[0]}"
        raise SyntaxError(f"{reason}; convert a Python 2 program first (python-modernize)") from None
    changer = _make_changer()
    new = tree.visit(changer)
    return Migration(source, new.code, sorted(changer.notes))


def _make_changer() -> Any:
    """The transformer; made here so that the package does not need libcst."""
    import libcst as cst
    from libcst.metadata import PositionProvider

    def name_of(node: Any) -> str:
        return str(cst.Module([]).code_for_node(node)).strip() if node else ""

    class Changer(cst.CSTTransformer):
        METADATA_DEPENDENCIES = (PositionProvider,)

        def __init__(self) -> None:
            super().__init__()
            self.notes: list[Note] = []
            self.aliases: set[str] = set()  # names the program has for DyNet
            self.starred = False  # from dynet import *

        def note(self, node: Any, text: str) -> None:
            self.notes.append(Note(self.get_metadata(PositionProvider, node).start.line, text))

        # ---- imports
        def leave_Import(self, original_node: Any, updated_node: Any) -> Any:
            names = []
            for alias in updated_node.names:
                module = name_of(alias.name)
                if module in MODULES:
                    local = name_of(alias.asname.name) if alias.asname else module
                    self.aliases.add(local)
                    asname = alias.asname or cst.AsName(name=cst.Name(module))
                    alias = alias.with_changes(name=cst.Name("dynet_compat"), asname=asname)
                names.append(alias)
            configs = [alias for alias in names if name_of(alias.name) == "dynet_config"]
            if configs and len(names) > 1:
                self.note(original_node, "import dynet_config in a line of its own, and run migrate again")
            elif configs:
                changed = cst.ImportAlias(name=cst.Name("dynet_config"), asname=configs[0].asname)
                return cst.ImportFrom(module=cst.Name("dynet_compat"), names=[changed])
            return updated_node.with_changes(names=names)

        def leave_ImportFrom(self, original_node: Any, updated_node: Any) -> Any:
            if name_of(updated_node.module) not in MODULES:
                return updated_node
            if isinstance(updated_node.names, cst.ImportStar):
                self.starred = True
                return updated_node.with_changes(module=cst.Name("dynet_compat"))
            names = [
                alias.with_changes(
                    name=cst.Name(RENAMED[alias.name.value]),
                    asname=alias.asname or cst.AsName(name=cst.Name(alias.name.value)),
                )
                if alias.name.value in RENAMED
                else alias
                for alias in updated_node.names
            ]
            return updated_node.with_changes(module=cst.Name("dynet_compat"), names=names)

        # ---- calls
        def leave_Attribute(self, original_node: Any, updated_node: Any) -> Any:
            known = isinstance(updated_node.value, cst.Name) and updated_node.value.value in self.aliases
            if known and updated_node.attr.value in RENAMED:
                return updated_node.with_changes(attr=cst.Name(RENAMED[updated_node.attr.value]))
            return updated_node

        def leave_Call(self, original_node: Any, updated_node: Any) -> Any:
            function = updated_node.func
            called = function.attr.value if isinstance(function, cst.Attribute) else name_of(function)
            ours = isinstance(function, cst.Attribute) and name_of(function.value) in self.aliases
            if called in TRAINERS and (ours or self.starred):
                updated_node = updated_node.with_changes(
                    args=self.trainer_arguments(original_node, updated_node)
                )
            updates = any(arg.keyword and arg.keyword.value == "update" for arg in updated_node.args)
            if (
                called in LOOK_AT
                and isinstance(function, cst.Attribute)
                and not (called == "expr" and updates)
            ):
                self.note(original_node, f"{called}(): {LOOK_AT[called]}")
            one = len(updated_node.args) == 1 and not updated_node.args[0].keyword
            if ours and called == "parameter" and one:
                return updated_node.args[0].value  # parameters are expressions
            return updated_node

        def trainer_arguments(self, original_node: Any, updated_node: Any) -> list[Any]:
            arguments = []
            for argument in updated_node.args:
                keyword = argument.keyword.value if argument.keyword else ""
                if keyword in ARGUMENTS:
                    argument = argument.with_changes(keyword=cst.Name(ARGUMENTS[keyword]))
                elif keyword == "edecay":
                    text = "edecay: set trainer.learning_rate after each epoch instead"
                    self.note(original_node, text)
                arguments.append(argument)
            return arguments

    return Changer()


def main(script: str, write: bool, out: Optional[Any] = None) -> int:
    """The command: prints the diff and the notes; with `write` changes the file. Returns the exit status."""
    out = out or sys.stdout
    path = Path(script)
    try:
        source = path.read_bytes().decode("utf-8")
        result = migrate(source)
    except (OSError, UnicodeDecodeError, SyntaxError, ImportError) as error:
        print(f"{script}: {error}", file=sys.stderr)
        return 2
    difference = result.diff(script)
    out.write(difference or f"{script}: nothing to change\n")
    for note in result.notes:
        print(f"{script}:{note.line}: look at this: {note.text}", file=out)
    if write and difference:
        path.write_bytes(result.new.encode("utf-8"))
        print(f"{script}: written", file=out)
    return 0
