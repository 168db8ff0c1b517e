"""What a trace does not hold: the places where Python took over, each listed once with its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpujit.ir.source import SourceRange

# The kinds of places, and what each means for the trace. Those that lose nothing are notes.
KINDS: dict[str, str] = {
    "branch": "Python decided by it; the trace holds the side that was taken",
    "loop": "Python took it as a number of turns; the trace holds as many as there were",
    "number": "Python took it as a number; the trace holds that number",
    "array": "it became an array that is not traced; the trace holds its numbers",
    "constant": "an array that is no input and no parameter; the trace holds its numbers",
    "random": "it differs from run to run although the inputs are the same; the trace holds what was drawn",
    "input-write": "it writes into an input; the traced function writes into its caller's array, too",
    "view": "NumPy shares memory here that the trace does not; what is written later is not seen there",
    "leak": "a traced value was kept after the function had returned; it is of no use outside",
    "container": "a dict is returned; its keys are those of this run",
    "size": "inputs of other sizes give another result than the function; what differs first is here",
    "data-size": "the size of the result depends on the numbers in the inputs",
}
NOTES = frozenset(("data-size",))
# Listed, and refused by strict tracing, but not worth a warning: weights that are closed over are ordinary.
QUIET = NOTES | {"constant"}


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One place: ``kind`` is a key of KINDS, ``what`` says what was met there; ``place`` is None without a line."""

    kind: str
    what: str
    place: SourceRange | None
    function: str = ""

    @property
    def file(self) -> str:
        """The file's name, '' when unknown."""
        return "" if self.place is None else self.place.source.name

    @property
    def line(self) -> int:
        """The line's number, 0 when unknown."""
        return 0 if self.place is None else self.place.shown_line

    @property
    def is_note(self) -> bool:
        """Whether the trace loses nothing here."""
        return self.kind in NOTES

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.place is not None else "somewhere"
        inside = f" in {self.function}" if self.function else ""
        shown = "" if self.place is None else self.place.source.lines()[self.place.line - 1].strip()
        return f"{where}{inside}: {self.kind}: {self.what}: {KINDS[self.kind]}" + (f"\n    {shown}" if shown else "")


class TraceReport:
    """The diagnostics of a trace in the order they were met, each place once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, int], Diagnostic] = {}

    def add(self, diagnostic: Diagnostic) -> bool:
        """Enter it; False when the place is listed with that kind already."""
        column = 0 if diagnostic.place is None else diagnostic.place.column
        key = (diagnostic.kind, diagnostic.file, diagnostic.line, column)
        # Without a line, what is said tells two of them apart.
        if diagnostic.place is None:
            key = (diagnostic.kind, diagnostic.what, 0, 0)
        if key in self._found:
            return False
        self._found[key] = diagnostic
        return True

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, index: int) -> Diagnostic:
        return list(self)[index]

    def of_kind(self, kind: str) -> list[Diagnostic]:
        """Those of one kind."""
        return [d for d in self if d.kind == kind]

    @property
    def losses(self) -> list[Diagnostic]:
        """Those that are not mere notes."""
        return [d for d in self if not d.is_note]

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "nothing was lost"
