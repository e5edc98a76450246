"""Problems and grader for training loops of other projects."""
