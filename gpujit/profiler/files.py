"""Files that profiles go to: whole ones, or none."""

from __future__ import annotations

import json
from typing import Any

from gpujit.serialization.target import write_to


def save_json(data: Any, path: Any) -> None:
    """Write data as JSON, ASCII alone, to a path (beside it, then renamed) or a file object. Raises SaveError."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    write_to(path, lambda sink: sink.write(text.encode("ascii")))
