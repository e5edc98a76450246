"""The starter families, a module per group."""
