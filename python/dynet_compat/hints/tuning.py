"""Numbers that decide when hints do what. "Guess": chosen by reasoning, and not measured since."""

# Processor time that a process has used for each second that hints take in the mode `auto`. Guess: 2 % of a
# run is what nobody notices.
USED_FOR_HINTS = 50.0
# Seconds that finding the script's modules takes; looking at a line of them; using what was kept of a line;
# loading the rewriter; and searching functions among all objects, for each block of memory (starts.py).
FINDING = 7e-3
LOOKING_AT_A_LINE = 85e-6
USING_A_KEPT_LINE = 7e-6
LOADING = 15e-3
SEARCHING_A_BLOCK = 20e-9
# Seconds between two readings of the process' clock, and the share of what is left to wait that is let pass.
# Guesses.
LEAST_PAUSE = 0.02
PAUSE = 1 / 8
