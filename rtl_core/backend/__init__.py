"""What trains and samples: the protocol (base.py), which one a run takes (registry.py), and Tinker's (tinker/)."""
