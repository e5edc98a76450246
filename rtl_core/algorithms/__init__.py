"""The algorithms of a train step, one file each: credit of graded answers, and inputs of the loss."""
