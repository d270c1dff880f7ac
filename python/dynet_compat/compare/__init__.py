"""`python -m dynet_compat compare script.py`: one script on DyNet and on dynet_compat, side by side.

The script runs unmodified in processes of its own: with the reference, the real DyNet 2.1.2 under Python 3.8,
and with dynet_compat. Both are watched from outside, in the same way; what they computed is compared and
what it cost is measured. See `cli` for the command line.

    reference   finds the reference's interpreter, or makes one
    recorder    the part inside each process (with hooks, instrument, event_log, event_files: Python 3.8)
    runs        starts the processes and reads what they wrote
    diff        compares two runs; the first divergence
    locate      the op and the line where the first divergence comes from
    side_by_side  all runs of one script, and their result
    table, report, svg  the terminal, the HTML page, its plots
"""

from __future__ import annotations

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """The command line `compare`; returns the exit status: 0 equal, 1 not, 2 nothing to compare.

    Args:
        arguments: as on the command line, without the word `compare`.
    Returns:
        The exit status.
    Example:
        >>> from dynet_compat import compare
        >>> compare.main(["no_such_script.py"])  # prints one line on stderr
        2
    """
    from . import cli

    return cli.main(arguments)
