"""Rollouts and conversations as JSON Lines, for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rtl_core.episodes.episode import to_turns
from rtl_core.history.columns import columns_of
from rtl_core.history.export import Line
from rtl_core.history.records import MessageRecord, StoredRollout
from rtl_core.history.store import History


def rollout_lines(history: History, run: str, tokens: bool = False) -> Iterator[Line]:
    """Yield a line for each rollout of a run, training by step, then evaluations.

    Conversations have their `messages` in OpenAI's format. `tokens` adds the token ids and both models'
    log-probabilities.
    """
    prompts = {p.problem_id: p.record.get("prompt", "") for p in history.problems_of(run)}
    sql = "SELECT DISTINCT rollout FROM messages JOIN rollouts USING (rollout) WHERE run = $run"
    conversations = set(history.column(sql, run=run))
    places: list[int | str] = [s.step for s in history.steps(run)]
    kinds = {e.key: e.kind for e in history.evaluations(run)}
    for place in [*places, *kinds]:
        with history.reading():
            for stored in history.rollouts_of(run, place):
                line = _line(stored, prompts, tokens) | {"kind": kinds.get(str(place))}
                if stored.rollout.key in conversations:
                    line |= _conversation(
                        history.messages(stored.rollout.key), line["prompt"], tokens
                    )
                yield line


def _line(stored: StoredRollout, prompts: dict[str, str], tokens: bool) -> Line:
    r, verdict, reward, teacher = stored.rollout, stored.verdict, stored.reward, stored.teacher
    terms = reward.terms.items() if reward else ()
    line: Line = {
        "rollout": r.key,
        **{name: getattr(r, name) for name in columns_of("rollouts") if hasattr(r, name)},
        "prompt": prompts.get(r.problem_id),
        "n_tokens": r.n_own,
        "verdict": verdict and verdict.model_dump(mode="json"),
        "reward": reward and reward.total,
        "reward_terms": reward and {t: {"weight": w, "value": v} for t, (w, v) in terms},
        "advantage": stored.credit and stored.credit.advantage,
        "trained_reward": stored.credit and stored.credit.reward,
        "teacher_kl": teacher
        and {k: getattr(teacher, f"{k}_mean") for k in ("k1", "k2", "k3")},
    }
    if tokens:
        line |= {
            "prompt_tokens": list(r.prompt_P),
            "tokens": list(r.tokens_T),
            "logprobs": list(r.logprobs_T),
            **({"own": list(r.own_T)} if r.own_T else {}),
            "teacher_logprobs": teacher and [float(v) for v in teacher.logprobs_T],
        }
    return line


def _conversation(messages: Sequence[MessageRecord], prompt: str | None, tokens: bool) -> Line:
    """Fields of a line for a conversation: its messages in OpenAI's format, and the number of tokens
    sampled in all turns."""
    conversation: list[Line] = [{"role": "user", "content": prompt}]
    silent = () if tokens else ("tokens", "logprobs")
    for turn in to_turns(messages):
        reply, *others = turn.messages
        conversation.append({key: value for key, value in reply.items() if key not in silent})
        for message, result in zip(others, turn.results, strict=True):
            conversation.append({**message, "ok": result.ok})
    return {"n_tokens": sum(message.n_tokens for message in messages), "messages": conversation}
