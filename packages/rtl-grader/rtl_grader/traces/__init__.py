"""What a design gives for stimuli that depend only on the problem: stimuli, test bench, and comparison of two
traces outside the simulation. Two designs are never in one simulation."""
