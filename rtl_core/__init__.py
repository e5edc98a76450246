"""The logic of rtl-distill, independent of Prefect, one package per noun (docs/architecture.md)."""

__version__ = "0.3.0"
