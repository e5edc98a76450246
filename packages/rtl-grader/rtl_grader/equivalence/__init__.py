"""Whether two designs behave alike: side by side in a simulator (`differential`), by proof (`proof`), by
consensus (`consensus`)."""
