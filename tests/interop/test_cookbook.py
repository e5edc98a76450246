"""The tinker-cookbook's unchanged RL loop with our problems and grader on the embedded service (`make test-cookbook`)."""

import asyncio
import json

import pytest
import tinker

from localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path

pytestmark = pytest.mark.cookbook
SMALL = ("problems.sources.0.train=6", "problems.sources.0.heldout=2")


@pytest.fixture
def builder():
    from rtl_core.interop.cookbook import RtlDatasetBuilder

    return RtlDatasetBuilder(config="demo", overrides=SMALL, groups_per_batch=3, group_size=4)


def test_batches_cover_all_problems(builder):
    train, heldout = asyncio.run(builder())
    assert (len(train), len(heldout)) == (2, 1)
    seen = [group.problem.id for index in range(2) for group in train.get_batch(index)]
    assert len(set(seen)) == 6
    assert {group.problem.id for group in heldout.get_batch(0)}.isdisjoint(seen)


def test_the_golden_answer_gets_the_full_reward_and_an_empty_one_none(builder):
    async def rewards():
        train, _ = await builder()
        group = train.get_batch(0)[0]
        right, wrong = (await group.make_envs())[:2]
        prompt, stop = await right.initial_observation()
        assert prompt.to_ints() == group.prompt.tokens_P
        (golden,) = group.problem.golden.values()
        tokens = group.bench.tokenizer.encode(f"```verilog\n{golden}```")
        results = [await right.step([*tokens, stop[0]]), await wrong.step([stop[0]])]
        assert all(result.episode_done for result in results)
        assert results[0].metrics["tests_passed"] == 1.0
        return [result.reward for result in results]

    assert asyncio.run(rewards()) == [pytest.approx(1.6), 0.0]


def test_the_math_recipes_find_their_graders():
    from tinker_cookbook.recipes.math_rl import math_env, math_grading, train

    assert math_env
    assert train
    for grade in (math_grading.grade_answer, math_grading.grade_answer_math_verify):
        assert grade("\\frac{1}{2}", "\\frac{1}{2}")
        assert not grade("\\frac{1}{2}", "\\frac{1}{3}")


def test_the_cookbooks_loop_trains(builder, tmp_path, monkeypatch):
    from tinker_cookbook import tokenizer_utils
    from tinker_cookbook.rl import train
    from transformers import AutoTokenizer

    opened: list[tinker.ServiceClient] = []

    class Recorded(tinker.ServiceClient):
        """Records the clients, because the cookbook does not close its sessions."""

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            opened.append(self)

    monkeypatch.setattr(tinker, "ServiceClient", Recorded)
    tokenizer_utils.register_tokenizer(
        "student", lambda: AutoTokenizer.from_pretrained(model_path("student"))
    )
    with LocalTinker({"student": model_path("student")}, tmp_path / "tinker") as service:
        monkeypatch.setenv("TINKER_API_KEY", service.api_key)
        config = train.Config(
            dataset_builder=builder,
            model_name="student",
            recipe_name="rtl-distill",
            learning_rate=2e-3,
            max_tokens=150,
            log_path=str(tmp_path / "log"),
            base_url=service.base_url,
            eval_every=0,
            save_every=0,
        )
        asyncio.run(train.main(config))
        for client in opened:
            client.close("success").result()
    lines = [
        json.loads(line)
        for line in (tmp_path / "log" / "metrics.jsonl").read_text().splitlines()
    ]
    steps = [line for line in lines if "env/all/reward/total" in line]
    assert len(steps) == 2
    assert all(0 <= line["env/all/reward/total"] <= 1.6 for line in steps)
    assert all("env/all/tests_passed" in line for line in steps)
