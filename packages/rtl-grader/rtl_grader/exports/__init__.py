"""Problems and their grader for other training loops and evaluations."""
