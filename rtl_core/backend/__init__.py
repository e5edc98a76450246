"""Backends, which train and sample: the protocol (base.py), selection by name (registry.py), and Tinker (tinker/)."""
