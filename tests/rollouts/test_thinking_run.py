"""A run whose chat template opens a thought: the embedded service, the tiny student under Qwen3.5's published template, real grading."""

import asyncio
import shutil
from pathlib import Path

import pytest

from rtl_core.config.models import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.rollouts import batch, datums, planning
from rtl_core.run.opening import open_session
from rtl_core.run.session import Session
from rtl_core.tinymodels import model_path
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.problems.sources import load_problems
from rtl_grader.types.verdict import Outcome
from tests.nouns import demo

pytestmark = pytest.mark.slow


def settings(data: Path, folder: Path, *more: str) -> RunConfig:
    model = folder / "model"
    if not model.exists():
        shutil.copytree(model_path("student"), model)
        shutil.copy(data / "chat-templates" / "Qwen3.5-4B.jinja", model / "chat_template.jinja")
    return demo(
        folder, f"tinker.local_models.student={model}", "tinker.teacher=student", "evaluation.teacher=false",
        "curriculum.problems_per_step=1", "sampling.group_size=2", "sampling.max_tokens=64", "learning.warm_start_steps=0",
        *more, train=1,
    )  # fmt: skip


async def sampled(session: Session) -> list[tuple[str, Outcome, str]]:
    """Text, outcome and first reason of each answer of the first step."""
    await planning.plan_run(session)
    step = await planning.batch_of(session, session.weights.steps[0])
    (problem_id,) = step.planned
    await batch.sample(session, step, problem_id)
    await batch.grade(session, step, problem_id)
    found = [stored for stored in step.group(problem_id) if stored.verdict]
    return [
        (s.rollout.text, s.verdict.outcome, " ".join(s.verdict.reasons))
        for s in found
        if s.verdict
    ]


def test_an_answer_that_ends_within_a_thought_is_no_answer_also_when_read_from_the_history(
    data, tmp_path
):
    config = settings(
        data,
        tmp_path,
        "run.name=thinks",
        "learning.warm_start_steps=1",
        "learning.warm_start_source=golden",
    )

    async def run():
        async with open_session(config) as session:
            step = batch.Batch("warm_start", 0, 0, 0, tuple(session.prompts), 1)
            decode = session.policy.backend.tokenizer.decode
            found = datums.datums_to_imitate(session, step)
            assert found
            for datum in found:
                assert decode(datum.prompt_P).endswith("<|im_start|>assistant\n<think>\n")
                assert decode(datum.tokens_T).startswith("\n</think>\n\n")
                assert datum.tokens_T[-1] == session.policy.chat.stop[0]
        async with open_session(settings(data, tmp_path, "run.name=thinks-first")) as session:
            for text, outcome, why in await sampled(session):
                assert text.startswith("<think>\n")
                assert (outcome, why) == (
                    Outcome.NO_ANSWER,
                    "the response ends within its thoughts",
                )

    asyncio.run(run())
    history = History(tmp_path / "history.duckdb")
    stored = history.rollouts_of("thinks-first", 0, "train")
    assert len(stored) == 2
    problems = {p.id: p for p in load_problems(config.problems.sources, config.run.seed).train}
    for one in stored:
        answer = answer_to(problems[one.rollout.problem_id], one.rollout.text)
        assert answer.error == "the response ends within its thoughts"


def test_without_thinking_the_same_model_is_graded_by_its_text(data, tmp_path):
    config = settings(data, tmp_path, "run.name=direct", "prompting.thinking=false")

    async def run():
        async with open_session(config) as session:
            found = await sampled(session)
            assert found
            assert all(
                not text.startswith("<think>") and "<|im_end|>" not in text
                for text, _, _ in found
            )
            assert all("thoughts" not in why for _, _, why in found)

    asyncio.run(run())


def test_a_setting_that_the_template_lacks_ends_the_run_before_anything_is_sampled(
    data, tmp_path
):
    config = settings(data, tmp_path, "run.name=effort", "prompting.reasoning_effort=low")

    async def run():
        async with open_session(config):
            pytest.fail("it opened")

    with pytest.raises(
        ConfigError, match=r"prompting\.reasoning_effort: the chat template of student"
    ):
        asyncio.run(run())
