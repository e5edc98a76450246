"""How a teacher with another tokenizer, or another chat template, reads a student's answer.

The teacher gets the messages of the prompt in its own chat format, then the answer's text in its own tokens
(`split_special_tokens`: text that looks like a special token stays text), then its own end of a turn if the student
ended its turn. An answer that was cut has no end. A student's thought is left out, or stands where the teacher's
template puts one. Nothing but the answer, the thought and the end of the turn is aligned (learning/spans.py): tags
and headers have no counterpart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rtl_core.errors import PolicyError
from rtl_core.learning.spans import (
    NO_SPANS,
    REPLACEMENT,
    SpanArray,
    Tokenised,
    align,
    heard_T,
    one_to_one,
)
from rtl_core.prompting.chat import Chat, decoded
from rtl_core.types.tokenizer import TokenIds, Tokenizer
from rtl_grader.extraction.thoughts import Place, thought_and_answer
from rtl_grader.prompts import Message

_MOST_PENDING = 64
"""Tokens that may be needed for a whole character, after which the rest of a text is one piece."""
_ANCHOR = "a"


@dataclass(frozen=True)
class ReadAnswer:
    """An answer as a teacher reads it: U tokens after a prompt, and the spans that they share with the student's."""

    prompt_P: tuple[int, ...]
    tokens_U: tuple[int, ...]
    spans_S4: SpanArray


class Reader:
    """A student's chat and that of a teacher whose tokens differ.

    Args:
        thoughts: whether the teacher reads the student's thoughts (`learning.teacher_reads`).
        context: the teacher's maximum of tokens; None: unknown.

    Raises:
        PolicyError: the teacher is to read thoughts, and its template has no place for them.
    """

    def __init__(
        self,
        student: Chat,
        teacher: Chat,
        *,
        thoughts: bool = False,
        context: int | None = None,
    ) -> None:
        self.student, self.teacher = student, teacher
        self.context = context
        self._student_text, self._teacher_text = Decoder(student), Decoder(teacher)
        self._around = teacher.around_thought if thoughts else None
        if thoughts and self._around is None:
            raise PolicyError(
                f"learning.teacher_reads: the chat template of {teacher.model} has no place for a thought",
                'set learning.teacher_reads = "answer", or choose a teacher that thinks',
            )

    def read(
        self, messages: Sequence[Message], prompt_P: TokenIds, tokens_T: TokenIds
    ) -> ReadAnswer:
        """Return how the teacher reads the student's answer of T tokens to these messages.

        Without tokens: it has no text that the teacher could read (it ends within its thought, or nothing is aligned),
        or it does not fit the teacher's context. Such an answer learns from its reward alone.
        """
        ended = bool(tokens_T) and tokens_T[-1] in self.student.stop
        own = self._student_text.tokenised(tokens_T[:-1] if ended else tokens_T)
        opening = self.student.opening(prompt_P)
        thought, answer = thought_and_answer(opening + own.text)
        prompt, tokens, spans = self.teacher.encode(messages), list[int](), list[SpanArray]()

        def add(place: Place) -> None:
            start, stop = (max(0, at - len(opening)) for at in place)
            read_U = self.teacher.tokens_of_text(own.text[start:stop])
            found = align(own, self._teacher_text.tokenised(read_U), start, stop)
            spans.append(found + np.array([0, 0, len(tokens), len(tokens)], np.int32))
            tokens.extend(read_U)

        before, after = self._around or ("", "")
        if self._around and thought:
            prompt += self.teacher.tokens_of_frame(before)
            add(thought)
            if answer:
                tokens += self.teacher.tokens_of_frame(after)
        else:
            prompt += self.teacher.tokens_of_frame(self.teacher.lead)
        if answer:
            add(answer)
            if ended:
                last, there = len(tokens_T) - 1, len(tokens)
                spans.append(np.array([[last, last + 1, there, there + 1]], np.int32))
                tokens.append(self.teacher.stop[0])
        total = len(prompt) + len(tokens)
        if not any(map(len, spans)) or total > (self.context or total):
            return ReadAnswer((), (), NO_SPANS)
        return ReadAnswer(tuple(prompt), tuple(tokens), np.concatenate(spans))


@dataclass(frozen=True)
class Agreement:
    """How a student and a teacher tokenise the same texts."""

    spans: int
    one_to_one: int
    """Spans with one token on both sides."""
    unheard: float
    """Share of the student's tokens that are in no span."""
    ratio: float = 1.0
    """Tokens of the teacher per token of the student, in prompts and answers together."""
    most_ratio: float = 1.0
    """The largest ratio of a single prompt or answer."""

    @property
    def in_words(self) -> str:
        share = self.one_to_one / max(1, self.spans)
        words = f"{share:.0%} of {self.spans:,} spans hold one token on both sides"
        return words + (
            f", {self.unheard:.1%} of the tokens are in no span" if self.unheard else ""
        )


def agreement(reader: Reader, texts: Sequence[tuple[Sequence[Message], str]]) -> Agreement:
    """Measure on prompts, each with an answer, which tokens of student and teacher are spans."""
    spans, lengths = list[SpanArray](), list[tuple[int, int]]()
    tokens = heard = 0
    for messages, answer in texts:
        prompt_P, tokens_T = reader.student.encode(messages), reader.student.tokens_of(answer)
        read = reader.read(messages, prompt_P, tokens_T)
        tokens += len(tokens_T)
        lengths.append((len(reader.teacher.encode(messages)), len(prompt_P)))
        spans.append(read.spans_S4)
        heard += int(heard_T(read.spans_S4, len(tokens_T)).sum())
        if read.tokens_U:
            lengths.append((len(read.tokens_U), len(tokens_T)))
    return Agreement(
        spans=sum(map(len, spans)),
        one_to_one=sum(map(one_to_one, spans)),
        unheard=1 - heard / max(1, tokens),
        ratio=sum(theirs for theirs, _ in lengths) / max(1, sum(ours for _, ours in lengths)),
        most_ratio=max((theirs / ours for theirs, ours in lengths), default=1.0),
    )


class Decoder:
    """Where tokens end in their text, for any tokenizer that can decode.

    Tokens are decoded behind an ordinary one, because some tokenizers treat the beginning of a text differently.
    """

    def __init__(self, chat: Chat) -> None:
        self._tokenizer: Tokenizer = chat.tokenizer
        self._anchor = self._tokenizer.encode(_ANCHOR, add_special_tokens=False)[-1:]
        self._skipped = len(decoded(self._tokenizer, self._anchor))
        self._piece = cache(lambda token: self.text([token]))

    def text(self, tokens: TokenIds) -> str:
        """Text of tokens that follow others."""
        return decoded(self._tokenizer, [*self._anchor, *tokens])[self._skipped :]

    def tokenised(self, tokens: TokenIds) -> Tokenised:
        """Return the text of tokens, and after which of them a character ends.

        A token whose bytes end within a character is joined with those after it.
        """
        text, at = self.text(tokens), 0
        ends, pending = [-1] * len(tokens), list[int]()
        for number, token in enumerate(tokens):
            pending.append(token)
            piece = self._piece(token) if len(pending) == 1 else self.text(pending)
            if not piece.endswith(REPLACEMENT) and text.startswith(piece, at):
                at += len(piece)
                ends[number] = at
                pending = []
            elif len(pending) == _MOST_PENDING:
                break
        if not pending and at != len(text):  # the tokens' texts are not those of the whole
            ends = [-1] * len(tokens)
        if ends:
            ends[-1] = len(text)
        return Tokenised(text, tuple(ends))
