"""Whether two designs behave alike: in simulations with the same inputs (`differential`), by proof (`proof`), by
consensus (`consensus`)."""
