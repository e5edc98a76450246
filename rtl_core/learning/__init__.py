"""Mathematics of training, without input or output: reward, credit, advantage, KL, curriculum, intervals."""
