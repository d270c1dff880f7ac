"""What is found in one script, by all analyses in order."""

from __future__ import annotations

from typing import Callable, Optional

from .callgraph import CallGraph
from .concurrent_calls import ConcurrentCalls
from .independence import Independence
from .instances import Instances
from .interpreter import Interpreter
from .load import load
from .loops import Loops
from .scopes import Program


class ScriptAnalysis:
    """The results.

    Args:
        script: path of the Python file.
        progress: called now and then with the numbers of visits to functions done and known to be ahead.
    Raises:
        LoadError: the script cannot be read.
    """

    def __init__(self, script: str, progress: Optional[Callable[[int, int], None]] = None) -> None:
        self.program = Program(load(script))
        interpreter = Interpreter(self.program, progress)
        self.facts = interpreter.run()
        self.state = interpreter.state
        self.graph = CallGraph(self.state)
        self.loops = Loops(self.state, self.graph)
        self.instances = Instances(self.state, self.loops)
        self.independence = Independence(self.state, self.loops)
        self.concurrent_calls = ConcurrentCalls(self.independence)

    @property
    def usable(self) -> bool:
        """Whether anything may be said of the program at all."""
        return not any(problem.scope == "program" for problem in self.program.problems)

    def recording(self) -> list[int]:
        """Functions that record ops or read values, those left out of which nothing may be said."""
        nodes = [*self.facts.ops, *self.facts.reads] if self.usable else []
        return sorted({self.program.owner[node] for node in nodes} - self.program.opaque)
