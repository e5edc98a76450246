"""Divergences on the teacher's most likely tokens: gradients, and comparison with the whole vocabulary."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rtl_core.learning.distributions import Divergence, Tail, divergence, outcomes

KINDS: tuple[Divergence, ...] = ("reverse", "forward", "jensen_shannon")
BETA = 0.3
V = 32


def logits(seed: int, *, rows: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a student and a teacher, (rows, V)."""
    drawn = torch.from_numpy(np.random.default_rng(seed).normal(0, 2, (2, rows, V)))
    return drawn[0], drawn[1]


def exact(student: torch.Tensor, teacher: torch.Tensor, kind: Divergence) -> torch.Tensor:
    """Divergence on the whole vocabulary by torch, for each row of logits."""
    log_p, log_q = student.log_softmax(-1), teacher.log_softmax(-1)

    def kl(log_a: torch.Tensor, log_b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.kl_div(log_b, log_a, reduction="none", log_target=True).sum(
            -1
        )

    if kind == "jensen_shannon":
        log_m = (BETA * log_q.exp() + (1 - BETA) * log_p.exp()).log()
        return BETA * kl(log_q, log_m) + (1 - BETA) * kl(log_p, log_m)
    return kl(log_p, log_q) if kind == "reverse" else kl(log_q, log_p)


def by_tokens(
    student: torch.Tensor, teacher: torch.Tensor, kind: Divergence, tail: Tail, k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Value (rows,) on the k most likely tokens, and the cross entropy's gradient (rows, V) by the student's logits."""
    top = teacher.log_softmax(-1).topk(k, -1)
    student = student.clone().requires_grad_()
    log_p = student.log_softmax(-1).gather(-1, top.indices)
    value, pull = divergence(log_p.detach().numpy(), top.values.numpy(), kind, tail, beta=BETA)
    (log_p * torch.from_numpy(pull)).sum().backward()
    return value, student.grad.numpy()


@pytest.mark.parametrize("tail", ["bucket", "renormalise"])
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_whole_vocabulary_value_and_gradient_are_exact(kind, tail):
    student, teacher = logits(1)
    value, gradient = by_tokens(student, teacher, kind, tail, V)
    student.requires_grad_()
    exact(student, teacher, kind).sum().backward()
    expected = exact(student, teacher, kind).detach().numpy()
    assert value == pytest.approx(expected, abs=1e-3 if tail == "bucket" else 1e-9)
    assert gradient == pytest.approx(
        student.grad.numpy(), abs=1e-3 if tail == "bucket" else 1e-9
    )


@pytest.mark.parametrize("tail", ["bucket", "renormalise"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_equals_finite_differences(kind, tail):
    student, teacher = logits(2, rows=1)
    _, gradient = by_tokens(student, teacher, kind, tail, 6)
    step = 1e-5
    for v in range(V):
        moved = torch.zeros(1, V, dtype=torch.float64)
        moved[0, v] = step
        (up,), _ = by_tokens(student + moved, teacher, kind, tail, 6)
        (down,), _ = by_tokens(student - moved, teacher, kind, tail, 6)
        assert gradient[0, v] == pytest.approx((up - down) / (2 * step), abs=1e-7)


def test_the_mean_gradient_of_sampled_tokens_is_that_of_the_reverse_kl():
    student, teacher = logits(3, rows=1)
    _, gradient = by_tokens(student, teacher, "reverse", "renormalise", V)
    log_p, log_q = student.log_softmax(-1)[0], teacher.log_softmax(-1)[0]
    mean = torch.zeros(V, dtype=torch.float64)
    for token in range(V):  # p(token) (log p - log q) grad log p(token)
        score = -log_p.exp()
        score[token] += 1
        mean += log_p[token].exp() * (log_p[token] - log_q[token]) * score
    assert gradient[0] == pytest.approx(mean.numpy(), abs=1e-9)


def test_the_divergence_with_a_bucket_rises_with_k_up_to_the_exact_one():
    student, teacher = logits(4, rows=200)
    for kind in KINDS:
        whole = exact(student, teacher, kind).numpy()
        found = [by_tokens(student, teacher, kind, "bucket", k)[0] for k in (1, 2, 4, 8, 16)]
        for fewer, more in zip(found, [*found[1:], whole], strict=True):
            assert (fewer <= more + 1e-6).all()


def test_a_clamp_bounds_the_gradient_of_a_token_that_the_teacher_excludes():
    student, teacher = np.log([[0.5, 0.4, 0.1]]), np.log([[0.98, 0.02 - 1e-9, 1e-9]])
    _, free = divergence(student, teacher, "reverse", "renormalise")
    _, bound = divergence(student, teacher, "reverse", "renormalise", clamp=2.0)
    assert free[0, 2] > 1.5
    assert abs(bound).max() <= 2 * 2.0 * 0.5


def test_rounding_gives_no_infinite_values():
    sure = np.array([[0.0, -20.0]], np.float32) + np.float32(1e-6)
    assert np.isfinite(outcomes(sure, "bucket")).all()
    for kind in KINDS:
        value, pull = divergence(sure, np.log([[0.5, 0.4]]), kind, "bucket")
        assert np.isfinite(value).all()
        assert np.isfinite(pull).all()
