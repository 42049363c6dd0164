"""This module has the sections of the page about other loaders."""

from __future__ import annotations

from itertools import groupby

from ._markup import Markup, join
from ._parts import Figures, counted, heading, note, note_row, rate, row, short, size, spread, table
from ._plots import Bar, Line, Plot, Point, draw_bars, draw_lines

MOST_LINES = 4  # of a plot


def name_of(rival: Figures) -> str:
    if "with_cache" in rival:
        return f"{rival['name']}, with a cache" if rival["with_cache"] else str(rival["name"])
    if "shard_bytes" in rival:
        return f"{rival['name']}, {size(rival['shard_bytes'])} shards"
    return f"{rival['name']}, {counted(rival['workers'], 'worker')}"


def spread_point(x: float, text: str, figure: Figures) -> Point:
    return Point(x, figure["median"], figure["least"], figure["most"], text)


def _lines(rivals: list[Figures], x: str) -> list[Line]:
    """Returns a line for each loader that has figures, by name."""
    measured = sorted((rival for rival in rivals if "left_out" not in rival), key=lambda rival: str(rival["name"]))
    write = size if x == "shard_bytes" else str
    return [
        Line(name, [spread_point(one[x], write(one[x]), one["samples_per_second"]) for one in group])
        for name, group in groupby(measured, key=lambda rival: str(rival["name"]))
    ]


def _worker_plots(title: str, rivals: list[Figures], ours: Figures) -> Markup:
    """Returns curves against the number of workers, if there are several. If a loader was left out from some number on, its curve ends there."""
    # The numbers below the axis are those of the first line, which has all of the others.
    lines = sorted(_lines(rivals, "workers"), key=lambda line: -len(line.points))
    if not lines or len(lines[0].points) < 2:
        return Markup()
    beside = [(rate(ours), f"millrace, one process with {counted(ours['threads'], 'thread')}")]
    x_name = "worker processes, or threads that decode"
    return join(
        draw_lines(Plot(title, x_name, "samples/s", lines[at : at + MOST_LINES], beside, log_x=True))
        for at in range(0, len(lines), MOST_LINES)
    )


def _bars(rivals: list[Figures], ours: Figures) -> Markup:
    """Returns bars for Millrace and the others that have figures, the best first."""
    measured = [{**ours, "name": "millrace"}, *(rival for rival in rivals if "left_out" not in rival)]
    if len(measured) == 1:
        return Markup()

    def bars(figure: str, order: int) -> list[Bar]:
        sorted_by = sorted(measured, key=lambda one: order * one[figure]["median"])
        found: list[Bar] = []
        for one in sorted_by:
            middle, least, most = (one[figure][key] for key in ("median", "least", "most"))
            found.append(Bar(one["name"], middle, least, most, short(middle), one["name"] == "millrace"))
        return found

    return join(
        [
            note("Samples a second: more is better."),
            draw_bars("Samples per second of Millrace and of other loaders", bars("samples_per_second", -1)),
            note("CPU-seconds for 1,000 samples: less is better."),
            draw_bars("CPU-seconds of Millrace and of other loaders", bars("cpu_seconds_per_1000_samples", 1)),
        ]
    )


def _cells(name: str, one: Figures, ours: Figures) -> list[str]:
    share = rate(one) / rate(ours) if rate(ours) > 0 else 0
    return [name, spread(one["samples_per_second"]), f"{share:.2f}", spread(one["cpu_seconds_per_1000_samples"])]


def _curve_table(pairs: list[tuple[Figures, Figures]]) -> Markup:
    """Returns the table of the curves, in which each loader has the figures of Millrace beside it."""
    rows = [
        note_row(name_of(rival), f"left out: {rival['left_out']}", 3)
        if "left_out" in rival
        else row(_cells(name_of(rival), rival, ours))
        for rival, ours in pairs
    ]
    return table(["", "samples/s", "of Millrace's", "CPU-s per 1,000"], rows, wide=True)


