"""Tables in the width of a terminal, with no word broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.table import Table

GAP = 2  # characters between the columns of a table


@dataclass(frozen=True)
class Rows:
    """A table without lines; `numbers`: places of the columns that are lined up on the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int]

    def fitted(self, width: int) -> Table | str:
        """The table in `width` characters a line, no word of it broken.

        Where that is too few for its columns, each row becomes a paragraph.
        """
        columns = list(zip(self.header, *self.rows, strict=True))
        natural = [
            max(cell_len(line) for c in cells for line in c.split("\n")) for cells in columns
        ]
        least = [
            min(max(cell_len(word) for c in cells for word in ["", *c.split()]), width // 2)
            for cells in columns
        ]
        gaps = GAP * (len(columns) - 1)
        if sum(least) + gaps > width:
            return "\n".join(map(self._paragraph, self.rows))
        widths = shared(least, natural, width - gaps)
        made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=any(self.header))
        for i, name in enumerate(self.header):
            side: Literal["left", "right"] = "right" if i in self.numbers else "left"
            made.add_column(name, justify=side, overflow="fold", width=widths[i])
        for row in self.rows:
            made.add_row(*row)
        return made

    def _paragraph(self, row: Sequence[str]) -> str:
        """One row: its first cell, and below it the others by name."""
        named = zip(self.header[1:], row[1:], strict=True)
        return "\n".join([row[0], *(f"    {name} {cell}".rstrip() for name, cell in named if cell)])


def shared(least: Sequence[int], natural: Sequence[int], width: int) -> list[int]:
    """Widths from `least` up to `natural`, `width` together; those that lack least come first.

    >>> shared([3, 4], [5, 40], 20)
    [5, 15]
    """
    widths, spare = list(least), width - sum(least)
    order = sorted(range(len(least)), key=lambda i: natural[i] - least[i])
    for left, i in zip(range(len(order), 0, -1), order, strict=True):
        more = min(natural[i] - least[i], spare // left)
        widths[i], spare = widths[i] + more, spare - more
    return widths
