"""From a batch to the input of the train step, supervised ones included, and its metrics."""

import random
from dataclasses import replace

import numpy as np
import pytest

from rtl_core.algorithms.distribution_distillation import DistributionDistillation
from rtl_core.algorithms.grpo import Grpo
from rtl_core.algorithms.warm_start import WarmStart
from rtl_core.backend.base import Datum
from rtl_core.backend.tinker.training import to_datum
from rtl_core.config import RunConfig, load_config
from rtl_core.errors import SamplerDriftError
from rtl_core.history.records import StoredRollout, TeacherRecord
from rtl_core.learning.credit import Credit
from rtl_core.learning.distributions import Choices
from rtl_core.learning.kl import first_wrong_line, unsure
from rtl_core.learning.reward import Reward
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import (
    algorithm_of,
    build_datums,
    compute_credit,
    golden_response,
    has_signal,
    permute_teacher,
    signal_share,
)
from rtl_core.rollouts.metrics import batch_metrics
from rtl_core.rollouts.training import checked_drift
from rtl_grader.extraction.response import extract_answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_problem, a_rollout, a_verdict

STUDENT = (-1.0, -0.5)
TEACHER = (-1.5, -0.5)


def config(*overrides: str) -> RunConfig:
    return load_config("demo", ["learning.normalise_std=false", *overrides], environment={})


def batch(
    rewards: dict[str, list[float]],
    *,
    cut: tuple[tuple[str, int], ...] = (),
    scored: bool = True,
) -> Batch:
    """A graded batch from the rewards of each problem's answers, of two tokens each; `cut` names the truncated ones."""
    made = Batch(
        "train", epoch=0, step=3, policy_step=3, problem_ids=tuple(rewards), group_size=2
    )
    for number, (problem, totals) in enumerate(rewards.items()):
        for sample, total in enumerate(totals):
            end = {"stop_reason": "length" if (problem, sample) in cut else "stop"}
            tokens_T = (3 + number, 4 + sample)
            rollout = a_rollout(
                step=3,
                problem_id=problem,
                sample=sample,
                tokens_T=tokens_T,
                logprobs_T=STUDENT,
                **end,
            )
            teacher = (
                TeacherRecord(rollout.key, np.array(TEACHER), 0.25, 0.0625, 0.1, 2)
                if scored
                else None
            )
            made.add(
                [StoredRollout(rollout, reward=Reward(total=total, terms={}), teacher=teacher)]
            )
    return made


def tokens(made: Batch, settings: RunConfig, kl_weight: float) -> list[list[float]]:
    """Token advantages of each datum, in order, compute_credit with the same settings."""
    for problem in made.problem_ids:
        compute_credit(made, problem, Grpo(settings))
    return [
        datum.inputs["advantages"].tolist()
        for datum in build_datums(made, Grpo(settings), kl_weight)
    ]


def test_advantages_of_rl_distillation_and_both():
    made = batch({"a": [1.0, 0.0]})
    # Advantages ±0.5; the KL of the two tokens is 0.5 and 0.
    assert tokens(made, config(), 0.0) == [[0.5, 0.5], [-0.5, -0.5]]
    assert tokens(made, config(), 0.1) == [
        pytest.approx([0.45, 0.5]),
        pytest.approx([-0.55, -0.5]),
    ]
    assert tokens(made, config("learning.reward_weight=0"), 1.0) == [[-0.5, 0.0], [-0.5, 0.0]]


def test_a_group_of_equal_rewards_is_skipped_without_a_kl_and_trained_on_only_the_kl_with_one():
    made = batch({"a": [0.3, 0.3], "b": [1.0, 0.0]})
    assert len(tokens(made, config(), 0.0)) == 2
    assert tokens(made, config(), 0.5)[:2] == [[-0.25, 0.0], [-0.25, 0.0]]
    assert (has_signal(made, "a"), has_signal(made, "b")) == (False, True)


def test_equal_answers_become_one_datum_with_the_same_gradient():
    made = batch({"a": [1.0, 0.0]})
    twice = batch({"a": [1.0, 0.0, 1.0, 0.0]})
    for stored in twice.group("a")[2:]:
        rollout = stored.rollout
        equal = rollout.model_copy(update={"tokens_T": (3, 4 + rollout.sample - 2)})
        twice.rollouts["a", rollout.sample] = replace(stored, rollout=equal)
    once, both = tokens(made, config(), 0.1), tokens(twice, config(), 0.1)
    assert both == [pytest.approx([2 * value for value in values]) for values in once]
    found = build_datums(twice, Grpo(config()), 0.1)
    assert [datum.tokens_T for datum in found] == [(3, 4), (3, 5)]
    assert found[0].inputs["logprobs"].tolist() == pytest.approx(list(STUDENT))


