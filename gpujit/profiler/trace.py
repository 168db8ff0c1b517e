"""Timelines in the format of Chrome's tracing, which Perfetto reads: calls, the steps in them, threads, the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpujit.profiler.data import Event, Profile, StepProfile
from gpujit.profiler.files import save_json

# Events and bytes of a file, beyond which a browser takes long; characters of a name.
MAX_EVENTS, MAX_BYTES = 200_000, 64 << 20
MAX_NAME = 300
# Bytes that an event takes besides its name, about.
_EVENT_BYTES = 300
# Lines of the timeline in the order they are shown.
_TRACKS = ("calls", "steps", "gpu")


def save_trace(profiles: Sequence[Profile], path: Any) -> None:
    """Write the timelines of profiles to a path or file object. Raises SaveError."""
    save_json(trace_of(profiles), path)


def trace_of(profiles: Sequence[Profile]) -> dict[str, Any]:
    """The timelines as JSON's types: each profile is a process, each of its tracks a thread.

    Events that are too many are left out; a note says how many.
    """
    events: list[dict[str, Any]] = []
    left_out, used, size = 0, 0, 0
    for process, profile in enumerate(profiles, start=1):
        left_out += profile.dropped
        events += _names(process, profile)
        for event in sorted(profile.events, key=lambda e: (e.start, -e.seconds)):
            cost = _EVENT_BYTES + 6 * min(len(event.name), MAX_NAME)
            if used >= MAX_EVENTS or size + cost > MAX_BYTES:
                left_out += 1
                continue
            used, size = used + 1, size + cost
            events.append(_event(process, profile, event))
    note = ""
    if left_out:
        note = f"{left_out} events were left out: a trace holds at most {MAX_EVENTS} events, or {MAX_BYTES} bytes"
        events.append({"name": note, "ph": "i", "s": "g", "ts": 0.0, "pid": 1, "tid": 0, "cat": "note"})
    first = profiles[0] if profiles else None
    about = {} if first is None else {"gpujit": first.versions.gpujit, "processor": first.machine.processor}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"note": note, **about}}


def _names(process: int, profile: Profile) -> Iterable[dict[str, Any]]:
    title = f"{profile.file}: {profile.method}"
    yield {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": _short(title)}}
    for track, thread in sorted({(e.track, e.thread) for e in profile.events}, key=_line):
        name = track if not thread else f"{track}, thread {thread}"
        at = {"ph": "M", "pid": process, "tid": _line((track, thread))}
        yield {"name": "thread_name", **at, "args": {"name": _short(name)}}
        yield {"name": "thread_sort_index", **at, "args": {"sort_index": _line((track, thread))}}


def _line(place: tuple[str, int]) -> int:
    track, thread = place
    number = _TRACKS.index(track) if track in _TRACKS else len(_TRACKS)
    return thread * (len(_TRACKS) + 1) + number + 1


def _event(process: int, profile: Profile, event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": _short(event.name) or "?",
        "cat": event.track if event.track in _TRACKS else "other",
        "ph": "X",
        # The format counts microseconds.
        "ts": round(event.start * 1e6, 3),
        "dur": round(event.seconds * 1e6, 3),
        "pid": process,
        "tid": _line((event.track, event.thread)),
        "args": {"call": event.call},
    }
    if event.step is not None and 0 <= event.step < len(profile.steps):
        found["args"].update(_facts(profile.steps[event.step]))
    return found


def _facts(step: StepProfile) -> dict[str, Any]:
    facts = {
        "step": step.number,
        "tier": step.tier,
        "source": step.place.archive,
        "original": step.place.original,
        "module": step.place.module,
        "operators": ", ".join(step.operators),
        "group": step.group,
        "bytes": step.bytes_moved,
        "flops": step.flops,
        "bound": step.bound,
    }
    return {k: _short(v) if isinstance(v, str) else v for k, v in facts.items() if v not in (None, "")}


def _short(text: str) -> str:
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"
