"""Spans of two tokenisations, and the credit of tokens from them, against computations by hand and by brute force."""

import numpy as np
import pytest

from localtinker.losses import LOSSES
from rtl_core.learning.advantage import token_advantages
from rtl_core.learning.spans import Tokenised, align, heard_T, one_to_one, token_scores


def tokenised(*tokens: str) -> Tokenised:
    ends = np.cumsum([len(token) for token in tokens])
    return Tokenised("".join(tokens), tuple(ends.tolist()))


def spans(student: Tokenised, teacher: Tokenised, *place: int) -> list[list[int]]:
    return align(student, teacher, *place).tolist()


def test_spans_lie_between_common_boundaries():
    student = tokenised("module ", "a", "_b", ";", "\n")
    teacher = tokenised("module", " a", "_", "b", ";\n")
    assert spans(student, teacher) == [[0, 2, 0, 2], [2, 3, 2, 4], [3, 5, 4, 5]]
    assert spans(teacher, student) == [[0, 2, 0, 2], [2, 4, 2, 3], [4, 5, 3, 5]]
    assert one_to_one(align(student, student)) == 5


def test_a_character_of_several_tokens_is_one_piece():
    student = Tokenised("a🙂b", (1, -1, -1, 2, 3))
    assert spans(student, Tokenised("a🙂b", (-1, 2, 3))) == [[0, 4, 0, 2], [4, 5, 2, 3]]


def test_tokens_without_text_belong_to_the_one_before():
    student = Tokenised("ab", (0, 1, 1, 2))
    assert spans(student, tokenised("a", "b")) == [[0, 3, 0, 1], [3, 4, 1, 2]]


def test_a_part_of_the_students_text_is_aligned_with_the_teachers_whole():
    student = tokenised("think ", "so", "\n\n", "x", "y", "z")
    assert spans(student, tokenised("xy", "z"), 10, 13) == [[3, 5, 0, 1], [5, 6, 1, 2]]
    # The part begins within a token: that token is in no span.
    assert spans(tokenised("\nx", "y", "z"), tokenised("x", "y", "z"), 1, 4) == [
        [1, 2, 1, 2],
        [2, 3, 2, 3],
    ]


def test_changed_text_is_in_no_span_and_the_rest_is():
    student = tokenised("a", "e\u0301", "b\n", "c", "\n", "d")
    teacher = tokenised("a", "é", "b\n", "C", "\n", "d")
    # Behind the first change whole words are compared: `b` is in one that changed.
    assert spans(student, teacher) == [[0, 1, 0, 1], [4, 5, 4, 5], [5, 6, 5, 6]]
    assert spans(tokenised("ab"), tokenised("xy")) == []
    # Bytes that are no text may differ although they look equal.
    assert spans(tokenised("a", "\ufffd", "b"), tokenised("a", "\ufffd", "b")) == [
        [0, 1, 0, 1],
        [2, 3, 2, 3],
    ]


def test_texts_with_many_differences_are_compared_in_linear_time():
    """Comparing them whole takes hours: each of the 6,000 words differs from its neighbours and most repeat."""
    words = ["A", " ", "b", " "] * 1500
    student, teacher = tokenised(*words), tokenised(*(word.lower() for word in words))
    aligned = align(student, teacher)
    assert heard_T(aligned, len(words)).sum() == 4500
    assert (aligned[:, ::2] == aligned[:, 1::2] - 1).all()
    # Equal words behind a passage that one side lacks are found, also far behind.
    lacks = ["A", *"bcdefg", *["x "] * 100, *(f"{n} " for n in range(900))]
    student, teacher = tokenised(*lacks), tokenised("a", *"bcdefg", *lacks[107:])
    assert heard_T(align(student, teacher), len(lacks))[-800:].all()


def test_a_value_above_0_is_rounding_and_charges_nothing():
    s_T = np.array([1e-3, -1.0001e-3])
    scores = token_scores(s_T, np.array([-5.0]), np.array([[0, 2, 0, 1]]))
    assert scores == pytest.approx([1e-3, -5.001])


