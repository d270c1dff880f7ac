"""Static hints: `python -m dynet_compat compile script.py` reads a script and writes what it found beside it.

The compile step (everything here that `cli` imports) works on the script's syntax and never runs it, except
with `--profile`. What it writes, `script.dyhints`, holds facts and no code; `emit.read` checks every one of
them. Facts decide how fast a program runs, never what it computes.

    load         source files, their hashes, the script's own modules
    scopes       functions, classes, loops, and which names belong to whom
    lattice      abstract values
    kinds        the abstract interpreter: statements (statements), expressions (values), calls (calls)
    callgraph    who calls whom; recursion
    flow         which names code reads before it assigns them
    effects      what calling something does beyond computing
    sites loops instances branches phases blocks straight independence     one pass each
    passes       all of them in order, and the contents of the file
    emit         the file: writing, reading, checking
    explain      what prevents batching, for people
    profile      running the script to count its launches, per place and size
"""
