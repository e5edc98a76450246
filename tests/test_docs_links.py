"""Links between the pages lead to files and headings that exist, and from an index to every page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *ROOT.glob("packages/*/README.md"),
]
LINK = re.compile(r"\]\(([^)\s:]*?)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """Names of the headings of a page, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links {path}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links {path}#{anchor}"


def test_every_page_can_be_reached_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in reached or not page.is_file():
            continue
        reached.add(page)
        if page.suffix == ".md":
            links = LINK.findall(page.read_text(encoding="utf-8"))
            todo += [page.parent / path for path, _ in links if path.endswith(".md")]
    assert {page.name for page in PAGES if page.resolve() not in reached} == set()
