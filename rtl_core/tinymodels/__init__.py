"""The tiny models that ship with the package, and their training (`rtl-distill admin models`).

All are Qwen3 models of about a million parameters or less with the same tokenizer, trained from scratch on
the train split of the starter set. There is a pair of student and teacher for each tier, and two further
students. All habits are planted by the training mixture (corpus.py):

- *student*, *teacher*: the starter tier. The student's habit of answering with the textbook's interface
  reproduces what first trials saw in a 30B model. Reinforcement is meant to undo it.
- *reader*: the student, trained further to repeat an answer that its prompt shows, as larger models do; it
  has the same habit. Used as the student of runs in which a model is its own teacher.
- *agent*: the student, trained further on conversations with tools (format in tokenizer.py) about problems
  whose specification is a document of the workspace. Its habit is to write the textbook's design at once
  and submit, like models that do not look before they write; in one of ten conversations it reads the
  document first.
- *hard-teacher*, *hard-student*: the hard tier. The teacher is the starter tier's, trained further with
  more of the hard tier. The student is this teacher, trained further to be careless: it writes any variant
  of a design with any kind of reset, whatever the specification says, and sometimes with textbook names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

ModelName = Literal["student", "reader", "agent", "teacher", "hard-teacher", "hard-student"]
MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)


def model_path(name: ModelName) -> Path:
    """Return the folder of a shipped model, for `AutoModelForCausalLM` and `AutoTokenizer`."""
    if name not in MODEL_NAMES:
        raise ValueError(f"no shipped model {name!r}: choose one of {', '.join(MODEL_NAMES)}")
    return Path(__file__).parent / name
