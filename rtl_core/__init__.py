"""All logic of rtl-distill, without Prefect: one room per noun (see README, "The house")."""

__version__ = "0.2.0"