def test_equal_tokens_give_the_teachers_scores_and_credit_to_the_bit():
    rng = np.random.default_rng(0)
    own = np.float32(-rng.exponential(1, 50))
    scores = np.float32(-rng.exponential(1, 50))
    same = tokenised(*("ab" for _ in own))
    read = token_scores(own, scores, align(same, same)).astype(np.float32)
    assert read.tobytes() == scores.tobytes()
    for setting in (
        {},
        {"kl_discount": 0.9},
        {"kl_clamp": 0.5},
        {"heard_T": rng.integers(0, 2, 50)},
    ):
        ours, theirs = (
            token_advantages(0.3, own, q, kl_weight=0.7, **setting) for q in (read, scores)
        )
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("seed", range(20))
def test_the_kl_of_each_span_is_that_of_its_text_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    text = "".join(rng.choice([*"abcdef"], 200))

    def cut() -> list[str]:
        places = sorted(rng.choice(np.arange(1, 200), 90, replace=False).tolist())
        return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]

    ours, theirs = cut(), cut()
    s_T, q_U = -rng.exponential(1, len(ours)), -rng.exponential(1, len(theirs))
    s_T[rng.random(len(s_T)) < 0.2] = 0.0
    aligned = align(tokenised(*ours), tokenised(*theirs))
    k_T = s_T - token_scores(s_T, q_U, aligned)
    assert heard_T(aligned, len(ours)).all()
    # Walk over both texts, character by character, and close a span whenever both tokens end.
    at_student, at_teacher = np.cumsum([*map(len, ours)]), np.cumsum([*map(len, theirs)])
    t = u = 0
    for end in sorted(set(at_student) & set(at_teacher)):
        next_t, next_u = (
            int(np.searchsorted(ends, end)) + 1 for ends in (at_student, at_teacher)
        )
        kl = s_T[t:next_t].sum() - q_U[u:next_u].sum()
        assert k_T[t:next_t].sum() == pytest.approx(kl)
        if s_T[t:next_t].any():
            assert k_T[t:next_t] == pytest.approx(kl * s_T[t:next_t] / s_T[t:next_t].sum())
        t, u = next_t, next_u
    assert (t, u) == (len(ours), len(theirs))
    # The whole answer's KL is the sum, so the gradient with γ = 1 at its first token is that of the text.
    total = token_advantages(0.0, s_T, s_T - k_T, kl_weight=1.0, kl_discount=1.0)[0]
    assert total == pytest.approx(-(s_T.sum() - q_U.sum()), rel=1e-5)


def test_tokens_outside_every_span_have_no_kl():
    s_T, q_U = np.array([-1.0, -2.0, -3.0]), np.array([-5.0])
    assert token_scores(s_T, q_U, np.array([[1, 2, 0, 1]])).tolist() == [-1.0, -5.0, -3.0]
    assert token_scores(s_T, q_U, np.zeros((0, 4), np.int32)).tolist() == s_T.tolist()


def test_the_gradient_of_the_train_step_is_that_of_the_spans_by_brute_force():
    """A step's loss, by the service's formula, against −λ Σ_spans K Σ_t w_t ∇ log p(t), by finite differences."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    logits_TV, tokens_T = torch.tensor(rng.normal(size=(5, 7))), torch.tensor([1, 4, 0, 6, 2])
    logits_TV.requires_grad_()
    logp_T = logits_TV.log_softmax(-1).gather(1, tokens_T[:, None])[:, 0]
    own_T, q_U = logp_T.detach().numpy(), np.array([-0.4, -2.0, -0.1, -1.5])
    aligned = np.array([[0, 1, 0, 2], [1, 3, 2, 3], [4, 5, 3, 4]])  # token 3 is in no span
    advantages_T = token_advantages(
        0.0, own_T, token_scores(own_T, q_U, aligned), kl_weight=0.8
    )
    inputs = {"logprobs": logp_T.detach(), "advantages": torch.tensor(advantages_T).double()}
    LOSSES["importance_sampling"].function(logp_T, inputs, {}).sum().backward()

    def objective(logits: np.ndarray) -> float:
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen_T = logp[np.arange(5), tokens_T.numpy()]
        total = 0.0
        for t, t_end, u, u_end in aligned.tolist():
            kl = own_T[t:t_end].sum() - q_U[u:u_end].sum()
            shares = own_T[t:t_end] / own_T[t:t_end].sum()
            total += 0.8 * kl * (shares * chosen_T[t:t_end]).sum()
        return total

    start = logits_TV.detach().numpy()
    for t, v in np.ndindex(5, 7):
        step = np.zeros((5, 7))
        step[t, v] = 1e-5
        slope = (objective(start + step) - objective(start - step)) / 2e-5
        assert logits_TV.grad[t, v].item() == pytest.approx(slope, abs=1e-6)
