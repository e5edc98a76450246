"""A card as Markdown and as a page; both show what the JSON file says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader

from rtl_core.cards.card import WHOLE, Card, to_json
from rtl_core.reporting.blocks import Section, Table
from rtl_core.reporting.report import page
from rtl_core.reporting.text import leaves, rate_in_words
from rtl_grader.words import counted, visible


def headline(card: Card) -> str:
    """pass@1 over all problems, with what it is, in words."""
    whole = card.figures[WHOLE]
    problems = counted(whole.n, "problem")
    return f"pass@1 {rate_in_words(whole.pass_at[1])}, {card.kinds[1]}, {problems}"


def title(card: Card) -> str:
    """What a card says, in one line. Problems that are not a protocol's do not have its name."""
    name, departs = card.protocol.name, card.protocol.departs
    other = [one for one in departs if one.startswith(f"{name}, problems, sources")]
    changed = "changed " if len(departs) > len(other) else ""
    if other:
        by = f"on problems of {', '.join(sorted(card.data))} with {changed}settings of {name}"
    else:
        by = f"by {name}{' with changed settings' if changed else ''}"
    return f"{card.model['name']} {by}: {headline(card)}"


def tables(card: Card) -> list[Table]:
    """The figures, what they depend on, and the problems."""
    figures = [
        [name, str(part.n), f"pass@{k}", rate_in_words(rate), card.kinds.get(k, "")]
        for name, part in card.figures.items()
        for k, rate in part.pass_at.items()
    ]
    rest = card.model_dump(mode="json", exclude={"problems", "figures"})
    rest["tools"] = {name: counted(n, "verdict") for name, n in card.tools.items()}
    about = [[name, _text(value)] for name, value in leaves(rest, ": ").items()]
    problems = [
        [name, f"{one.passed} of {len(one.verdicts)}", one.errata, one.fingerprint]
        for name, one in card.problems.items()
    ]
    caption = "Unbiased pass@k; [95 % interval over problems]. Of k attempts the harness chooses the best."
    head = "problem | passed: | known faults | fingerprint"
    return [
        Table("figures", "Figures", caption, "over | problems: | k | figure: | kind", figures),
        Table("about", "What they depend on", "", "what | value", about),
        Table("problems", "Problems", "", head, problems),
    ]


def _text(value: Any) -> str:
    """A value of a card as text."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def markdown(card: Card) -> str:
    """The card in Markdown."""
    templates = Environment(loader=PackageLoader("rtl_core.cards", "."), trim_blocks=True)
    templates.filters["cell"] = _cell
    template = templates.get_template("card.md.jinja")
    return template.render(title=title(card), tables=tables(card))


def _cell(text: str) -> str:
    """A text that Markdown shows as it is, in one cell."""
    words = " ".join(visible(text).split())
    return "".join(f"\\{one}" if one in "\\`*_[]|<>#" else one for one in words)


def html(card: Card) -> str:
    """The card as a page that needs no network."""
    sections = [Section(f"part-{one.id}", one.title, "", [one]) for one in tables(card)]
    return page(sections, headline=title(card), eyebrow="Evaluation")


FORMS: dict[str, Callable[[Card], str]] = {".json": to_json, ".md": markdown, ".html": html}
"""Ending of a file -> the text of a card in that form."""
