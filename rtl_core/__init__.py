"""All logic of rtl-distill, without Prefect: one room per noun (docs/architecture.md)."""

__version__ = "0.2.0"
