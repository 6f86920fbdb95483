"""Training and evaluation of runs: planning, the step loop, saved results."""
