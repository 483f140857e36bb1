"""Tables of measurements: on the screen, and one markdown file for each device."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from harness.benchmarks import figures
from harness.benchmarks.cells import OURS, PUBLISHED, Cell
from harness.benchmarks.figures import BAND, BASE_WAY, Way
from harness.benchmarks.measurement import KINDS, WHOLE_MODELS, Measurement, load, slug
from harness.benchmarks.targets import outcomes
from harness.errors import ExecutionError

KIND_TITLES = {
    "head": "Head, forward and backward pass",
    "step": "Whole training step",
    "eval": "Evaluation, forward pass without gradients",
    "inference": "Inference of a whole GPT-2, 4 sequences, forward with loss",
    "memory": "Peak extra memory of one head step",
}
UNITS = {"head": "ms", "step": "ms", "eval": "ms", "inference": "ms", "memory": "MiB"}
# Printed by the multi-facet poster for GPT-2 small, table 1 (results/published/chang2022.csv): ms over its softmax's 84
PRINTED_OVER_SOFTMAX = {"poster-mos3": 130 / 84, "mfs-inputs": 138 / 84}
WHOLE_STEPS = "bf16, tf32: baselines run under autocast or in tf32 as a whole, ours keeps the backbone in float32."
ALONE = "products alone"
Row = list[str]


def title(measured: Measurement) -> str:
    """Return the title of a table, with a flag if the machine was shared."""
    sizes = f"{measured.setting}: N = {measured.tokens:,}, d = {measured.width}, V = {measured.vocab:,}"
    graph = ", CUDA graph" if measured.graph else ""
    backbone = f", {measured.backbone}" if measured.kind == "step" else ""
    flag = f" (CONTENDED: {'; '.join(measured.contended)})" if measured.contended else ""
    return f"{KIND_TITLES[measured.kind]}{backbone}, {sizes}{graph}, {UNITS[measured.kind]}{flag}"


def rows(measured: Measurement) -> list[Row]:
    """Return a header, and a row for each implementation and way: medians, and their ratios to the base."""
    medians, heads = measured.medians(), figures.heads(measured)
    found = [["implementation", "products", *heads]]
    for impl in figures.impls(measured):
        for way in figures.ways(measured):
            cells = [Cell(head, impl, *way) for head in heads]
            if any(cell in medians for cell in cells):
                found.append([impl, " ".join(way), *(_entry(measured, medians, cell) for cell in cells)])
    for way in figures.ways(measured):
        cells = [Cell(head, OURS, *way) for head in heads]
        if any(measured.alone(cell) is not None for cell in cells):
            found.append([ALONE, " ".join(way), *(_alone(measured, cell) for cell in cells)])
    return found


def derived(measured: Measurement) -> list[str]:
    """Return the sentences under the table."""
    found = _lacking(measured)
    if any(figures.base(measured, head) is not None for head in figures.heads(measured)):
        found.append(f"x = {PUBLISHED} {' '.join(BASE_WAY)} of the same head / this.")
    if measured.products_alone:
        found.append(f"{ALONE}: all matrix products of our step, computed one after the other; (fraction of our step).")
    if measured.kind == "memory":
        slopes = _by_way(measured, lambda way: figures.memory_slope(measured, OURS, way))
        found += [f"Growth with K, ours, in N d floats (4 bytes) a component: {slopes}."] if slopes else []
    else:
        found += _products(measured) + _linearity(measured) + _over_softmax(measured)
        compared = figures.against_fastest(measured)
        slower = {cell: pair for cell, pair in compared.items() if pair[0] > BAND}
        listed = ", ".join(
            f"{c.head} {c.precision} {c.route} ({ratio:.2f} of {name})" for c, (ratio, name) in slower.items()
        )
        if compared:
            found.append(f"Slower than a baseline of the same precision and route by over 5 %: {listed or 'none'}.")
        if measured.kind == "step" and any(cell.precision != "fp32" for cell in compared):
            found.append(WHOLE_STEPS)
    return found


def provenance(measured: Measurement) -> str:
    """Return a sentence with the machine, the versions and the date."""
    threads = "" if measured.device_type == "cuda" else f"{measured.threads} thread(s), "
    how = "a fresh process a cell" if measured.kind == "memory" else f"medians of {measured.rounds} interleaved rounds"
    return (
        f"Measured on {measured.device}, {threads}load {measured.load_average:.2f} at the start, "
        f"torch {measured.torch}, harness at {measured.commit}, {measured.started}; {how}."
    )


def _order(measured: Measurement) -> tuple:
    sizes = (-len(measured.setting), measured.setting, measured.tokens)
    return KINDS.index(measured.kind), measured.backbone != "transformer_encoder", *sizes, measured.graph


def markdown(measurements: list[Measurement]) -> str:
    """Return all tables of one device, ordered by kind, and the targets."""
    ordered = sorted(measurements, key=_order)
    parts = [
        f"# Benchmarks on {ordered[0].device}\n\nMade by `harness bench table` from the records in results/bench.\n"
    ]
    for measured in ordered:
        parts.append(f"## {title(measured)}\n\n{markdown_table(rows(measured))}\n")
        parts.append("\n".join(f"- {line}" for line in (*derived(measured), provenance(measured))) + "\n")
    aims = target_rows(ordered)
    if len(aims) > 1:
        parts.append(f"## Targets\n\n{markdown_table(aims)}\n")
    return "\n".join(parts)


def target_rows(measurements: list[Measurement]) -> list[Row]:
    """Return a header, and a row for each target that belongs to one of the measurements."""
    found = [["kind", "setting", "figure", "measured", "target", "met"]]
    for measured in measurements:
        for target, value in outcomes(measured):
            bound, verdict = f"{target.bound} {target.value:g}", "yes" if target.met(value) else "no"
            found.append([measured.kind, measured.setting, target.text, f"{value:.2f}", bound, verdict])
    return found


def screen(table: list[Row], texts: int = 2) -> Table:
    """Return a table for the terminal. The first columns are texts, the others numbers."""
    shown = Table()
    for number, name in enumerate(table[0]):
        shown.add_column(name, justify="left" if number < texts else "right", overflow="fold")
    for row in table[1:]:
        shown.add_row(*map(Text, row))
    return shown


def write(results: Path) -> list[Path]:
    """Write the markdown for every device with records in results/bench.

    Raises ExecutionError if there are no records.
    """
    records = [load(path) for path in sorted((results / "bench").glob("*/*.json"))]
    if not records:
        raise ExecutionError(f"{results / 'bench'} holds no measurements: harness bench head --save makes one")
    written = []
    for device in dict.fromkeys(record.device for record in records):
        place = results / "tables" / f"bench_{slug(device)}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(markdown([record for record in records if record.device == device]), encoding="utf-8")
        written.append(place)
    return written


def _entry(measured: Measurement, medians: dict[Cell, float], cell: Cell) -> str:
    if cell not in medians:
        return "-"
    value = medians[cell]
    shown = _shown(value)
    base = figures.base(measured, cell.head)
    return shown if base is None or value <= 0 else f"{shown} ({base / value:.2f}x)"


def _alone(measured: Measurement, cell: Cell) -> str:
    took, fraction = measured.alone(cell), figures.alone_fraction(measured, cell.head, (cell.precision, cell.route))
    return "-" if took is None or fraction is None else f"{_shown(took)} ({fraction:.2f})"


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _lacking(measured: Measurement) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in measured.cells:
        if each.lacking:
            reasons.setdefault((each.impl, each.lacking), []).append(each.head)
    if not reasons:
        return []
    heads = len(figures.heads(measured))
    shown = []
    for (impl, reason), named in reasons.items():
        different = list(dict.fromkeys(named))
        shown.append(f"{impl}: {reason}" + ("" if len(different) == heads else f" ({', '.join(different)})"))
    return [f"Not measured: {'; '.join(shown)}."]


def _products(measured: Measurement) -> list[str]:
    rates = _by_way(measured, lambda way: measured.rate(*way), "{:.0f}")
    lines = [f"Products of a chunk alone, GFLOP/s: {rates}."]
    if measured.kind in WHOLE_MODELS:
        return lines
    for way in figures.ways(measured):
        fractions = {head: figures.product_fraction(measured, head, way) for head in figures.heads(measured)}
        shown = ", ".join(f"{head} {value:.2f}" for head, value in fractions.items() if value is not None)
        lines += [f"Fraction of that rate, ours {' '.join(way)}: {shown}."] if shown else []
    return lines


def _linearity(measured: Measurement) -> list[str]:
    lines = []
    for impl in (OURS, PUBLISHED):
        shown = _by_way(measured, lambda way, impl=impl: figures.linearity(measured, impl, way))
        lines += [f"MoS-15 / (15 x Softmax), {impl}: {shown}."] if shown else []
    return lines


def _over_softmax(measured: Measurement) -> list[str]:
    """Return the ratios to the softmax, with those that the poster prints, which used the published structure."""
    if measured.kind != "inference":
        return []
    lines = []
    for impl in figures.impls(measured):
        for way in figures.ways(measured):
            ratios = figures.over_softmax(measured, impl, way)
            shown = ", ".join(
                f"{head} {ratio:.2f}"
                + (f" (poster {printed:.2f})" if (printed := PRINTED_OVER_SOFTMAX.get(head)) else "")
                for head, ratio in ratios.items()
            )
            lines += [f"Time over poster-softmax's, {impl} {' '.join(way)}: {shown}."] if shown else []
    return lines


def _by_way(measured: Measurement, figure, form: str = "{:.2f}") -> str:
    values: dict[Way, float | None] = {way: figure(way) for way in figures.ways(measured)}
    return ", ".join(f"{' '.join(way)} {form.format(value)}" for way, value in values.items() if value is not None)


def markdown_table(table: list[Row]) -> str:
    """Return a header and rows in markdown."""
    head, *body = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table]
    return "\n".join([head, "|" + "---|" * len(table[0]), *body])
