"""Draws one HTML page that needs nothing else: well-formed XML, plots as inline SVG, no script. The sentence on the bottleneck comes first."""

from __future__ import annotations

from itertools import groupby

from ._markup import Markup, colors_style, element, join
from ._parts import Figures, counted, fastest, heading, note, note_row, rate_table, row, short, size, spread, table
from ._plots import Line, Plot, Point, draw_lines, draw_shares
from ._rivals import object_epochs, object_rivals, rivals_section, shard_rival_lines, shard_rival_table, spread_point

STYLE = (
    """
:root { color-scheme: light dark; }
"""
    + colors_style()
    + """
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 52rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.1rem; color: var(--soft); font-weight: 600; margin-bottom: .3rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; } h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
.limit { font-size: 1.35rem; line-height: 1.4; margin: 0 0 1.2rem; }
.beside { margin: 0 0 1.2rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .6rem; }
.tile { background: var(--band); border-radius: .4rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.5rem; font-weight: 600; }
.tile span, p.note, td.note { color: var(--soft); font-size: .875rem; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .45rem; border-bottom: 1px solid var(--grid); vertical-align: top; }
th:first-child, td:first-child, td.note { text-align: left; }
td:first-child, div.wide td { white-space: nowrap; }
div.wide { overflow-x: auto; }
svg { width: 100%; height: auto; display: block; margin: .4rem 0; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .grid { stroke: var(--grid); } svg polyline { fill: none; }
svg g.line-0 { stroke: var(--main); stroke-width: 2; } svg g.line-1 { stroke: var(--other); stroke-width: 2; }
svg g.line-2 { stroke: var(--third); stroke-width: 2; } svg g.line-3 { stroke: var(--fourth); stroke-width: 2; }
svg .line-0 circle, svg text.line-0 { fill: var(--main); } svg .line-1 circle, svg text.line-1 { fill: var(--other); }
svg .line-2 circle, svg text.line-2 { fill: var(--third); } svg .line-3 circle, svg text.line-3 { fill: var(--fourth); }
svg line.reference { stroke: var(--ink); stroke-dasharray: 6 4; } svg text.reference { fill: var(--ink); }
svg text.reference, svg text.line-0, svg text.line-1, svg text.line-2, svg text.line-3 { paint-order: stroke;
  stroke: var(--paper); stroke-width: 4px; }
svg .bar { fill: var(--bar); } svg .ours { fill: var(--main); } svg .spread { stroke: var(--ink); stroke-width: 1.5; }
svg text.share { fill: #fff; font-weight: 600; }
.share-0 { fill: #5c4d9c; } .share-1 { fill: #7a7a7a; } .share-2 { fill: #94611d; } .share-3 { fill: #b3541e; }
.share-4 { fill: #a8323e; } .share-5 { fill: #7d2f6e; } .share-6 { fill: #4f6b1d; } .share-7 { fill: #0b6e99; }
.share-8 { fill: #2f7d5b; }
"""
)


def _rate_point(x: float, text: str, point: Figures) -> Point:
    return spread_point(x, text, point["samples_per_second"])


def _head(report: Figures, best: Figures | None) -> Markup:
    page, where, data = report["page"], report["environment"], report["data"]
    head = [
        heading("millrace bench: how fast this machine makes batches for a training", 1),
        join([element("p", report["limit"], class_="limit"), "\n"]),
    ]
    if page["beside"]:
        head.append(join([element("p", page["beside"], class_="beside"), "\n"]))
    if best is None:
        return join(head)
    middle = {
        name: figure["median"] for name, figure in best.items() if isinstance(figure, dict) and "median" in figure
    }
    cpu = middle["cpu_seconds_per_1000_samples"]
    tiles = [
        (short(middle["samples_per_second"]), f"samples/s, decoded by {counted(best['threads'], 'thread')}"),
        (short(best["samples_per_second_per_vcpu"]), "samples/s for each vCPU"),
        (short(middle["bytes_per_second"] / 1e6), "MB/s from the store"),
        (short(cpu), "CPU-seconds for 1,000 samples"),
        (short(1000 / cpu if cpu > 0 else 0), "samples/s of a CPU that does nothing else"),
    ]
    if middle["model_busy"] > 0:
        tiles.append((f"{100 * middle['model_busy']:.1f} %", "of the time the model was busy"))
    tiles.append((size(best["peak_rss_bytes"]), "peak resident memory"))
    if report["prices"]["apply"]:
        tiles.append((page["epoch_price"], "requests of an epoch"))
    else:
        tiles.append((short(best["epoch_requests"]["GET"]), "reads for an epoch"))
    shown = [element("div", element("b", value), element("span", what), class_="tile") for value, what in tiles]
    what = data["description"] or data["uri"]
    told = f"{what}; {where['cpu']}, {counted(where['vcpus'], 'vCPU')}; {where['date']}."
    return join([*head, element("div", *shown, class_="tiles"), "\n", note(told)])


