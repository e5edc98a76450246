"""From a model's response to the files of its answer."""