def test_the_teachers_share_of_the_signal():
    made = batch({"a": [1.0, 0.0], "b": [0.3, 0.3]})
    tokens(made, config(), 0.0)
    # Four answers of two uncertain tokens: A² = 0.25 at each of four, (λ 0.5)² at the first of each.
    assert signal_share(made, config(), 0.0) == 0.0
    assert signal_share(made, config(), 0.4) == pytest.approx(4 * 0.04 / (4 * 0.25 + 4 * 0.04))
    made.quarantined.add("b")
    assert signal_share(made, config(), 0.4) == pytest.approx(2 * 0.04 / (4 * 0.25 + 2 * 0.04))
    tokens(made, config("learning.reward_weight=0"), 0.0)
    assert signal_share(made, config("learning.reward_weight=0"), 1.0) == 1.0


def test_masked_answers_are_not_trained_on():
    made = batch({"a": [1.0, 0.5, 0.0]}, cut=(("a", 2),))
    assert tokens(made, config("learning.truncated=mask"), 0.0) == [
        [0.25, 0.25],
        [-0.25, -0.25],
    ]
    assert len(tokens(made, config("learning.truncated=mask"), 0.5)) == 2
    found = [
        one for _, one in compute_credit(made, "a", Grpo(config("learning.truncated=mask")))
    ]
    assert found == [Credit(1.0, 0.25, True), Credit(0.5, -0.25, True), Credit(0.0, 0.0, False)]


def test_quarantined_groups_and_answers_without_a_verdict_are_never_trained_on():
    made = batch({"a": [1.0, 0.0], "b": [1.0, 0.0]})
    with pytest.raises(RuntimeError, match="no credit"):
        build_datums(made, Grpo(config()), 0.1)
    compute_credit(made, "a", Grpo(config()))
    made.quarantined.add("b")
    assert len(build_datums(made, Grpo(config()), 0.1)) == 2
    made.update(made.group("a")[0], reward=None)
    with pytest.raises(RuntimeError, match="no verdict"):
        compute_credit(made, "a", Grpo(config()))


def test_groups_of_equal_rewards_are_replaced_without_a_kl_and_with_one_if_configured():
    def replaced(*overrides):
        """In a step without a KL and in one with it: λ falls to 0 over the first half of ten steps."""
        falls = (
            "learning.kl_weight=0.2",
            "learning.kl_schedule=linear",
            "learning.kl_schedule_part=0.5",
        )
        learning = config(*falls, *overrides).learning
        return learning.replaces_equal_at(9, 10), learning.replaces_equal_at(0, 10)

    assert replaced("learning.replace_with_kl=false") == (True, False)
    assert replaced("learning.replace_with_kl=true") == (True, True)
    # Distillation only: rewards do not count, and the KL is the whole signal.
    assert replaced("learning.replace_with_kl=true", "learning.reward_weight=0") == (
        False,
        False,
    )


def test_the_order_of_substitutes_does_not_depend_on_timing():
    first, second = batch({"a": [], "b": []}), batch({"a": [], "b": []})
    x, y, z = (0, 1, "x"), (1, 1, "y"), (0, 2, "z")
    for made, order in ((first, (x, z, y)), (second, (y, x, z))):
        for substitute in order:
            made.add_substitute(*substitute)
    assert first.problem_ids == second.problem_ids == ("a", "b", "x", "y", "z")
    assert first.planned == ("a", "b")


def test_a_teacher_of_failed_answers_leaves_the_others_only_their_reward():
    made = batch({"a": [1.0, 0.0]})
    for stored, outcome in zip(
        made.group("a"), (Outcome.PASSED, Outcome.TESTS_FAILED), strict=True
    ):
        made.add([replace(stored, verdict=a_verdict(outcome))])
    assert tokens(made, config('learning.kl_on="all"'), 0.1) == [
        pytest.approx([0.45, 0.5]),
        pytest.approx([-0.55, -0.5]),
    ]
    assert tokens(made, config('learning.kl_on="failed"'), 0.1) == [
        [0.5, 0.5],
        pytest.approx([-0.55, -0.5]),
    ]
    passed = made.group("a")[0]
    made.update(passed, audit="different")
    unpaid = config('learning.kl_on="failed"', 'learning.doubtful="zero"')
    assert tokens(made, unpaid, 0.1)[0] == pytest.approx([-0.05, 0.0]), (
        "a pass that earns nothing counts as failed"
    )


