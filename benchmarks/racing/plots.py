"""Plots as SVG: lines over an axis, or bars in groups. The axis that goes up is logarithmic: they differ by powers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from racing.contestants import BEFORE, KEEPING_OR_NOT, ON_POSTGRES

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 80, 200, 50, 60
COLOURS = {contestant.name: contestant.colour for contestant in (*KEEPING_OR_NOT, BEFORE, *ON_POSTGRES)}

Points = Sequence[tuple[float, float]]


# For lines that are no contestants'.
OTHER_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#17becf")


def over_time(title: str, across: str, series: Mapping[str, Points]) -> str:
    """A line for each of the *series*, whose names say what they count."""
    colours = dict(zip(series, OTHER_COLOURS, strict=False))
    return lines(title, across, "", series, log_across=False, colours=colours)


def lines(
    title: str,
    across: str,
    up: str,
    series: Mapping[str, Points],
    *,
    log_across: bool = True,
    colours: Mapping[str, str] = COLOURS,
) -> str:
    """A line for each of the *series*. What follows a comma in its name tells lines of one contestant apart."""
    known = {name: [(x, y) for x, y in points if y > 0] for name, points in series.items()}
    every_x = sorted({x for points in known.values() for x, _ in points}) or [1.0]
    low, high = _decades([y for points in known.values() for _, y in points])
    start, end = (math.log10(every_x[0]), math.log10(every_x[-1])) if log_across else (every_x[0], every_x[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        along = ((math.log10(x) if log_across else x) - start) / ((end - start) or 1)
        return LEFT + along * (WIDTH - LEFT - RIGHT), _height(y, low, high)

    marks = every_x if len(every_x) <= 8 else [every_x[round(i * (len(every_x) - 1) / 5)] for i in range(6)]
    drawn = [_text(place(x, 10**low)[0], HEIGHT - BOTTOM + 18, _number(x), "middle") for x in marks]
    for number, (name, points) in enumerate(known.items()):
        of_contestant = name not in colours
        colour = colours[name.partition(",")[0] if of_contestant else name]
        dash = ' stroke-dasharray="5 3"' if of_contestant else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if len(points) <= 8:
            dots = [place(*point) for point in points]
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in dots]
        drawn += _legend(number, name, colour)
    return _frame(title, across, up, low, high, drawn)


def bars(title: str, up: str, groups: Mapping[str, Mapping[str, float | None]]) -> str:
    """For each group, a bar for each contestant."""
    low, high = _decades([y for group in groups.values() for y in group.values() if y])
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    breadth = room * 0.8 / len(names)
    drawn = []
    for number, (label, group) in enumerate(groups.items()):
        drawn.append(_text(LEFT + (number + 0.5) * room, HEIGHT - BOTTOM + 18, label, "middle"))
        for name, y in group.items():
            if y:
                x, top = LEFT + number * room + room * 0.1 + names.index(name) * breadth, _height(y, low, high)
                size = f'width="{breadth * 0.9:.1f}" height="{HEIGHT - BOTTOM - top:.1f}"'
                drawn.append(f'<rect x="{x:.1f}" y="{top:.1f}" {size} fill="{COLOURS[name]}"/>')
                drawn.append(_text(x + breadth * 0.45, top - 4, _number(y), "middle", 9))
    for number, name in enumerate(names):
        drawn += _legend(number, name, COLOURS[name])
    return _frame(title, "", up, low, high, drawn)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    if not values:
        return 0, 1
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def _height(y: float, low: int, high: int) -> float:
    return HEIGHT - BOTTOM - (math.log10(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(number: int, name: str, colour: str) -> list[str]:
    x, y = WIDTH - RIGHT + 16, TOP + 10 + number * 20
    return [f'<rect x="{x}" y="{y - 9}" width="12" height="10" fill="{colour}"/>', _text(x + 18, y, name)]


def _frame(title: str, across: str, up: str, low: int, high: int, drawn: Sequence[str]) -> str:
    grid = []
    for power in range(low, high + 1):
        y = _height(10.0**power, low, high)
        grid.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        grid.append(_text(LEFT - 8, y + 4, _number(10.0**power), "end"))
    words = [
        _text(LEFT, 26, title, size=15),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, across, "middle"),
        f'<g transform="rotate(-90 16 {HEIGHT / 2})">{_text(16, HEIGHT / 2, up, "middle")}</g>',
    ]
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    body = "\n".join([*grid, *drawn, *words])
    back = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n{back}\n{body}\n</svg>\n'
