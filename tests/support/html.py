"""An independent reading of a page: whether it is well formed, and what it says."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

_VOID = {"meta"}
_LOADS = ("src", "srcset", "data", "poster", "action", "formaction", "background", "xlink:href")


class Page(HTMLParser):
    """A page taken apart.

    Attributes:
        ids: every id, and how often it is there.
        links: what `href` says.
        text: what is to be read, without styles and scripts.
        headings: levels in order.
        loads: what an element would fetch.
        elements: tags and their attributes, in order.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.headings: list[int] = []
        self.loads: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self._text: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute is there twice: {attrs}"
        self.elements.append((tag, found))
        if (own := found.get("id")) is not None:
            self.ids[own] += 1
        if (link := found.get("href")) is not None:
            self.links.append(link)
        self.loads += [value or "" for name, value in attrs if name in _LOADS]
        assert not any(name.startswith("on") for name in found), f"a handler: {attrs}"
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append(int(tag[1]))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> closes <{self._open[-1]}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self._text.append(data)

    def handle_decl(self, decl: str) -> None:
        assert decl == "doctype html"

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a tag."""
        return [found for name, found in self.elements if name == tag]


def sound(page: str) -> Page:
    """The page, seen to be well formed, to hold together, and to need nothing from elsewhere."""
    read = Page(page)
    assert max(read.ids.values(), default=1) == 1, read.ids.most_common(3)
    for link in read.links:
        assert link.startswith("#"), link
        assert link[1:] in read.ids, link
    assert read.loads == []
    assert read.headings[0] == 1
    for before, after in zip(read.headings, read.headings[1:], strict=False):
        assert after <= before + 1, read.headings
    for _, found in read.elements:
        assert found.get("aria-labelledby") in (None, *read.ids)
    for image in (found for found in read.of("svg") if found.get("role") == "img"):
        assert image["aria-label"]
    return read