def test_the_permuted_teacher_gives_the_scores_of_another_answer_and_keeps_their_size():
    made = batch({f"p{number}": [1.0, 1.0] for number in range(4)})
    for number, stored in enumerate(
        s for problem in made.problem_ids for s in made.group(problem)
    ):
        teacher = TeacherRecord(
            stored.rollout.key, np.add(STUDENT, [number + 1, -number]), 0, 0, 0, 2
        )
        made.add([replace(stored, teacher=teacher)])
    before = tokens(made, config(), 1.0)
    after = tokens(made, config("learning.permute_teacher=true"), 1.0)
    assert all(own != other for own, other in zip(before, after, strict=True)), (
        "an answer kept its own scores"
    )
    assert sorted(before) == sorted(
        after
    )  # each answer has all differences of one other answer
    assert after == tokens(made, config("learning.permute_teacher=true"), 1.0)


def test_distributions_carry_the_teachers_choices_and_permuted_ones_are_from_another_problem():
    made = batch({f"p{number}": [1.0, 1.0, 1.0] for number in range(4)})
    for number, stored in enumerate(
        s for problem in made.problem_ids for s in made.group(problem)
    ):
        choices = Choices(np.full((2, 3), number), np.log(np.full((2, 3), 0.3, np.float32)))
        rollout = stored.rollout.model_copy(
            update={"tokens_T": (3, 4)}
        )  # equal answers, taught differently
        made.add([replace(stored, rollout=rollout, teacher=TeacherRecord(rollout.key, STUDENT, 0, 0, 0, 2, choices=choices))])  # fmt: skip
    asked = (
        "learning.algorithm=distribution_distillation",
        "learning.teacher_choices=3",
        "learning.kl_on=all",
    )

    def taught(*more):
        own = DistributionDistillation(config(*asked, *more))
        for problem in made.problem_ids:
            compute_credit(made, problem, own)
        return build_datums(made, own, 0.5)

    before, after = taught(), taught("learning.permute_teacher=true")
    assert all((one.inputs["kl_weights"] == 0.5).all() for one in (*before, *after))
    assert [one.inputs["teacher_tokens"][0, 0] for one in before] == list(range(12))
    handed = [int(one.inputs["teacher_tokens"][0, 0]) for one in after]
    assert sorted(handed) == list(range(12))
    assert all(own // 3 != other // 3 for own, other in enumerate(handed)), (
        "scores of the same problem are too similar"
    )


def test_the_ratio_of_a_sequence_is_over_its_sampled_tokens():
    made = batch({"a": [1.0, 0.0]})
    for stored in made.group("a"):
        episode = stored.rollout.model_copy(
            update={
                "tokens_T": (3, 9, 4),
                "logprobs_T": (-1.0, 0.0, -0.5),
                "own_T": (True, False, True),
            }
        )
        if stored.rollout.sample:
            made.rollouts["a", 1] = replace(stored, rollout=episode)
    for loss, names in (("gspo", {"sequence_ratio_mask"}), ("ppo", set())):
        own = Grpo(config(f"learning.loss={loss}", "learning.kl_weight=0"))
        compute_credit(made, "a", own)
        plain, episode = build_datums(made, own, 0.0)
        assert set(plain.inputs) == {"logprobs", "advantages"} | names
        if names:
            assert plain.inputs["sequence_ratio_mask"].tolist() == [1.0] * len(plain.tokens_T)
            assert episode.inputs["sequence_ratio_mask"].tolist() == [1.0, 0.0, 1.0]


def test_the_teacher_counts_where_the_student_was_unsure_and_from_the_first_wrong_line():
    assert unsure(np.log([0.9, 0.2, 0.5]), 0.5).tolist() == [0, 1, 0]
    passing = [["module a;", "always @(posedge c)", "q <= d;"], ["module a;", "assign q = d;"]]
    assert first_wrong_line(["module a;", "always @(negedge c)", "q <= d;"], passing) == 1
    assert first_wrong_line(["module a;", "assign q = e;"], passing) == 1
    assert first_wrong_line(["module a;", "assign q = d;"], passing) == 1, (
        "a missing line is missing at the end"
    )
    assert first_wrong_line(["module b;"], []) == 0
    # Tokens 1 to 3 are one line each, 4 and 5 form one line.
    texts = {
        1: "module a;\n",
        2: "assign q = d;\n",
        3: "assign q = e;\n",
        4: "assign ",
        5: "r = 0;\n",
    }
    made = batch({"a": [1.0, 0.0, 0.0]})
    for tokens_T, outcome, stored in zip(((1, 2), (1, 3), (1, 4, 5)), (Outcome.PASSED, *[Outcome.TESTS_FAILED] * 2), made.group("a"), strict=True):  # fmt: skip
        n = len(tokens_T)
        rollout = stored.rollout.model_copy(
            update={"tokens_T": tokens_T, "logprobs_T": (-1.0, -0.1, -1.0)[:n]}
        )
        teacher = TeacherRecord(rollout.key, np.full(n, -2.0), 0, 0, 0, n)
        made.add(
            [replace(stored, rollout=rollout, verdict=a_verdict(outcome), teacher=teacher)]
        )
    settings = config("learning.kl_after_error=true", "learning.reward_weight=0", "learning.kl_unsure_below=0.5", 'learning.kl_on="all"')  # fmt: skip
    compute_credit(made, "a", Grpo(settings))
    found = build_datums(
        made, Grpo(settings), 1.0, lambda ids: "".join(texts[one] for one in ids)
    )
    # One of the three answers passed, and one was sure of its wrong token.
    assert [datum.inputs["advantages"].tolist() for datum in found] == [[0.0, 0.0, -1.0]]


