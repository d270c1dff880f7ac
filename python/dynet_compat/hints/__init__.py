"""Static hints: `python -m dynet_compat compile script.py` reads a script and writes what it found beside it.

The compile step (everything here that `cli` imports) works on the script's syntax and never runs it. What it
writes, `script.dyhints`, holds facts and no code; `hints_file.read` checks all of them. Facts decide how
fast a program runs, never what it computes.

    analysis        what the script does, found by reading it
    compiler        the contents of the file, and what people are told
    explain         what prevents batching, line by line
    hints_file      the file: what it holds, writing, reading, checking
    runtime         while the script runs: finding the file, and rewriting the functions that it names
    waiting         the same without a file: when the script has run for long enough to pay for it
    rewrite         functions in which one call records each region, from the script's own source
    parallel_loops  while the script runs: loops over instances whose iterations run together
"""
