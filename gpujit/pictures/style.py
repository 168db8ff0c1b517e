"""The style sheet of pictures: colours for light, dark and printed pages.

Colours are variables, which follow the reader's preference or the page's ``data-theme``. Programs that know no
variables skip those declarations and take the plain colours before them.
"""

from __future__ import annotations

import re

from gpujit.pictures.tones import GROUP_FILLS, HUES, TIER_COLOURS

# Text, lesser text, lines, what lies behind, nodes, boxes; saturation and lightness of groups.
_LIGHT = {
    "ink": "#1f2328", "soft": "#656d76", "line": "#8c959f", "paper": "#fff", "node": "#f6f8fa", "box": "#8c959f12",
    "sat": "65%", "light": "55%",
}  # fmt: skip
_DARK = {
    "ink": "#e6edf3", "soft": "#9da7b1", "line": "#768390", "paper": "#0d1117", "node": "#161b22", "box": "#76839018",
    "sat": "50%", "light": "60%",
}  # fmt: skip
_PRINT = {"ink": "#000", "soft": "#444", "line": "#666", "paper": "#fff", "node": "#fff", "box": "#00000008"}
_FONTS = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace'

# ``fill:$ink`` stands for the plain colour and then the variable. Lines are rules below ``.gpujit-picture``.
_GRAPH = """
text{fill:$ink;font-size:12px;stroke:none}
.small{font-size:10px;fill:$soft}
.shape{font-size:10px;fill:$soft;paint-order:stroke;stroke:$paper;stroke-width:3px;stroke-linejoin:round}
.mid,.shape{text-anchor:middle}
rect{stroke:$line;fill:$node}
.box>rect{fill:none;fill:var(--box)}
.box>text{fill:$soft}
.module>rect{stroke-dasharray:4 3}
.edge{fill:none;stroke:$line;stroke-width:1.2}
.control{stroke-dasharray:3 3}
.head{fill:$line;stroke:none}
.input>rect,.output>rect{stroke-width:2}
.folded>rect{stroke-width:2;stroke-dasharray:4 3}
"""
_MEMORY = """
.bar{stroke-width:.8}
.buffer:hover>rect{stroke-width:2}
.axis{stroke:$line;stroke-width:.7;fill:none}
.grid{stroke:$line;stroke-width:.4;stroke-dasharray:2 4}
.peak{stroke:#dc3c3c;stroke-width:1.5}
.bound{stroke:#3f9bd9;stroke-width:1.2;stroke-dasharray:6 3}
.live{fill:none;stroke:$ink;stroke-width:1.2;opacity:.7}
.end{text-anchor:end}
.total{fill:$line;stroke:none}
"""


def style_sheet(*, memory: bool = False) -> str:
    """The style that pictures of graphs need, with ``memory`` that of memory plans too."""
    rules = [
        f".gpujit-picture{{{_variables(_LIGHT)};font-family:{_FONTS};color:{_LIGHT['ink']};color:var(--ink)}}",
        f"@media(prefers-color-scheme:dark){{.gpujit-picture{{{_variables(_DARK)}}}}}",
        f"[data-theme=light] .gpujit-picture{{{_variables(_LIGHT)}}}",
        f"[data-theme=dark] .gpujit-picture{{{_variables(_DARK)}}}",
        f"@media print{{.gpujit-picture{{{_variables(_PRINT, '!important')}}}}}",
        *_rules(_GRAPH),
        *(_rules(_MEMORY) if memory else ()),
    ]
    for i, (hue, fill) in enumerate(zip(HUES, GROUP_FILLS, strict=True)):
        line = f"hsl({hue},65%,55%)"
        rules.append(f".gpujit-picture .hue-{i}{{--hue:{hue}}}")
        rules.append(f".gpujit-picture .hue-{i}>rect{{stroke:{line};fill:{fill}}}")
    tone = "hsl(var(--hue) var(--sat) var(--light)"
    rules.append(f".gpujit-picture .group>rect{{stroke:{tone});stroke-width:1.5;fill:{tone}/.16)}}")
    rules.append(f".gpujit-picture .buffer>rect{{stroke:{tone});fill:{tone}/.4)}}")
    rules += [f".gpujit-picture .{tag}>rect{{stroke:{colour}}}" for tag, colour in TIER_COLOURS.items()]
    rules.append(".gpujit-picture [class*=tier-]>rect{stroke-width:2}")
    rules.append(".gpujit-picture .tier-native-copy>rect,.gpujit-picture .tier-view>rect{stroke-dasharray:2 2}")
    return "\n".join(rules) + "\n"


def _variables(colours: dict[str, str], suffix: str = "") -> str:
    return ";".join(f"--{name}:{value}{suffix}" for name, value in colours.items())


def _rules(text: str) -> list[str]:
    found = []
    for line in text.split("\n"):
        if line:
            names, _, body = line.partition("{")
            selectors = ",".join(f".gpujit-picture {name}" for name in names.split(","))
            found.append(f"{selectors}{{{re.sub(r'([a-z-]+):[$]([a-z]+)', _both, body)}")
    return found


def _both(m: re.Match[str]) -> str:
    return f"{m[1]}:{_LIGHT[m[2]]};{m[1]}:var(--{m[2]})"