def test_differences_of_a_permuted_teacher_end_with_the_shorter_answer():
    def answer(sample, differences):
        n = len(differences)
        rollout = a_rollout(sample=sample, tokens_T=(3,) * n, logprobs_T=(-1.0,) * n)
        return StoredRollout(
            rollout, teacher=TeacherRecord(rollout.key, np.array(differences) - 1.0, 0, 0, 0, n)
        )

    moved = permute_teacher([answer(0, [0.5, 0.25, 0.125]), answer(1, [2.0])], random.Random(0))
    differences = [
        np.asarray(m.teacher.logprobs_T) + 1.0 for m in moved if m.teacher is not None
    ]
    assert [list(values) for values in differences] == [[2.0, 0.0, 0.0], [0.5]]


def test_tokens_from_a_tool_have_no_signal_and_different_masks_give_different_datums():
    made = batch({"a": [1.0, 0.0, 1.0]})
    for stored in made.group("a"):
        sample = stored.rollout.sample
        # The first and the third answer have equal tokens but different masks.
        episode = stored.rollout.model_copy(
            update={
                "tokens_T": (3, 9, 4 + sample % 2),
                "logprobs_T": (-1.0, 0.0, -0.5),
                "own_T": (True, False, sample < 2),
            }
        )
        teacher = TeacherRecord(episode.key, np.array([-1.5, 0.0, -0.5]), 0.25, 0.0625, 0.1, 2)
        made.rollouts["a", sample] = replace(stored, rollout=episode, teacher=teacher)
    assert [values[1] for values in tokens(made, config(), 0.5)] == [0.0, 0.0, 0.0]
    found = build_datums(made, Grpo(config()), 0.5)
    masks = [datum.own_T.tolist() for datum in found if datum.own_T is not None]
    assert masks == [[True, False, True]] * 2 + [[True, False, False]]
    assert found[2].inputs["advantages"].tolist() == pytest.approx([1 / 3 - 0.25, 0.0, 0.0])
    shuffled = build_datums(made, Grpo(config("learning.permute_advantages=true")), 0.0)
    assert [one.inputs["advantages"][1] for one in shuffled] == [0.0, 0.0, 0.0]
    assert sorted(float(one.inputs["advantages"][0]) for one in shuffled) == pytest.approx(
        [-2 / 3, 1 / 3, 1 / 3]
    )


def problem(**golden: str) -> Problem:
    files = {f"rtl/{name}.sv": text for name, text in golden.items()}
    return a_problem(targets=tuple(files), golden=files)


def test_a_known_good_answer_is_extracted_as_its_files_in_both_forms():
    one = problem(a="module a;\nendmodule\n")
    assert extract_answer(golden_response(one), one.targets).files == {
        "rtl/a.sv": "module a;\nendmodule\n"
    }
    two = problem(a='module a;\n  // "quoted"\nendmodule\n', b="module b;\nendmodule\n")
    assert extract_answer(golden_response(two), two.targets).files == two.golden


