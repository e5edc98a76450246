"""The prompts of a run, and checks of whether sizes and settings fit the models before anything is sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rtl_core.backend.base import Readiness
from rtl_core.backend.start import check_spans, different_tokens, wanted_models
from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Prices
from rtl_core.errors import PolicyError, ProblemError
from rtl_core.history.store import History
from rtl_core.prompting.budget import Prompt, build_prompt
from rtl_core.prompting.chat import Chat, thinks_by_name
from rtl_core.prompting.reading import Agreement, Reader, agreement
from rtl_core.types.finding import Finding, Findings
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.prompts import Message
from rtl_grader.types.problem import Problem

COMPARED = 16
"""Number of prompts that are also rendered with every teacher's chat template."""
MEASURED = 64
"""Number of prompts with answers on which a teacher's tokens are compared with the student's."""
THINKING_TOKENS = 24_576
"""Tokens for an answer with thoughts: with fewer, models of this size are often cut in the middle of a thought."""
PLAIN_TOKENS = 8_192
"""Tokens for an answer without thoughts."""
CUT_SHARE = 0.25
"""Share of truncated answers that is normal for a thinking model on hard problems."""
NAMED = 5
"""Maximum number of problems named in a finding."""
AT_START = 1_000
"""About as many prompts of training problems are built before a run starts; any others when they are used."""


class Prompts(dict[str, Prompt]):
    """Mapping of problem id to prompt. One that is not built yet is built when it is asked for."""

    def __init__(self, build: Callable[[str], Prompt]) -> None:
        super().__init__()
        self._build = build

    def __missing__(self, problem_id: str) -> Prompt:
        """Raises ProblemError when the prompt does not fit its budget."""
        self[problem_id] = self._build(problem_id)
        return self[problem_id]


@dataclass(frozen=True)
class PreparedPrompts:
    """The prompts of a run, and how its teachers read them."""

    prompts: dict[str, Prompt] = field(default_factory=dict)
    """Mapping of problem id to prompt."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Mapping of problem id to the reason for having no prompt."""
    readers: dict[str, Reader] = field(default_factory=dict)
    """Teachers, by base model, whose tokens differ from the student's."""
    agreements: dict[str, Agreement] = field(default_factory=dict)
    """Mapping of the same models to how their tokens agree with the student's."""

    @property
    def samples(self) -> list[list[Message]]:
        """Messages that are compared between models."""
        return [prompt.messages for prompt in list(self.prompts.values())[:COMPARED]]

    def texts(self, problems: Sequence[Problem]) -> list[tuple[list[Message], str]]:
        """Prompts, each with its known-good answer or, if the problem has none, with its own text once more."""
        texts: list[tuple[list[Message], str]] = []
        for problem in problems:
            if problem.id in self.prompts and len(texts) < MEASURED:
                golden = "\n".join((problem.golden or {}).values())
                answer = f"```verilog\n{golden}\n```" if golden else problem.prompt
                texts.append((self.prompts[problem.id].messages, answer))
        return texts


