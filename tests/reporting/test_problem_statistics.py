"""The page with the counts of a problem set, in a real browser."""

from collections import Counter

from rtl_core.reporting.problem_statistics import write_page
from tests.reporting.chromium import browser

COUNTS = {
    "source": Counter({"<b>own</b>": 3, "starter": 2}),
    "lines of code": Counter({"1 to 10": 5}),
    "left out": Counter({"it is </script> VHDL": 4}),
}


def test_the_page_draws_the_counts_and_lists_reasons(tmp_path):
    path = tmp_path / "page" / "problems.html"
    write_page(path, COUNTS, "own=x.jsonl")
    with browser() as page:
        page.open(path)
        page.js("report.drawAll().then(() => 1)")
        assert page.js("document.querySelector('h1').textContent") == "5 problems"
        assert page.js("document.querySelectorAll('[data-drawn=yes]').length") == 2
        text = page.js("document.body.innerText")
        assert "it is </script> VHDL" in text
        assert "<b>own</b>" in text
        assert page.js("window.reportErrors") == []