def test_complete_passing_answers_are_imitated_once_each():
    batch = Batch("warm_start", 0, 0, 0, ("p",), 5, sampler="teacher")
    answers = [
        (7, "stop", True),
        (7, "stop", True),
        (8, "stop", False),
        (9, "length", True),
        (5, "stop", True),
    ]
    for sample, (token, reason, passed) in enumerate(answers):
        rollout = a_rollout(
            purpose="warm_start",
            policy="teacher",
            sample=sample,
            tokens_T=(token,),
            stop_reason=reason,
        )
        outcome = Outcome.PASSED if passed else Outcome.TESTS_FAILED
        batch.add(
            [
                StoredRollout(
                    rollout, verdict=a_verdict(outcome), reward=Reward(total=0.5, terms={})
                )
            ]
        )

    def imitated(*overrides):
        # A control experiment for later steps has no effect here.
        settings = ["learning.permute_advantages=true", *overrides]
        algorithm = algorithm_of(load_config("demo", settings, environment={}), batch)
        found = [one for _, one in compute_credit(batch, "p", algorithm)]
        assert {(one.reward, one.advantage) for one in found if one.counts} == {(0.5, 1.0)}
        return [tuple(datum.tokens_T) for datum in build_datums(batch, algorithm, 0.0)]

    assert imitated() == [(7,), (5,)]
    assert imitated("learning.warm_start_passing_only=false") == [(7,), (8,), (5,)]


def test_a_supervised_datum_is_shifted_by_one_and_weights_only_the_answer():
    datum = to_datum(Datum([11, 12, 13], [21, 22], WarmStart.inputs_of(2)))
    assert datum.model_input.to_ints() == [11, 12, 13, 21]
    assert datum.loss_fn_inputs["target_tokens"].to_numpy().tolist() == [12, 13, 21, 22]
    assert np.array_equal(datum.loss_fn_inputs["weights"].to_numpy(), [0.0, 0.0, 1.0, 1.0])


def drift_of(own_T, sampled, trained, step=0):
    """What `checked_drift` says of a step with one answer."""
    tokens = {
        "tokens_T": tuple(range(1, len(sampled) + 1)),
        "logprobs_T": sampled,
        "own_T": own_T,
    }
    rollout = a_rollout(step=step, policy_step=0, problem_id="p", **tokens)
    batch = Batch("train", epoch=0, step=step, policy_step=0, problem_ids=("p",), group_size=1)
    batch.add([StoredRollout(rollout, credit=Credit(1.0, 1.0, True))])
    datum = Datum(rollout.prompt_P, rollout.tokens_T, {})
    return checked_drift(
        load_config("demo", environment={}),
        batch,
        [datum],
        [np.array(trained)],
    )


def test_sampler_and_trainer_are_compared_on_sampled_tokens_only():
    found = drift_of((True, False, True), (-1.0, -2.0, -1.0), (-1.5, -9.0, -1.0))
    assert found == {"optim/kl_sample_train_v1": 0.25, "optim/kl_sample_train_v2": 0.0625}
    assert drift_of((), (-1.0, -2.0), (-1.0, -2.0)) == {
        "optim/kl_sample_train_v1": 0.0, "optim/kl_sample_train_v2": 0.0,
    }  # fmt: skip


def test_differences_of_both_signs_do_not_cancel_unless_the_weights_are_stale():
    rolled, trained = (-2.0, -0.1, -0.1, -0.1), (-0.1, -2.0, -0.1, -0.1)
    with pytest.raises(
        SamplerDriftError, match=r"step 1: trainer and sampler differ by 0\.950 nats per token"
    ):
        drift_of((), rolled, trained)
    assert drift_of((), rolled, trained, step=1)["optim/kl_sample_train_v1"] == 0.0
    with pytest.raises(SamplerDriftError, match=r"exactly 0 for 100% of the tokens"):
        drift_of((), (0.0, 0.0, 0.0, 0.0), (-0.2, -0.2, -0.2, -0.2), step=1)


def test_entropy_is_the_mean_over_all_sampled_tokens_including_copies_and_groups_without_signal():
    batch = Batch("train", epoch=0, step=0, policy_step=0, problem_ids=("a", "b"), group_size=4)
    # Group a: three copies and one other answer; group b: only copies, none with an advantage.
    for problem, own in (("a", (0.0, 0.0, 0.0, -0.8)), ("b", (-0.1, -0.1, -0.1, -0.1))):
        for sample, logprob in enumerate(own):
            # The last token is from a tool and does not count.
            tokens = {
                "tokens_T": (1, 2, 3),
                "logprobs_T": (logprob, logprob, 0.0),
                "own_T": (True, True, False),
            }
            rollout = a_rollout(
                problem_id=problem, sample=sample, n_turns=1, ended="submitted", **tokens
            )
            credit = Credit(1.0, 0.0 if problem == "b" else logprob, True)
            batch.add(
                [
                    StoredRollout(
                        rollout,
                        a_verdict(Outcome.PASSED),
                        Reward(total=1.0, terms={}),
                        credit=credit,
                    )
                ]
            )
    assert batch_metrics(batch)["optim/entropy"] == pytest.approx((0.8 + 4 * 0.1) / 8)
