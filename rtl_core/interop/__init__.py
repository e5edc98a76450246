"""Our problems and our grader for other people's training loops."""