def _rate_section(report: Figures, points: list[Figures]) -> Markup:
    cpus, settings, published = report["environment"]["vcpus"], report["settings"], report["published"]
    each = f"for each of {counted(cpus, 'vCPU')} (published)"
    plot = Plot(
        "Samples per second against decoding threads",
        "decoding threads",
        "samples/s",
        [Line(points=[_rate_point(point["threads"], str(point["threads"]), point) for point in points])],
        [(rate * cpus, f"{rate:.0f} {each}") for rate in published["samples_per_second_per_vcpu"]],
    )
    model = settings["step_ms"]
    return join(
        [
            heading(f"Rate with a model of {model:.4g} ms a step" if model > 0 else "Maximum rate without a model"),
            draw_lines(plot),
            rate_table(points),
            note(
                f"Marks are medians of {counted(settings['repeats'], 'repeat')}, bars reach from the least to the most. "
                f"Dashed lines: {published['source']}. Other processors and images give other numbers."
            ),
        ]
    )


def _stall_section(report: Figures, best: Figures) -> Markup:
    stalls: dict[str, float] = best["stalls"]
    waited = sum(stalls.values())
    rows = [
        row([name, f"{seconds:.3f} s", f"{100 * seconds / waited:.1f} %"])
        for name, seconds in stalls.items()
        if seconds >= 0.0005
    ]
    most = "" if report["settings"]["step_ms"] > 0 else ", which without a model is nearly all of it"
    return join(
        [
            heading("What the consumer waited for"),
            draw_shares("Waiting by cause", stalls),
            note(f"It waited {waited:.1f} of {best['seconds']:.1f} s{most}. The largest cause is what limits."),
            table(["cause", "seconds", "share"], rows),
        ]
    )


def _latency_section(report: Figures) -> Markup:
    page = report["page"]
    times: list[float] = page["batch_ms_percentiles"]
    if page["batches"] == 0:
        return Markup()
    points = [Point(at, ms, 0, 0, "" if at % 25 else f"{at} %") for at, ms in enumerate(times)]
    title, x_name = "Time between batches by the share of batches", "share of batches that took no longer"
    return join(
        [
            heading(f"Time between batches of {report['settings']['batch']}"),
            draw_lines(Plot(title, x_name, "ms", [Line(points=points)])),
            note(f"Half of {page['batches']} batches came within {times[50]:.1f} ms, 99 % within {times[99]:.1f} ms."),
        ]
    )


def _order_section(report: Figures, scenario: Figures) -> Markup:
    points: list[Figures] = scenario["points"]
    lines = [
        Line(name, [_rate_point(point["threads"], str(point["threads"]), point) for point in group])
        for name, group in groupby(points, key=lambda point: "raw" if point["raw"] else str(point["shuffle"]))
    ]
    title = "Samples per second against decoding threads, by order"
    return join(
        [
            heading("Random and sequential order"),
            draw_lines(Plot(title, "decoding threads", "samples/s", lines)),
            rate_table(points),
            *(note(f"{text}.") for text in report["page"]["order_ratios"]),
            note(
                "none: as the samples are stored; window: shuffled within windows, the default; global: each sample "
                "anywhere; raw: the same, with the images as raw objects, so that each is a request of its own. "
                + report["page"]["orders_note"]
            ),
            object_rivals(scenario, fastest(point for point in points if point["raw"])),
        ]
    )


