"""Compute the text edits that give a document the desired content."""

import re
from typing import Any, Final, NamedTuple, cast

from gpugate.policies.kube.fields import lookup
from gpugate.webhook.files.rewrite import collection_edits as edits
from gpugate.webhook.files.rewrite.layout import (
    Alias,
    CannotWriteError,
    Collection,
    Layout,
    LayoutNode,
    MapEntry,
    Mapping,
    Scalar,
    Sequence,
    Splice,
    begins_line,
    indentation,
    line_start,
    next_line,
    walk,
)
from gpugate.webhook.files.rewrite.writers import (
    FlowWriter,
    JsonWriter,
    YamlWriter,
    json_step,
    json_writer,
    shared_quotes,
    yaml_writer,
)

#: Value of a key that no merge source has.
_NOTHING: Final = object()
_HEADER: Final = re.compile(r"[|>][-+\d]*")


def same(value: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether two JSON values are equal, types included: 1 is not true."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(same(item, other[key]) for key, item in value.items())
    if isinstance(value, list):
        return len(value) == len(other) and all(map(same, value, other))
    return bool(value == other) or (value != value and other != other)  # noqa: PLR0124 - NaN equals NaN here


def splices(layout: Layout, before: Any, desired: Any, eol: str, *, json: bool = False) -> list[Splice]:  # noqa: ANN401
    """Return the splices that turn a document with the value ``before`` into one with the value ``desired``.

    Raises:
        CannotWriteError: a change cannot be written without side effects.
    """
    writer: FlowWriter = json_writer(layout) if json else yaml_writer(layout)
    editor = _Editor(layout, desired, writer, edits.Lines(eol, json_step(layout) if json else ""))
    editor.edit(layout.root, before, desired)
    if not json:
        editor.keep_last_text()
    return editor.splices


class ParentNode(NamedTuple):
    """The parent of a node: a map with the node's entry, or a list."""

    collection: Collection
    entry: MapEntry | None = None

    @property
    def in_block(self) -> bool:
        """Return whether the parent is in block style."""
        return not self.collection.flow


class _Editor:
    def __init__(self, layout: Layout, desired: Any, writer: FlowWriter, lines: edits.Lines) -> None:  # noqa: ANN401
        self.splices: list[Splice] = []
        self._layout = layout
        self._text = layout.text
        self._everywhere = layout.has_aliases
        self._desired = desired
        self._writer = writer
        self._lines = lines

    def keep_last_text(self) -> None:
        """Mark a block scalar that ends the file without a line break, if lines are appended after it."""
        end = len(self._text)
        if not any(splice.start == end for splice in self.splices):
            return
        for node, _ in walk(self._layout.root):
            if isinstance(node, Scalar) and node.style in {"|", ">"} and node.end == end:
                header = _HEADER.match(self._text, node.content)
                if header and "-" not in header[0]:
                    self.splices.append(Splice(*header.span(), header[0].replace("+", "") + "-"))

    def edit(self, node: LayoutNode, before: Any, desired: Any, parent: ParentNode | None = None) -> None:  # noqa: ANN401
        """Edit ``node`` from the value ``before`` to the value ``desired``."""
        unchanged = same(before, desired)
        if unchanged and not self._everywhere:
            return
        if isinstance(node, Alias):
            # Its anchor may have been edited already.
            if not same(lookup(self._desired, node.target.path), desired):
                self._replace(node, desired, parent)
        elif desired and parent is not None and parent.entry is not None and parent.in_block and self._is_bare(node):
            # Replace empty brackets in block style: they do not mean a preference for flow style.
            self._replace(node, desired, parent)
        elif isinstance(node, Mapping) and isinstance(before, dict) and isinstance(desired, dict) and (desired or not before):
            self._map(node, before, desired, parent)
        elif isinstance(node, Sequence) and isinstance(before, list) and isinstance(desired, list) and len(before) <= len(desired):
            self._list(node, before, desired)
        elif not unchanged:
            self._replace(node, desired, parent)

    def _is_bare(self, node: LayoutNode) -> bool:
        """Return whether ``node`` is an empty pair of brackets without an anchor."""
        if not isinstance(node, Collection) or not node.flow or node.opening != node.start:
            return False
        return not self._text[node.opening + 1 : node.end - 1].strip()

    def _map(self, node: Mapping, before: dict[str, Any], desired: dict[str, Any], parent: ParentNode | None) -> None:
        inherited = self._inherited(node, before, desired)
        own = {entry.name for entry in node.entries}
        new = {key: value for key, value in desired.items() if key not in own and not same(inherited.get(key, _NOTHING), value)}
        removed = [entry for entry in node.entries if entry.name not in desired]
        removed = [entry for entry in removed if not self._rename(node, entry, before, new)]
        if removed and len(removed) == len(node.entries) and not node.merged:
            self._replace(node, desired, parent)
            return
        for entry in node.entries:
            if entry.name in desired and entry.name is not None:
                self.edit(entry.value, before.get(entry.name), desired[entry.name], ParentNode(node, entry))
        if removed:
            self._remove(node, removed)
        if new:
            self._add(node, new)

    def _inherited(self, node: Mapping, before: dict[str, Any], desired: dict[str, Any]) -> dict[str, Any]:
        """Return the keys that ``node`` inherits from its merge keys after all edits; the first source of a key wins."""
        result: dict[str, Any] = {}
        own = {entry.name for entry in node.entries}
        if None in own:
            raise CannotWriteError(node.path, node.start, "has a key that is not a scalar")
        for source in node.merged:
            if isinstance(source, Alias):
                given = lookup(self._desired, source.target.path)
            elif isinstance(source, Mapping) and not source.merged:
                given = {entry.name: before.get(entry.name or "") for entry in source.entries}
            else:
                raise CannotWriteError(node.path, source.start, "has a merge key (<<) that is neither an alias nor a plain map")
            for key, value in given.items() if isinstance(given, dict) else ():
                if key not in own:
                    result.setdefault(key, value)
        for name in sorted(result.keys() - desired.keys()):
            raise CannotWriteError((*node.path, name), node.start, "comes from a merge key (<<) and cannot be removed there")
        return result

    def _rename(self, node: Mapping, entry: MapEntry, before: dict[str, Any], new: dict[str, Any]) -> bool:
        """Rename ``entry`` to a new key with the same value, if there is one, so that its comment stays."""
        value = before.get(entry.name or "")
        name = next((key for key, item in new.items() if same(item, value)), None)
        if name is None or not isinstance(entry.key, Scalar) or isinstance(value, dict | list) or value is None:
            return False
        style = entry.key.style if entry.key.style in {'"', "'"} else ""
        self.splices.append(Splice(entry.key.content, entry.key.end, self._writer.scalar(name, flow=node.flow, style=style)))
        del new[name]
        return True

    def _remove(self, node: Mapping, removed: list[MapEntry]) -> None:
        if len(removed) == len(node.entries):
            raise CannotWriteError(node.path, node.start, "would have no own key left")
        if node.flow:
            self.splices += edits.remove_in_brackets(node, removed)
        else:
            self.splices += [edits.remove_lines(self._text, node, entry) for entry in removed]

    def _add(self, node: Mapping, new: dict[str, Any]) -> None:
        style = shared_quotes(entry.key for entry in node.entries)
        if node.flow:
            written = [self._pair(key, value, node, style) for key, value in new.items()]
            self.splices += edits.append_in_brackets(self._text, node, written, self._writer.comma, self._lines)
            return
        lines = [line for key, value in new.items() for line in self._yaml.entry(key, value, node.column, style)]
        self._insert(lines, node.end, node.column)

    def _pair(self, key: str, value: Any, node: Mapping, style: str) -> str:  # noqa: ANN401
        values = shared_quotes(entry.value for entry in node.entries if isinstance(entry.value, Scalar)) if style else ""
        return f"{self._writer.scalar(key, style=style)}{self._writer.colon}{self._element(value, node, values)}"

    def _element(self, value: Any, node: Collection, style: str = "") -> str:  # noqa: ANN401
        """Format ``value`` for the inside of the brackets of ``node``."""
        present = edits.children(node)
        if isinstance(self._writer, JsonWriter) and self._lines.step and isinstance(value, dict | list):
            at = edits.start_of(present[-1]) if present else node.opening
            if not present or begins_line(self._text, at):
                indent = indentation(self._text, at) + ("" if present else self._lines.step)
                return self._writer.lines(value, indent, self._lines.step, self._lines.eol)
        return self._writer.inline(value, style, self._pad(node))

    def _pad(self, node: Collection) -> str:
        """Return the space inside of the brackets of ``node``, if there is one."""
        inner = self._text[node.opening + 1 : node.end - 1]
        return " " if isinstance(node, Mapping) and inner[:1] == " " and inner.strip() and inner[-1:] == " " else ""

    def _list(self, node: Sequence, before: list[Any], desired: list[Any]) -> None:
        for at, item in enumerate(node.items):
            self.edit(item, before[at], desired[at], ParentNode(node))
        new = desired[len(node.items) :]
        if not new:
            return
        last = node.items[-1] if node.items else None
        if node.flow:
            pattern = last if isinstance(last, Mapping) and last.flow else node
            written = [
                self._element(value, node) if isinstance(self._writer, JsonWriter) else self._inline(value, pattern)
                for value in new
            ]
            self.splices += edits.append_in_brackets(self._text, node, written, self._writer.comma, self._lines)
            return
        if isinstance(last, Collection) and last.opening >= 0 and edits.children(last):
            dash = " " * node.column + "-" + " " * self._gap(node, last)
            lines = [dash + self._inline(value, last) for value in new]
        else:
            style, gap = shared_quotes(node.items), self._gap(node, last)
            lines = [line for value in new for line in self._yaml.item(value, node.column, style, gap)]
        self._insert(lines, node.end, node.column)

    def _gap(self, node: Sequence, last: LayoutNode | None) -> int:
        """Return the number of spaces between a dash of ``node`` and the item."""
        start = last.start - line_start(self._text, last.start) if last is not None and last.end > last.start else 0
        return start - node.column - 1 if start > node.column + 1 else 1

    def _inline(self, value: Any, pattern: Collection) -> str:  # noqa: ANN401
        return self._writer.inline(value, pad=self._pad(pattern))

    def _replace(self, node: LayoutNode, desired: Any, parent: ParentNode | None) -> None:  # noqa: ANN401
        filled = isinstance(desired, dict | list) and bool(desired)
        in_block = parent is not None and parent.in_block
        if parent is not None and isinstance(parent.collection, Mapping) and parent.entry is not None and in_block:
            if filled or isinstance(node, Collection):
                self._rewrite(parent.collection, parent.entry, desired)
                return
        elif filled and in_block and isinstance(node, Alias):
            column = node.start - line_start(self._text, node.start)
            self.splices.append(Splice(node.start, node.end, self._lines.eol.join(self._yaml.block(desired, column))[column:]))
            return
        if isinstance(node, Collection) and not node.flow:
            raise CannotWriteError(node.path, node.start, "cannot be replaced as a whole")
        self._put_inline(node, desired, flow_style=not in_block)

    def _put_inline(self, node: LayoutNode, desired: Any, *, flow_style: bool) -> None:  # noqa: ANN401
        style = node.style if isinstance(node, Scalar) and node.style in {'"', "'"} else ""
        if isinstance(desired, dict | list):
            written = self._writer.inline(desired)
        else:
            written = self._writer.scalar(desired, flow=flow_style, style=style if isinstance(desired, str) else "")
        start = node.content if isinstance(node, Scalar) else node.start
        gap = " " if isinstance(node, Scalar) and node.is_empty else ""
        self.splices.append(Splice(start, node.end, gap + written))

    def _rewrite(self, parent: Mapping, entry: MapEntry, desired: Any) -> None:  # noqa: ANN401
        """Write ``desired`` on its own lines below the key of ``entry``, replacing the old value."""
        value = entry.value
        if not isinstance(desired, dict | list) or not desired:
            self.splices.append(Splice(entry.colon + 1, value.end, " " + self._writer.inline(desired)))
            return
        if entry.colon < 0:
            raise CannotWriteError(value.path, entry.key.start, "has no colon")
        content = value.content if isinstance(value, Scalar) and value.content > value.start else entry.colon + 1
        self.splices.append(Splice(content, max(value.end, content), ""))
        column = parent.column + (self._yaml.step if isinstance(desired, dict) else self._dash(parent))
        at = next_line(self._text, max(value.end, entry.colon + 1))
        self.splices.append(edits.insert_lines(self._text, at, self._yaml.block(desired, column), self._lines.eol))

    def _dash(self, parent: Mapping) -> int:
        """Return the indentation of a list below its key: as for other lists of the map, or of the document."""
        values = [entry.value for entry in parent.entries]
        columns = (value.column for value in values if isinstance(value, Sequence) and not value.flow)
        return next(columns, self._yaml.dash + parent.column) - parent.column

    def _insert(self, lines: list[str], end: int, column: int) -> None:
        at = edits.after_comments(self._text, end, column)
        self.splices.append(edits.insert_lines(self._text, at, lines, self._lines.eol))

    @property
    def _yaml(self) -> YamlWriter:
        """Return the writer: nodes in block style occur in YAML only."""
        return cast("YamlWriter", self._writer)
