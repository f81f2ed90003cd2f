"""The screen of `slotscope browse`: the tree on the left, bytes on the right, findings below."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Footer, Input, OptionList, Static, Tree
from textual.widgets.option_list import Option
from textual.widgets.tree import TreeNode

from inspector.browsing.bytes_view import BytesView
from inspector.browsing.documentation import Documentation
from inspector.browsing.parts import Part, matches, part_of, way_at, way_to
from inspector.findings import Finding, Severity
from inspector.node import Kind, walk
from inspector.render.as_text import findings_part, identity, tally
from inspector.render.nodes import value_of
from inspector.render.page import QUIET, STRONG, STYLES, counted, labelled, text
from inspector.report import Report

_NARROW = 70
"""Columns below which the bytes stand under the tree."""
_LOW = 18
"""Lines below which what is known of a part gives way to its bytes."""

_LETTERS = ("findings", "prompt", "match", "help", "leave")
"""Actions whose keys are letters or signs."""
_GLANCE = 5
"""Nodes that are looked at for a word about an item of a list."""
_SAID = 4.0
"""Seconds for which a remark stands."""

_OFTEN = 0.5
"""Seconds after which we look whether somebody wrote to the file."""
_CHANGED = "the file has changed since it was opened: q, and open it again"

_KEYS = (
    ("up down", "the part above or below; its bytes follow"),
    ("right left", "open it, close it"),
    ("enter", "in the tree: open or close"),
    ("", "in the bytes: go to the part of the first line"),
    ("", "in the findings: to the tree"),
    ("tab", "tree, bytes, what is known: each can be scrolled"),
    ("f", "the findings, the worst first"),
    ("/", "search a path, a field or a text, such as k_size_row"),
    ("", "or a row of a table, such as cells[12].pos"),
    ("n N", "the next match, the one before"),
    ("g", "go to an offset, such as 4096 or 0x1000"),
    ("escape", "close what is open below"),
    ("q", "quit"),
)


class _Help(ModalScreen[None]):
    def compose(self) -> ComposeResult:
        """The keys."""
        keys = labelled()
        for key, does in _KEYS:
            keys.add_row(key, does)
        yield Static(keys, id="help")

    def on_key(self, event: events.Key) -> None:
        """Go away."""
        event.stop()
        self.dismiss()

    def on_click(self) -> None:
        """Go away."""
        self.dismiss()


class _Keys(LinuxDriver):
    """Reads keys, without those that come together with bytes that are no UTF-8."""

    def run_input_thread(self) -> None:
        """Go on until the screen is closed."""
        while True:
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue
            return


class _PartTree(Tree[Part]):
    """The parts of a file; the items of a part are made when it is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "open", show=False),
        Binding("left,h", "close", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("j", "cursor_down", show=False),
    ]
    guide_depth = 2
    show_guides = False

    def __init__(
        self, name: str, root: Part, severities: dict[str, Severity], *, show_tokens: bool
    ) -> None:
        super().__init__(text(name), root)
        self._show_tokens = show_tokens
        self._severities = severities
        self.root.expand()

    def fill(self, node: TreeNode[Part]) -> None:
        """Make the items of a part, if nobody did."""
        if node.children or node.data is None:
            return
        for part in node.data.parts():
            node.add(self._label(part), part, allow_expand=bool(part.items))

    def render_label(self, node: TreeNode[Part], base_style: Style, style: Style) -> Text:
        """The label, as far as there is room."""
        label, above = super().render_label(node, base_style, style), node.parent
        room = self.scrollable_content_region.width
        while above is not None:
            room, above = room - self.guide_depth, above.parent
        label.truncate(max(1, room), overflow="ellipsis")
        return label

    def _label(self, part: Part) -> Text:
        """The name, in the colour of the worst finding inside, and a word about what it is."""
        severity = None if part.paged else self._severities.get(part.path)
        style = STYLES[severity] if severity is not None else ""
        style = STYLES["damaged"] if part.node.kind is Kind.GAP else style
        return text((part.name, style), (f" {self._note(part)}", QUIET))

    def _note(self, part: Part) -> str:
        """Its value, how many items it has, or of a list's item how it begins."""
        if part.paged:
            return ""
        if part.node.kind is Kind.FIELD:
            return value_of(part.path, part.node, show_tokens=self._show_tokens)
        if part.node.kind is not Kind.RECORD:
            return f"{len(part.items):,}" if part.items else ""
        fields = [
            (at, node)
            for at, node in islice(walk(part.node, part.path), _GLANCE)
            if node.kind is Kind.FIELD and part.name.startswith("[")
        ]
        texts = [field for field in fields if isinstance(field[1].value, str)]
        for at, node in (texts or fields)[:1]:
            value = value_of(at, node, show_tokens=self._show_tokens)
            return value if texts else f"{node.name} {value}"
        return ""

    def reveal(self, way: list[Part]) -> Part:
        """Open all above the last part, and go to it."""
        node = self.root
        for part in way[1:]:
            self.fill(node)
            node.expand()
            found = next((child for child in node.children if child.data == part), None)
            if found is None:
                break
            node = found
        self.get_node_at_line(0)  # lays the lines out, which the cursor needs
        self.move_cursor(node)
        return node.data or way[0]

    def action_open(self) -> None:
        """Open the part, or go to the first in it."""
        node = self.cursor_node
        if node is not None and node.allow_expand and not node.is_expanded:
            node.expand()
        elif node is not None and node.children:
            self.action_cursor_down()

    def action_close(self) -> None:
        """Close the part, or go to what has it."""
        node = self.cursor_node
        if node is not None and node.is_expanded and node is not self.root:
            node.collapse()
        else:
            self.action_cursor_parent()