def _epoch_section(scenario: Figures) -> Markup:
    without, kept = scenario["without_cache"], scenario["with_cache"]
    lines = [
        Line(name, [Point(i, epoch["requests"]["GET"], 0, 0, str(i)) for i, epoch in enumerate(epochs, 1)])
        for name, epochs in (("without a cache", without), ("with a cache", kept))
    ]
    rows = [
        row([f"epoch {number}", *(cell for cost in pair for cell in (short(cost["seconds"]), cost["requests"]["GET"]))])
        for number, pair in enumerate(zip(without, kept), 1)
    ]
    return join(
        [
            heading("Epochs with and without a cache on the local disk"),
            draw_lines(Plot("GET requests of each epoch, with and without a cache", "epoch", "GET requests", lines)),
            table(["", "seconds without", "GETs without", "seconds with", "GETs with"], rows),
            note("Requests ahead for a later epoch count in the epoch in which they are made."),
            object_epochs(scenario),
        ]
    )


def _shard_section(scenario: Figures) -> Markup:
    points: list[Figures] = scenario["points"]
    ours = Line("millrace", [_rate_point(one["shard_bytes"], size(one["shard_bytes"]), one) for one in points])
    title, x_name = "Samples per second against the size of a shard", "size of a shard"
    return join(
        [
            heading("Sequential reading against the size of a shard"),
            draw_lines(Plot(title, x_name, "samples/s", [ours, *shard_rival_lines(scenario)], log_x=True)),
            rate_table(points),
            shard_rival_table(scenario),
        ]
    )


def _requests(tally: Figures) -> list[object]:
    return [tally["GET"], tally["LIST"], tally["HEAD"]]


def _first_batch_section(scenario: Figures) -> Markup:
    points, downloads = scenario["points"], scenario["downloads"]

    def line(name: str, found: list[Figures], figure: str) -> Line:
        return Line(name, [spread_point(one["data_samples"], short(one["data_samples"]), one[figure]) for one in found])

    lines = [line("millrace", points, "first_batch_seconds")]
    files: list[str] = []
    if downloads:
        lines.append(line("File mode", downloads, "seconds"))
        rows = [row([counted(one["data_samples"], "sample"), spread(one["seconds"])]) for one in downloads]
        files = [
            table(["File mode", "seconds"], rows),
            note(
                "File mode: a training that begins when all objects have been copied to files, which is done here by "
                "Millrace, many at a time, and without the time to its first batch."
            ),
        ]
    rows = [
        row(
            [
                point["name"],
                spread(point["first_batch_seconds"]),
                spread(point["open_seconds"]),
                *_requests(point["requests"]),
            ]
        )
        for point in points
    ]
    title = "Time to the first batch against the samples of the data set"
    return join(
        [
            heading("Time to the first batch"),
            draw_lines(Plot(title, "samples of the data set", "seconds", lines)),
            table(["", "seconds", "of it, opening", "GET", "LIST", "HEAD"], rows),
            note("Requests are all until the first batch had come, with those ahead for later ones."),
            *files,
        ]
    )


def _resume_section(scenario: Figures) -> Markup:
    rows = [
        row(
            [
                point["name"],
                spread(point["first_batch_seconds"]),
                *_requests(point["requests"]),
                size(point["requests"]["bytes_read"]),
            ]
        )
        for point in scenario["points"]
    ]
    exact = Markup() if scenario["exact"] else join([element("b", "not"), " "])
    return join(
        [
            heading("Resuming in the middle of an epoch"),
            table(["first batch", "seconds", "GET", "LIST", "HEAD", "bytes"], rows),
            note(
                "Requests and bytes count everything until the batch had come, including reads ahead for later batches. "
                "The samples after the interruption were ",
                exact,
                "those that would have come without it.",
            ),
        ]
    )


def _storm_section(scenario: Figures) -> Markup:
    rows = [
        row(
            [name, short(cost["seconds"]), short(cost["cpu_seconds"])]
            + [cost["requests"][key] for key in ("GET", "retries", "hedges")]
        )
        for name, cost in (("calm", scenario["calm"]), ("storm", scenario["storm"]))
    ]
    came = counted(scenario["storm"]["samples"], "sample")
    same = (
        ["every byte was right"] if scenario["same_bytes"] else ["they were ", element("b", "not"), " the same bytes"]
    )
    return join(
        [
            heading("An epoch while the store fails"),
            table(["", "seconds", "CPU-s", "GETs", "retries", "hedges"], rows),
            note(f"Faults: {'; '.join(scenario['faults'])}. All {came} came, and ", *same, "."),
        ]
    )


