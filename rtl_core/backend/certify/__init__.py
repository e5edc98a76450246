"""What a server must do that runs of this product train on: cases asked of any server that speaks Tinker's protocol.

`rtl-distill check-service` runs them against a URL, and the tests of the embedded service run the same ones.

    case.py        what a case is, and how it says that something is wrong
    catalogue.py   all cases, in the order in which they run
    bench.py       the server under examination, and what cases do with it
    calls.py       the SDK's calls that training and sampling need
    keeping.py     saved weights: listed, described, deleted, expiring, fetched
    numbers.py     arithmetic that shows without the model's folder
    reference.py   arithmetic against transformers and torch, with the model's folder
    faults.py      what a server says to requests that are wrong
    examine.py     runs cases one after the other, each for a limited time
    statuses.py    sees the 5xx answers that the SDK repeats in silence

A case has a session of its own. It costs some hundred tokens.
"""

from rtl_core.backend.certify.case import CASES, Case, Result
from rtl_core.backend.certify.examine import Examination, examine

__all__ = ["CASES", "Case", "Examination", "Result", "examine"]
