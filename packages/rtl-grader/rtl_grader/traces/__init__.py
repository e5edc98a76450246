"""What a design gives for stimuli that depend on the problem and on numbers of an answer: stimuli, test bench,
and comparison of two traces outside the simulation. Two designs are never in one simulation."""
