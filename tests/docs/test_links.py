"""Links between pages lead somewhere."""

import re

import pytest

from tests.docs.pages import ROOT, pages, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings make."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page):
    broken = []
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


def test_every_page_below_docs_is_in_an_index():
    listed = {
        (index.parent / link.partition("#")[0]).resolve()
        for index in (ROOT / "docs").rglob("README.md")
        for link in LINK.findall(prose(index))
        if "://" not in link
    }
    below = {p.resolve() for p in (ROOT / "docs").rglob("*.md")} - {(ROOT / "docs" / "README.md").resolve()}
    assert sorted(str(p.relative_to(ROOT)) for p in below - listed) == []
