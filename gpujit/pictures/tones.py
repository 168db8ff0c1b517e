"""Colours of groups and tiers, where a drawing cannot take them from a style sheet; the same as in ``svg``."""

from __future__ import annotations

# Hues of groups, in degrees.
HUES = (210, 30, 130, 280, 55, 340, 175, 95)
GROUP_FILLS = ("#dbe9fb", "#fbe9db", "#dbfbe0", "#efdbfb", "#fbf8db", "#fbdbe6", "#dbfbf8", "#e9fbdb")
# What runs a node, for a legend.
TIER_NAMES = {
    "tier-native-template": "native template",
    "tier-native-kernel": "native kernel",
    "tier-native-copy": "native copy",
    "tier-view": "view",
    "tier-control": "control",
    "tier-merged": "in a neighbour's step",
    "tier-out": "out",
    "tier-numpy": "numpy",
    "tier-interpreter": "interpreter",
}
# Its colour, by its tag: from native code to the interpreter.
TIER_COLOURS = {
    "tier-native-template": "#259b46",
    "tier-native-kernel": "#3f9bd9",
    "tier-native-copy": "#8c959f",
    "tier-view": "#8c959f",
    "tier-out": "#d98a18",
    "tier-numpy": "#d98a18",
    "tier-interpreter": "#dc3c3c",
}