def _request_section(report: Figures, best: Figures) -> Markup:
    page, prices = report["page"], report["prices"]
    rows = [
        row([name, *_requests(tally), tally["retries"], size(tally["bytes_read"]), price if prices["apply"] else "-"])
        for name, tally, price in (
            ("opening", best["opening"]["requests"], page["opening_price"]),
            ("one epoch", best["epoch_requests"], page["epoch_price"]),
        )
    ]
    measured = sum(window["samples"] for window in best["windows"])
    told = (
        f"The epoch of {counted(best['data_samples'], 'sample')} is extrapolated from {measured} that were measured. "
    )
    if prices["apply"]:
        told += f"Prices: {prices['from']}, {prices['region']}, of {prices['date']}; --prices FILE replaces them."
    else:
        told += "This store charges no requests."
    head = ["", "GET", "LIST", "HEAD", "retries", "bytes", "price"]
    return join([heading("Requests"), table(head, rows), note(told)])


def _environment_section(report: Figures) -> Markup:
    data, where, settings, page = report["data"], report["environment"], report["settings"], report["page"]
    pixels = f"{settings['size']} x {settings['size']} pixels"
    augment = ", random crop and flip" if settings["augment"] else ", center crop"
    lines = {
        "data": f"{data['uri']}: {data['description']}" if data["description"] else data["uri"],
        "store": data["store"],
        "damaged": page["damaged"],
        "CPU": f"{where['cpu']}, {counted(where['vcpus'], 'vCPU')} usable",
        "GPU": page.get("gpus", ""),
        "memory": size(where["memory_bytes"]),
        "kernel": where["kernel"],
        "program": f"millrace {report['version']}, {where['compiler']}",
        "date": where["date"],
        "pipeline": f"batches of {settings['batch']}, {pixels}{augment}, {counted(settings['io_threads'], 'thread')} for "
        f"the network, {size(settings['memory_bytes'])} of memory",
        "method": f"for each setting {settings['warm_up_seconds']:.1f} s of warm-up, then "
        f"{counted(settings['repeats'], 'repeat')} of {settings['window_seconds']:.1f} s or more of the same running "
        "pipeline; epochs follow one another without a pause; those of the orders take turns, each with a warm-up",
    }
    optional = ("store", "damaged", "GPU")
    rows = [note_row(name, text) for name, text in lines.items() if text or name not in optional]
    return join([heading("Where and how"), table([], rows)])


def draw_page(report: Figures) -> str:
    """Draws the page. ``report``: what `millrace bench --json` prints, and below ``page`` what only the page shows."""
    scenarios: Figures = report["scenarios"]
    sections: list[Markup] = []
    rates, orders, shards = (scenarios.get(name, {}).get("points", []) for name in ("d", "a", "c"))
    best = fastest(rates or orders or shards)
    if rates:
        sections.append(_rate_section(report, rates))
    if best is not None:
        sections += [_stall_section(report, best), _latency_section(report)]
    if orders:
        sections.append(_order_section(report, scenarios["a"]))
    for name, section in (
        ("b", _epoch_section),
        ("c", _shard_section),
        ("e", _first_batch_section),
        ("f", _resume_section),
        ("g", _storm_section),
    ):
        if name in scenarios:
            sections.append(section(scenarios[name]))
    sections.append(rivals_section(report, best))
    if best is not None:
        sections.append(_request_section(report, best))
    body = join([_head(report, best), *sections, _environment_section(report)])
    head = [
        Markup('<meta charset="utf-8"/>\n<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'),
        element("title", f"millrace bench: {report['data']['uri']}"),
        Markup(f"\n<style>{STYLE}</style>\n"),
    ]
    page = [Markup("\n"), element("head", Markup("\n"), *head), Markup("\n"), element("body", Markup("\n"), body)]
    return (
        f"<!DOCTYPE html>\n{element('html', *page, Markup(chr(10)), lang='en', xmlns='http://www.w3.org/1999/xhtml')}\n"
    )
