"""The tiny models that ship with the package, and how they are made (`rtl-distill make-models`).

All are Qwen3-architecture models of about a million parameters or less with one tokenizer, trained from scratch on the train split of the
starter set. Two pairs of student and teacher, one for each tier, and two further students:

- *student*, *teacher*: the starter tier. The student's habit of answering with the textbook's interface is planted by its training mixture
  (corpus.py): it stands for what first trials saw in a 30B model, and is there for reinforcement to undo.
- *reader*: the student, trained on until it gives an answer that its prompt shows, which larger models do by themselves; its habit is
  the same. It is the student of runs in which a model is its own teacher.
- *agent*: the student, trained on in conversations with tools (tokenizer.py has their form) about problems whose specification stands in a
  document of the workspace. Its habit is to write the textbook's design at once and submit; in one of ten conversations it reads the document first.
  This habit is planted, too: it stands for models that do not look before they write.
- *hard-teacher*, *hard-student*: the hard tier. The teacher goes on from the starter tier's with more of the hard one. The student is the
  teacher, trained on until it is careless there: it writes every design of the tier, in any of its variants and with any kind of reset,
  whatever the specification asks, and with textbook names in a part of its answers. This habit is planted, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

ModelName = Literal["student", "reader", "agent", "teacher", "hard-teacher", "hard-student"]
MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)


def model_path(name: ModelName) -> Path:
    """Folder of a shipped model, in the form that `AutoModelForCausalLM` and `AutoTokenizer` load."""
    if name not in MODEL_NAMES:
        raise ValueError(f"no shipped model {name!r}: choose one of {', '.join(MODEL_NAMES)}")
    return Path(__file__).parent / name