def prepare(
    config: RunConfig,
    loaded: LoadedProblems,
    chat: Chat,
    teachers: Mapping[str, Tokenizer] | None = None,
    readiness: Readiness | None = None,
) -> PreparedPrompts:
    """Build the prompts, and compare with the teachers' tokenizers (by base model).

    Args:
        chat: the student's.
        readiness: of a run that starts. Of many training problems only about `AT_START` prompts are built now, evenly
            over all. The others are built when they are asked for, with room for an answer in the models' contexts.
            None: all are built now.

    Raises:
        ConfigError: the run needs a teacher with the student's tokens.
        PolicyError: a tokenizer has no chat template, or a teacher cannot read thoughts.
    """
    section, problems = config.prompting, {problem.id: problem for problem in loaded.every}
    most, distance, rooms = section.max_prompt_tokens, 1, []
    if readiness is not None:
        distance = max(1, len(loaded.train) // AT_START)
        contexts = filter(None, map(readiness.context.get, wanted_models(config).values()))
        rooms = [context - config.longest_answer for context in contexts]

    def build(problem_id: str, most_tokens: int = min([most, *rooms])) -> Prompt:
        return build_prompt(problems[problem_id], chat, section.template, most_tokens)

    result = PreparedPrompts(Prompts(build))
    for problem in (*loaded.train[::distance], *loaded.heldout):
        try:
            result.prompts[problem.id] = build(problem.id, most)
        except ProblemError as error:
            result.unfit[problem.id] = error.message
    for name, tokenizer in (teachers or {}).items():
        compare(config, result, loaded, chat, tokenizer, name, readiness)
    return result


def compare(
    config: RunConfig,
    prepared: PreparedPrompts,
    loaded: LoadedProblems,
    student: Chat,
    tokenizer: Tokenizer,
    model: str,
    readiness: Readiness | None = None,
) -> str:
    """Compare a teacher's tokens with the student's and say the result. If they differ, the teacher gets a reader.

    Raises:
        ConfigError: the run needs a teacher with the student's tokens.
        PolicyError: the teacher's template has no place for thoughts, or its tokenizer does not keep the text.
    """
    teacher = config.prompting.chat_of_teacher(tokenizer, model)
    why = different_tokens(student, teacher, prepared.samples)
    if why is None:
        return "same vocabulary, same chat template"
    check_spans(config, model)
    context = None if readiness is None else readiness.context.get(model)
    thoughts = config.learning.teacher_reads == "thoughts"
    reader = Reader(student, teacher, thoughts=thoughts, context=context)
    texts = prepared.texts([*loaded.train, *loaded.heldout])
    measured = agreement(reader, texts)
    if texts and not measured.spans:
        raise PolicyError(
            f"student and teacher share no piece of text: {why}, and the teacher's tokenizer does not keep the text",
            "choose another teacher",
        )
    prepared.readers[model], prepared.agreements[model] = reader, measured
    return f"aligned by spans of text: {why}; {measured.in_words}; {teacher.in_words()}"


@dataclass(frozen=True)
class PreflightInput:
    """What the checks before a run read: its configuration, and what is available."""

    config: RunConfig
    readiness: Readiness
    prepared: PreparedPrompts = PreparedPrompts()
    loaded: LoadedProblems = field(default_factory=LoadedProblems)
    history: History | None = None
    """The run's history if it is open; None: opened at its configured path."""
    prices: Prices | None = None
    """The run's prices if they are known; None: the configured list."""
    chat: Chat | None = None
    """The student's; None if its tokenizer is not at hand, as without a key."""

    @property
    def prompts(self) -> dict[str, Prompt]:
        return self.prepared.prompts

    @property
    def thinks(self) -> bool | None:
        """Whether the student thinks before it answers. None: unknown."""
        if self.chat is not None:
            return self.chat.thinks
        setting = self.config.prompting.thinking
        return thinks_by_name(self.config.tinker.student) if setting is None else setting

    def unmeasured(self, problems: Iterable[Problem]) -> list[Problem]:
        """Those of the problems whose prompts are built when they are used."""
        known = self.prompts.keys() | self.prepared.unfit.keys()
        return [problem for problem in problems if problem.id not in known]

    @property
    def unmeasured_in_words(self) -> str:
        """How many prompts no check has seen, to end a sentence about the others; empty if there are none."""
        count = len(self.unmeasured(self.loaded.train))
        return f"; {count:,} further prompts are measured when they are used" if count else ""


def context(inputs: PreflightInput) -> Findings:
    """Whether prompt and answer fit the context of each model.

    An error if an actual prompt with its answer does not fit. Only a warning if just the configured limits
    exceed the context: no prompt of this run is that long.
    """
    config, prompts = inputs.config, inputs.prompts
    budget, answer = config.prompting.max_prompt_tokens, config.longest_answer
    if not prompts:
        return
    own = {name: len(prompt.tokens_P) for name, prompt in prompts.items()}
    for key, name in wanted_models(config).items():
        limit = inputs.readiness.context.get(name)
        if limit is None:
            continue
        reader, lengths = inputs.prepared.readers.get(name), own
        if reader is not None:
            lengths = {id: len(reader.teacher.encode(p.messages)) for id, p in prompts.items()}
        longest, total = max(lengths.values()), budget + answer
        over = sorted(id for id, length in lengths.items() if length + answer > limit)
        sum_of = (
            f"prompting.max_prompt_tokens = {budget:,} and sampling.max_tokens = {answer:,} make "
            f"{total:,}, and {name} takes {limit:,} tokens"
        )
        if over:
            remedy = _lower(limit, longest, answer)
            names = ", ".join(over[:NAMED])
            if len(over) > NAMED:
                names += f" and {len(over) - NAMED} more"
            text = f"too long with an answer: {names} (the longest prompt has {longest:,})"
            yield Finding("context", "wrong", f"{key}: {sum_of}; {text}", remedy)
        elif total > limit:
            text = f"{key}: {sum_of}; the longest prompt has {longest:,}, so this run fits{inputs.unmeasured_in_words}"
            yield Finding("context", "warning", text, _lower(limit, budget, answer))
        else:
            lengths_in_words = f"prompts of up to {longest:,} and answers of up to {answer:,}"
            text = f"{key}: {lengths_in_words} of {limit:,} tokens{inputs.unmeasured_in_words}"
            yield Finding("context", "ok", text)


def _lower(limit: int, prompt: int, answer: int) -> str:
    """Return which settings to lower so that a prompt with an answer fits into `limit` tokens."""
    room = limit - prompt
    if room <= 0:
        return "lower prompting.max_prompt_tokens and sampling.max_tokens, or choose a model with a longer context"
    lower = f"lower sampling.max_tokens to {room:,}"
    if limit > answer:
        lower += f", or prompting.max_prompt_tokens to {limit - answer:,}"
    return lower


def sizes(inputs: PreflightInput) -> Findings:
    """Whether `sampling.max_tokens` suits the thinking mode, and what happens to truncated answers."""
    config = inputs.config
    answer, truncated = config.sampling.max_tokens, config.learning.truncated
    thinking = inputs.thinks
    if thinking is False and answer > 2 * PLAIN_TOKENS:
        text = (
            f"without thinking, sampling.max_tokens = {answer:,} is not needed; an answer that "
            "never ends costs the full limit"
        )
        yield Finding("sizes", "warning", text, f"set sampling.max_tokens = {PLAIN_TOKENS}")
    if thinking and answer < THINKING_TOKENS:
        text = (
            f"{config.tinker.student} thinks before it answers, and answers limited to "
            f"sampling.max_tokens = {answer:,} often end within their thoughts"
        )
        remedy = (
            f'set sampling.max_tokens = {THINKING_TOKENS} and learning.truncated = "mask", or '
            'prompting.thinking = false (gpt-oss: prompting.reasoning_effort = "low")'
        )
        yield Finding("sizes", "warning", text, remedy)
    if thinking and truncated != "mask":
        text = (
            f'the student thinks, and with learning.truncated = "{truncated}" truncated answers '
            "are trained on"
        )
        yield Finding("sizes", "warning", text, 'set learning.truncated = "mask"')
    cut = config.health.ranges.get("env/all/truncated")
    if thinking and cut is not None and cut.max is not None and cut.max < CUT_SHARE:
        text = (
            f"health.ranges stops the run when {cut.max:.0%} of the answers are truncated, which "
            "is normal for a model that thinks, on hard problems"
        )
        remedy = f'raise the maximum of "env/all/truncated" to {CUT_SHARE} or more'
        yield Finding("sizes", "warning", text, remedy)


def known_good(inputs: PreflightInput) -> Findings:
    """Whether there are golden answers to imitate, or to show to a self-teacher: an error if no training problem has
    one, a warning if some have none."""
    learning, total = inputs.config.learning, len(inputs.loaded.train)
    without = sum(not problem.has_whole_golden for problem in inputs.loaded.train)
    needs = []
    if learning.self_taught and learning.self_hint == "golden":
        needs.append(("self_hint", "verdict", "their answers learn from rewards alone"))
    if learning.imitates_golden:
        needs.append(("warm_start_source", "teacher", "supervised steps repeat the others"))
    for name, other, consequence in needs if without else ():
        key, remedy = f"learning.{name}", f'set learning.{name} = "{other}"'
        if without == total:
            text = f"none of the training problems has a known-good answer, which {key} = golden needs"
            yield Finding(key, "wrong", text, remedy)
        # With require_golden the run leaves these problems out.
        elif not inputs.config.problems.require_golden:
            some = f"{without} of {total} training problems"
            yield Finding(key, "warning", f"{some} have no known-good answer: {consequence}")
