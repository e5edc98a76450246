"""The algorithms of a train step, one file each: what graded answers are worth, and what the loss reads of them."""