class Browser(App[None]):
    """One file.

    Args:
        report: of the file, which is open.
        show_tokens: whether token ids may be shown.

    Attributes:
        deaf: whether it ended because keys could not be read.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "findings", "Findings", priority=True),
        Binding("slash", "prompt('/')", "Search", priority=True),
        Binding("n", "match(1)", "Next", priority=True),
        Binding("N", "match(-1)", "Previous", show=False, priority=True),
        Binding("g", "prompt('g')", "Go to", priority=True),
        Binding("question_mark", "help", "Help", priority=True),
        Binding("q", "leave", "Quit", priority=True),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("escape", "close", show=False),
    ]
    CSS = """
    #title { height: 1; text-style: reverse; }
    #main { height: 1fr; }
    _PartTree { width: 34%; max-width: 48; border-right: solid ansi_bright_black;
                scrollbar-size-horizontal: 0; scrollbar-gutter: stable; }
    .tree--cursor, .option-list--option-highlighted {
        text-style: reverse; color: ansi_default; background: ansi_default; }
    #right { width: 1fr; padding-left: 1; }
    BytesView { height: 1fr; }
    #known { height: auto; max-height: 40%; border-top: solid ansi_bright_black; }
    #findings { height: auto; min-width: 20; max-height: 40%; border: none; display: none;
                border-top: solid ansi_bright_black; }
    #prompt { height: 1; border: none; padding: 0; display: none; }
    #help { width: auto; max-width: 90%; height: auto; border: round ansi_bright_black;
            padding: 0 1; }
    _Help { align: center middle; }
    .-narrow #main { layout: vertical; }
    .-narrow _PartTree { width: 100%; max-width: 100%; height: 45%; border-right: none;
                         border-bottom: solid ansi_bright_black; }
    .-low #known { display: none; }
    """

    def __init__(self, report: Report, *, show_tokens: bool) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_NARROW, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (_LOW, "-high")]
        self._report = report
        self._show_tokens = show_tokens
        self._root = part_of("", report.tree)
        self._documentation = Documentation(report)
        self._found: list[tuple[str, int]] = []
        self._at = -1
        self._asked = self._sought = ""
        self._shown: Part | None = None
        self._timer: Timer | None = None
        self._tree = _PartTree(report.name, self._root, self._severities(), show_tokens=show_tokens)
        self._bytes = BytesView(report, self._root, show_tokens=show_tokens)
        self._told = Static(markup=False)
        self._known_part = VerticalScroll(id="known")
        options = [Option(_line(finding)) for finding in report.findings]
        self._findings = OptionList(*options, markup=False, id="findings")
        self._prompt = Input(id="prompt", select_on_focus=False)
        self._title_line = Static(self._title(), markup=False, id="title")
        self.deaf = False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are keys, but not where words are typed."""
        return action not in _LETTERS or not isinstance(self.focused, Input)

    def compose(self) -> ComposeResult:
        """All that is on the screen."""
        yield self._title_line
        with Horizontal(id="main"):
            yield self._tree
            with Vertical(id="right"):
                yield self._bytes
                with self._known_part:
                    yield self._told
        yield self._findings
        yield self._prompt
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin with the whole file."""
        self.set_focus(self._tree)
        self.set_interval(_OFTEN, self._fresh)
        if isinstance(self._driver, _Keys):
            self.set_interval(_OFTEN, self._heard)

    def _heard(self) -> None:
        """End with the terminal: nobody will press a key, and waiting for one takes a processor."""
        if not os.isatty(0):
            self.deaf = True
            self.exit()

    def _fresh(self) -> bool:
        """Whether the file is as it was read; if not, nothing of it is shown any more."""
        if not self._report.changed:
            return True
        self.query_one("#main").display = False
        self._prompt.display = self._findings.display = False
        self._title_line.update(self._title())
        return False

    def get_driver_class(self) -> type[Driver]:
        """What reads keys: a byte that is no UTF-8 is none, and ends nothing."""
        driver = super().get_driver_class()
        return _Keys if driver is LinuxDriver else driver

    def panic(self, *renderables: RenderableType) -> None:
        """End, as keys cannot be read; the traceback of textual would show token ids."""
        self.deaf = True
        self._close_messages_no_wait()

    def _fatal_error(self) -> None:
        """Leave a bug of ours to the command: the traceback of textual would show token ids."""
        self._close_messages_no_wait()

    @property
    def bug(self) -> Exception | None:
        """What ended it, if it was not the user."""
        return self._exception

    def _say(self, words: str) -> None:
        """Say something in front of the title, for a while."""
        self._title_line.update(text(f" {words} ·").append_text(self._title()))
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_SAID, lambda: self._title_line.update(self._title()))

    def _title(self) -> Text:
        if self._report.changed:
            return text(f" {self._report.name} · {_CHANGED}")
        verdict = self._report.identification.verdict
        reading = self._report.identification.reading
        layout = f" · {reading.layout.id}" if reading is not None else ""
        tallied = text(*tally(self._report.findings))
        return text(f" {self._report.name}{layout} · {verdict} · ").append(tallied.plain)

    def _severities(self) -> dict[str, Severity]:
        """The worst severity in every part that has a finding."""
        found: dict[str, Severity] = {}
        for finding in reversed(self._report.findings):
            if not finding.carrier:
                above = way_to(self._root, finding.path, finding.span.start)
                for part in (*above, *self._way(finding)):
                    found[part.path] = finding.severity
        return found

    def _way(self, finding: Finding) -> list[Part]:
        way = way_to(self._root, finding.path, finding.span.start)
        return way if way[-1].path == finding.path else way_at(self._root, finding.span.start)

    @on(Tree.NodeExpanded)
    def _fill(self, event: Tree.NodeExpanded[Part]) -> None:
        if self._fresh():
            self._tree.fill(event.node)

    @on(Tree.NodeHighlighted)
    def _choose(self, event: Tree.NodeHighlighted[Part]) -> None:
        if not self._tree.is_attached:  # on the way out
            return
        moved = event.node is self._tree.cursor_node and event.node.data is not self._shown
        # not when lines shift as parts are opened
        if moved and event.node.data is not None and self._fresh():
            self._show(event.node.data)

    def _show(self, part: Part) -> None:
        """Show the bytes of a part, and what is known of it."""
        self._shown = part
        self._bytes.choose(part.span)
        self._tell(self._known(part))

    def _tell(self, parts: Iterator[RenderableType]) -> None:
        self._told.update(Group(*parts))
        self._known_part.scroll_home(animate=False)

    def _known(self, part: Part) -> Iterator[RenderableType]:
        """What is known of a part."""
        if not part.path and not part.paged:
            yield from identity(self._report, self._report.name, self.size.width)
            return
        kind = "part of " if part.paged else ""
        where = f"  {kind}{part.node.kind}, {part.span}, {counted(len(part.span), 'byte')}"
        yield text((part.path + (part.name if part.paged else ""), STRONG), (where, QUIET))
        value = value_of(part.path, part.node, show_tokens=self._show_tokens)
        if value and not part.paged:
            yield text(value)
        if doc := self._documentation.of(part):
            yield text(doc)
        gap = part.node.kind is Kind.GAP
        for finding in self._report.findings:
            here = finding.path == part.path or (gap and finding.span.start in part.span)
            if here and not finding.carrier:
                yield text(
                    (f"{finding.severity} {finding.code}", STYLES[finding.severity]),
                    f": {finding.message}",
                )
        if source := self._documentation.source:
            yield text((source, QUIET))

    @on(BytesView.Chosen)
    def _choose_byte(self, event: BytesView.Chosen) -> None:
        self._go(event.offset)

    def _go(self, offset: int) -> None:
        """Go to the part that has a byte, and to the byte."""
        if not self._fresh():
            return
        self._reveal(way_at(self._root, offset))
        self._bytes.action_scroll_to(offset)

    def _reveal(self, way: list[Part]) -> None:
        self._show(self._tree.reveal(way))

    def action_findings(self) -> None:
        """Show the findings, or hide them."""
        if not self._fresh():
            return
        found = self._findings
        if not self._report.findings:
            self._say("no findings")
        elif found.display:
            self.action_close()
        else:
            found.display = True
            self.set_focus(found)
            found.highlighted = found.highlighted or 0
            self._jump(self._report.findings[found.highlighted])

    @on(OptionList.OptionHighlighted)
    def _tell_finding(self, event: OptionList.OptionHighlighted) -> None:
        if self._findings.display:
            self._jump(self._report.findings[event.option_index])

    @on(OptionList.OptionSelected)
    def _to_the_tree(self) -> None:
        self.set_focus(self._tree)

    def _jump(self, finding: Finding) -> None:
        """Go to the part that has a finding, and say all of it."""
        if not self._fresh():
            return
        if not finding.carrier:
            self._shown = self._tree.reveal(self._way(finding))
            self._bytes.choose(finding.span)
        self._tell(findings_part((finding,)))

    def action_prompt(self, key: str) -> None:
        """Ask what to search, or where to go."""
        if not self._fresh():
            return
        self._asked = key
        prompt = self._prompt
        prompt.value = ""
        prompt.placeholder = "search" if key == "/" else "offset, such as 4096 or 0x1000"
        prompt.display = True
        self.set_focus(prompt)

    @on(Input.Submitted)
    def _answered(self, event: Input.Submitted) -> None:
        self.action_close()
        if not (words := event.value.strip()):
            return
        if self._asked == "/":
            self._search(words)
        else:
            self._go_to(words)

    def _search(self, words: str) -> None:
        """Go to the first match, from here on."""
        if not self._fresh():
            return
        self._found, self._sought = matches(self._root.node, words), words
        here = self._bytes.first
        after = (i for i, (_, offset) in enumerate(self._found) if offset >= here)
        self._at = next(after, 0) - 1
        self.action_match(1)

    def action_match(self, step: int) -> None:
        """Go to the next match, or to the one before."""
        if not self._fresh():
            return
        if not self._sought:
            self.action_prompt("/")
            return
        if not self._found:
            self._say(f"nothing found: {self._sought}")
            return
        self._at = (self._at + step) % len(self._found)
        path, offset = self._found[self._at]
        self._reveal(way_to(self._root, path, offset))
        self._say(f"{self._at + 1:,} of {len(self._found):,}")

    def _go_to(self, words: str) -> None:
        try:
            offset = int(words, 0)
        except ValueError:
            self._say(f"no offset: {words}")
            return
        if 0 <= offset < self._report.size:
            self._go(offset)
        else:
            self._say(f"the file ends at 0x{self._report.size:x}: {words}")

    def action_close(self) -> None:
        """Close the prompt and the findings."""
        self._prompt.display = self._findings.display = False
        self.set_focus(self._tree)

    def action_leave(self) -> None:
        """Go."""
        self.exit()

    def action_help(self) -> None:
        """Say what the keys do."""
        self.push_screen(_Help())


def _line(finding: Finding) -> Text:
    where = ": ".join(part for part in (finding.carrier, finding.path) if part)
    return text(
        (finding.severity[:1].upper(), STYLES[finding.severity]),
        f" {finding.code}  ",
        (f"{where}  " if where else "", QUIET),
        finding.message,
    )
