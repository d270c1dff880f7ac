"""Static hints: `python -m dynet_compat compile script.py` reads a script and writes what it found beside it.

The compile step (everything here that `cli` imports) works on the script's syntax and never runs it, except
with `--profile`. What it writes, `script.dyhints`, holds facts and no code; `hints_file.read` checks all of
them. Facts decide how fast a program runs, never what it computes.

    analysis        what the script does, by reading it
    passes          the analyses in order, and the contents of the file
    hints_file      the file: writing, reading, checking
    explain         what prevents batching, for people
    tune            running the script to time the ways to run its launches
    runtime         finding the file while the script runs, and using it
    parallel_loops  loops over instances whose iterations run together
"""