def rivals_section(report: Figures, best: Figures | None) -> Markup:
    """Returns the section on other loaders over the data set of the report."""
    rivals: list[Figures] = report.get("rivals", [])
    if not rivals or best is None:
        return Markup()
    rates = [row([*_cells("millrace", best, best), short(report["page"]["own_first_batch_seconds"])])]
    notes: list[Markup] = []
    seen: set[str] = set()
    for rival in rivals:
        if "left_out" in rival:
            notes.append(note_row(name_of(rival), f"left out: {rival['left_out']}"))
            continue
        rates.append(row([*_cells(name_of(rival), rival, best), short(rival["first_batch_seconds"])]))
        if rival["name"] not in seen:
            versions = ", ".join(f"{package} {version}" for package, version in rival["versions"].items())
            notes.append(note_row(rival["name"], versions))
        seen.add(rival["name"])
    by_workers = _worker_plots("Samples per second of other loaders against their workers", rivals, best)
    return join(
        [
            heading("Other loaders over the same data"),
            by_workers or _bars(rivals, best),
            table(["", "samples/s", "of Millrace's", "CPU-s per 1,000", "first batch, s"], rates, wide=True),
            note(
                "Each decodes, crops, flips and resizes the same images in processes of its own, one loader after the "
                "other. The number of its images and the mean of their pixels were compared with Millrace's. The rate "
                f"includes the time to begin an epoch, which has {counted(best['data_samples'], 'sample')} here. "
                "With few samples, this time counts much."
            ),
            table([], notes),
        ]
    )


def object_rivals(scenario: Figures, ours: Figures | None) -> Markup:
    """Returns the section on other loaders over the raw objects of scenario a, by their workers."""
    rivals: list[Figures] = scenario.get("rivals", [])
    if not rivals or ours is None:
        return Markup()
    title = "Samples per second of other loaders over raw objects against their workers"
    return join(
        [
            heading("Other loaders over the same raw objects, at random", 3),
            _worker_plots(title, rivals, ours),
            _curve_table([(rival, ours) for rival in rivals]),
            note(
                "A worker waits for each object, so that few of them leave the CPUs idle; with many it is the CPUs "
                "that limit. Millrace has many requests in flight from one thread for the network."
            ),
        ]
    )


def object_epochs(scenario: Figures) -> Markup:
    """Returns the section on epochs over the raw objects of scenario b, including Millrace's."""
    loaders: list[Figures] = scenario.get("raw_objects", [])
    if not loaders:
        return Markup()
    measured = [one for one in loaders if "left_out" not in one]
    count = len(loaders[0]["epochs"])
    lines = [
        Line(name_of(one), [Point(i, epoch["seconds"], 0, 0, str(i)) for i, epoch in enumerate(one["epochs"], 1)])
        for one in measured[:MOST_LINES]  # Millrace and the first of the others, each without and with a cache
    ]
    rows = [
        note_row(name_of(one), f"left out: {one['left_out']}", count)
        if "left_out" in one
        else row([name_of(one), *(short(epoch["seconds"]) for epoch in one["epochs"])])
        for one in loaders
    ]
    title = "Seconds of each epoch over raw objects, without and with a cache"
    return join(
        [
            heading("Epochs over raw objects, at random", 3),
            draw_lines(Plot(title, "epoch", "seconds", lines)),
            table(["", *(f"epoch {number}, s" for number in range(1, count + 1))], rows),
            note(
                "Each object is a request. With a cache, what was read stays on the local disk: by Millrace's cache, by "
                "fsspec's simplecache (dataloader), and by the caches of the mounts. The others have "
                f"{counted(loaders[-1]['workers'], 'worker')} each, and Millrace one process."
            ),
        ]
    )


def shard_rival_lines(scenario: Figures) -> list[Line]:
    """Returns a line for each loader over the shards of scenario c."""
    return _lines(scenario.get("rivals", []), "shard_bytes")


def shard_rival_table(scenario: Figures) -> Markup:
    rivals: list[Figures] = scenario.get("rivals", [])
    ours = {point["shard_bytes"]: point for point in scenario["points"]}
    pairs = [(rival, ours[rival["shard_bytes"]]) for rival in rivals if rival["shard_bytes"] in ours]
    if not pairs:
        return Markup()
    workers = counted(rivals[0]["workers"], "worker")
    return join(
        [
            _curve_table(pairs),
            note(f"The others have {workers} each, and shuffle through a buffer of 1,000 samples."),
        ]
    )
