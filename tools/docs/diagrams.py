"""Draws the diagrams of the documents: `python3 tools/docs/diagrams.py` writes docs/figures/{journey,age,place}.svg.

The same source gives the same bytes, and `make docs-check` fails if a file differs. Colours follow the reader's
scheme, light or dark. A new diagram takes a function that returns its SVG, and an entry in DIAGRAMS.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[2] / "docs/figures"
STYLE = """
  .box { fill: #eef4fb; stroke: #2b6cb0; } .law { fill: #2b6cb0; } .line { stroke: #444; fill: none; }
  .mean { stroke: #c05621; stroke-dasharray: 5 4; fill: none; } .age { stroke: #2b6cb0; stroke-width: 2; fill: none; }
  text { font: 14px sans-serif; fill: #222; text-anchor: middle; } .small { font-size: 12px; fill: #555; }
  .head { fill: #444; } .left { text-anchor: start; }
  @media (prefers-color-scheme: dark) {
    .box { fill: #1d2b3a; stroke: #63b3ed; } .law { fill: #63b3ed; } .line { stroke: #bbb; } .mean { stroke: #f6ad55; }
    .age { stroke: #63b3ed; } text { fill: #eee; } .small { fill: #bbb; } .head { fill: #bbb; }
  }
"""
ARROW = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
ARROW += '<path class="head" d="M0 0 8 4 0 8z"/></marker>'


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    return "\n".join([head, f"<title>{title}</title>", f"<style>{STYLE}</style>", f"<defs>{ARROW}</defs>", *parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{words}</text>'


def box(x: float, y: float, width: float, height: float, *lines: str) -> str:
    middle = y + height / 2 + 5 - 9 * (len(lines) - 1)
    words = [text(x + width / 2, middle + 18 * at, line, "small" if at else "") for at, line in enumerate(lines)]
    return "\n".join([f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>', *words])


def arrow(points: str) -> str:
    return f'<polyline class="line" points="{points}" marker-end="url(#head)"/>'


def journey() -> str:
    stops = [("source", "how often"), ("host", "which first"), ("path", "which network"), ("link", "physics"),
             ("router", "send or drop"), ("wlan", "frame size"), ("receiver", "how much")]
    parts: list[str] = []
    for at, (stop, question) in enumerate(stops):
        x = 10 + 124 * at
        parts.append(box(x, 20, 100, 52, stop, question))
        if at:
            parts.append(arrow(f"{x - 24},46 {x - 2},46"))
    parts += [arrow("804,72 804,110 60,110 60,74"), text(432, 104, "acks and reports", "small")]
    return svg(864, 124, "An update passes seven stops; acks and reports return to the source", parts)


def age() -> str:
    # Each update: when it is generated, and when it arrives, in units of 40 px.
    updates = [(0.0, 1.0), (3.0, 4.5), (6.5, 7.5), (8.5, 11.0), (12.0, 13.0)]
    left, floor, scale = 60, 190, 40
    points = [(left + scale, floor - scale)]
    for (before, _), (generated, arrived) in zip(updates, updates[1:]):
        x = left + scale * arrived
        points += [(x, floor - scale * (arrived - before)), (x, floor - scale * (arrived - generated))]
    area = sum((b[0] - a[0]) * (2 * floor - a[1] - b[1]) / 2 for a, b in zip(points, points[1:]))
    mean = floor - area / (points[-1][0] - points[0][0])
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    parts = [arrow(f"{left},{floor} 630,{floor}"), arrow(f"{left},{floor} {left},10"), text(620, 212, "time"),
             text(30, 24, "age"), f'<polyline class="age" points="{line}"/>',
             f'<line class="mean" x1="{left}" y1="{mean:.1f}" x2="610" y2="{mean:.1f}"/>', text(614, mean + 16, "mean")]
    for generated, arrived in updates[1:]:
        parts.append(arrow(f"{left + scale * generated:g},{floor} {left + scale * arrived:g},{floor - scale * (arrived - generated):g}"))
        parts.append(text(left + scale * generated, 208, "sampled", "small"))
    return svg(660, 224, "The age of the newest state grows by one second each second, and falls when an update arrives", parts)


def place() -> str:
    parts = [box(10, 20, 150, 60, "your program", "samples state"), box(220, 20, 150, 60, "freshline source", "finds the rate"),
             box(470, 20, 160, 60, "freshline monitor", "holds the newest"), box(690, 20, 150, 60, "your program", "reads fresh state"),
             arrow("160,50 218,50"), arrow("370,40 468,40"), arrow("470,62 372,62"), arrow("630,50 688,50"),
             text(420, 32, "updates", "small"), text(420, 80, "acks", "small"),
             text(420, 108, "any network: UDP or QUIC, without synchronised clocks", "small")]
    return svg(850, 120, "Freshline is between the program that samples state and the program that reads it", parts)


DIAGRAMS: dict[str, Callable[[], str]] = {"journey.svg": journey, "age.svg": age, "place.svg": place}


def outdated() -> list[str]:
    """A line for each file that is not up to date."""
    found: list[str] = []
    for name, draw in DIAGRAMS.items():
        path = FIGURES / name
        if not path.is_file() or path.read_text(encoding="utf-8") != draw():
            found.append(f"docs/figures/{name}: is not up to date; run tools/docs/diagrams.py")
    return found


if __name__ == "__main__":
    for file, drawing in DIAGRAMS.items():
        (FIGURES / file).write_text(drawing(), encoding="utf-8")
