"""Plots of lines and of bars as SVG text, readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log10

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
STEPS = 5
"""Of each axis."""
BAR, BAR_LABEL = 20, 150
"""How high a bar is with its margin, and how wide the names before the bars are."""
COLORS = ("#3b7dd8", "#d9822b", "#4a9e5c", "#b0519e")
_STYLE = """
text { font: 13px sans-serif; fill: #444 }
.axis { stroke: #888; stroke-opacity: .35 }
.line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #ccc } }
"""


def lines(title: str, series: Mapping[str, Points], x_label: str, y_label: str) -> str:
    """At most four series, each with its name at its highest point; both axes begin at 0."""
    x_step, y_step = (_step(max(point[axis] for points in series.values() for point in points)) for axis in (0, 1))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title><style>{_STYLE}</style>",
        f'<text x="{LEFT}" y="22" font-weight="bold">{title}</text>',
    ]
    parts += _grid(x_step, y_step)
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{x_label}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 10}">{y_label} (upwards)</text>')
    for color, (name, points) in zip(COLORS, series.items(), strict=False):
        placed = [_place(point, x_step, y_step) for point in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        x, y = min(placed, key=lambda point: point[1])
        parts.append(f'<polyline class="line" stroke="{color}" points="{path}"/>')
        anchor = "end" if x > WIDTH / 2 else "start"
        parts.append(f'<text x="{x:.1f}" y="{y - 6:.1f}" text-anchor="{anchor}" style="fill: {color}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def bars(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Horizontal bars with their figures, in groups; the same name has the same color in each group."""
    most = max(value for group in groups.values() for value in group.values())
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    top, parts = TOP, []
    for group, values in groups.items():
        parts.append(f'<text x="{LEFT}" y="{top + 14}">{group}</text>')
        top += BAR
        for name, value in values.items():
            width = max(1.0, value / most * (WIDTH - LEFT - RIGHT - BAR_LABEL - 90))
            x, color = LEFT + BAR_LABEL, COLORS[names.index(name) % len(COLORS)]
            shown = f"{value:,.0f}" if value >= 100 else f"{value:g}"
            parts.append(f'<text x="{x - 8}" y="{top + 14}" text-anchor="end">{name}</text>')
            parts.append(f'<rect x="{x}" y="{top + 2}" width="{width:.1f}" height="{BAR - 6}" fill="{color}"/>')
            parts.append(f'<text x="{x + width + 6:.1f}" y="{top + 14}">{shown}</text>')
            top += BAR
        top += BAR // 2
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">',
        f"<title>{title}</title><style>{_STYLE}</style>",
        f'<text x="{LEFT}" y="22" font-weight="bold">{title}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>\n"])


def _grid(x_step: float, y_step: float) -> list[str]:
    parts = []
    for number in range(STEPS + 1):
        x, y = _place((number * x_step, number * y_step), x_step, y_step)
        parts.append(f'<path class="axis" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number * y_step:g}</text>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{number * x_step:g}</text>')
    return parts


def _place(point: tuple[float, float], x_step: float, y_step: float) -> tuple[float, float]:
    return (
        LEFT + point[0] / (x_step * STEPS) * (WIDTH - LEFT - RIGHT),
        HEIGHT - BOTTOM - point[1] / (y_step * STEPS) * (HEIGHT - TOP - BOTTOM),
    )


def _step(most: float) -> float:
    """A round number of which STEPS are at least `most`."""
    if most <= 0:
        return 1.0
    tens = 10.0 ** ceil(log10(most / STEPS) - 1)
    return next(tens * factor for factor in (1, 2, 2.5, 4, 5, 10) if tens * factor * STEPS >= most)
