"""What is shown and kept of measurements: their tables, one markdown file for each device, and what other benchmarks
write beside theirs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TypeVar, get_args

from harness.benchmarks import ratios, record
from harness.benchmarks.record import OURS, PUBLISHED, Cell, Kind, Measurement, Record, Rows, Way
from harness.benchmarks.settings import SETTINGS
from harness.errors import ExecutionError
from harness.machine.files import write_atomically

KIND_TITLES = {
    "head": "Head, forward and backward pass",
    "step": "Whole training step",
    "eval": "Evaluation, forward pass without gradients",
    "inference": "Inference of a whole GPT-2, 4 sequences, forward with loss",
    "memory": "Peak extra memory of one head step",
}
# Printed by the multi-facet poster for GPT-2 small, table 1 (results/published/chang2022.csv): ms over its softmax's 84
PRINTED_OVER_SOFTMAX = {"poster-mos3": 130 / 84, "mfs-inputs": 138 / 84}
WHOLE_STEPS = "bf16, tf32: baselines run under autocast or in tf32 as a whole, ours keeps the backbone in float32."
ALONE = "products alone"
Item = TypeVar("Item")


def shown(measured: Sequence[Record]) -> Iterator[str | Rows]:
    """What is to be shown of the records of one benchmark: tables, sentences, and the targets."""
    comparisons = [each for each in measured if isinstance(each, Measurement)]
    for each in measured:
        if isinstance(each, Measurement):
            yield from (title(each), rows(each), *derived(each), provenance(each))
        else:
            yield from (*each.tables(), *flags(each))
    if targets := target_rows(comparisons):
        yield targets


def keep(measured: Sequence[Record], results: Path, *, replace: bool) -> list[Path]:
    """Save records, and write their tables; return the paths. Of measurements all are saved or none. Raises
    ExecutionError when a saved measurement has more content, unless `replace`.
    """
    comparisons = {results / "bench" / each.place: each for each in measured if isinstance(each, Measurement)}
    for place, each in comparisons.items():
        if not replace and (lost := record.loses(each, place)):
            raise ExecutionError(f"--save: {lost}; nothing was saved; use --replace to save all the same")
    for place, each in comparisons.items():
        record.save(each, place)
    if comparisons:
        return write(results)
    return [place for each in measured for place in record.save_with_table(each, results)]


def listed(items: Sequence[Item], columns: Mapping[str, Callable[[Item], str]]) -> Rows:
    """A table with a row for each item, whose cells are made by the functions of the columns."""
    return [[*columns], *([cell(item) for cell in columns.values()] for item in items)]


def markdown_table(table: Rows) -> str:
    head, *body = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table]
    return "\n".join([head, "|" + "---|" * len(table[0]), *body])


def document(title: str, about: str, measured: Record, lines: Sequence[str], how: str = "") -> str:
    """The markdown of a record of its own: a title, a paragraph, its tables, sentences, and its provenance."""
    tables = [markdown_table(table) for table in measured.tables()]
    sentences = "\n".join(f"- {line}" for line in (*lines, *flags(measured), provenance(measured, how)))
    return "\n\n".join([f"# {title} on {measured.device}", about, *tables, sentences]) + "\n"


def provenance(measured: Record, how: str = "") -> str:
    """A sentence with the machine, the versions, the date, and `how` the values came to be."""
    threads = "" if measured.device_type == "cuda" else f", {measured.threads} thread(s)"
    load_average = "" if measured.load_average is None else f", load {measured.load_average:.2f} at the start"
    how = how or ("a fresh process a cell" if measured.kind == "memory" else medians(measured))
    machine = f"{measured.device}{threads}{load_average}, torch {measured.torch}"
    return f"Measured on {machine}, harness at {measured.commit}, {measured.started}; {how}."


def medians(measured: Record) -> str:
    return f"medians of {measured.rounds} interleaved rounds"


def flags(measured: Record) -> list[str]:
    """What shows that other programs used the machine, a line each."""
    return [f"CONTENDED: {flag}" for flag in measured.contended]


def title(measured: Measurement) -> str:
    """The title of a table, with a flag if the machine was shared."""
    bias = "" if SETTINGS[measured.setting].bias else ", no bias"
    sizes = f"{measured.setting}: N = {measured.tokens:,}, d = {measured.width}, V = {measured.vocab:,}{bias}"
    graph = ", CUDA graph" if measured.graph else ""
    backbone = f", {measured.backbone}" if measured.kind == "step" else ""
    flag = f" (CONTENDED: {'; '.join(measured.contended)})" if measured.contended else ""
    unit = "MiB" if measured.kind == "memory" else "ms"
    return f"{KIND_TITLES[measured.kind]}{backbone}, {sizes}{graph}, {unit}{flag}"


def rows(measured: Measurement) -> Rows:
    """A header, and a row for each implementation and way: medians, and their ratios to the base."""
    heads = measured.named("head")
    found = [["implementation", "products", *heads]]
    named = [(impl, impl, _entry, measured.medians()) for impl in measured.named("impl")]
    for name, impl, entry, values in (*named, (ALONE, OURS, _alone, measured.alone())):
        for way in measured.ways:
            cells = [Cell(head, impl, *way) for head in heads]
            if any(cell in values for cell in cells):
                shown = [entry(measured, cell, values[cell]) if cell in values else "-" for cell in cells]
                found.append([name, " ".join(way), *shown])
    return found


def derived(measured: Measurement) -> list[str]:
    """The sentences under the table."""
    found = _lacking(measured)
    if not all(isnan(measured.base(head)) for head in measured.named("head")):
        found.append(f"x = {PUBLISHED} fp32 default of the same head / this.")
    if measured.products_alone:
        found.append(f"{ALONE}: all matrix products of our step, computed one after the other; (fraction of our step).")
    if measured.kind == "memory":
        slopes = _by_way(measured, lambda way: ratios.memory_slope(measured, OURS, way))
        return found + ([f"Growth with K, ours, in N d floats (4 bytes) a component: {slopes}."] if slopes else [])
    return found + _products(measured) + _linearity(measured) + _over_softmax(measured) + _against_fastest(measured)


def markdown(measurements: list[Measurement]) -> str:
    """All tables of one device, ordered by kind, and the targets."""
    ordered = sorted(measurements, key=_order)
    about = "Made by `harness bench table` from the records in results/bench."
    parts = [f"# Benchmarks on {ordered[0].device}\n\n{about}\n"]
    for measured in ordered:
        parts.append(f"## {title(measured)}\n\n{markdown_table(rows(measured))}\n")
        parts.append("\n".join(f"- {line}" for line in (*derived(measured), provenance(measured))) + "\n")
    if targets := target_rows(ordered):
        parts.append(f"## Targets\n\n{markdown_table(targets)}\n")
    return "\n".join(parts)


def target_rows(measurements: list[Measurement]) -> Rows:
    """A header, and a row for each target that belongs to one of the measurements; [] if none does."""
    found = []
    for measured in measurements:
        for target, value in ratios.outcomes(measured):
            bound, verdict = f"{target.bound} {target.value:g}", "yes" if target.met(value) else "no"
            found.append([measured.kind, measured.setting, target.text, f"{value:.2f}", bound, verdict])
    return [["kind", "setting", "figure", "measured", "target", "met"], *found] if found else []


def write(results: Path) -> list[Path]:
    """Write the markdown for every device with records in results/bench. Raises ExecutionError without records."""
    found = [record.load(Measurement, path) for path in sorted((results / "bench").glob("*/*.json"))]
    if not found:
        raise ExecutionError(f"{results / 'bench'} holds no measurements: harness bench head --save makes one")
    written = []
    for device in dict.fromkeys(each.device for each in found):
        written.append(results / "tables" / f"bench_{record.slug(device)}.md")
        write_atomically(written[-1], markdown([each for each in found if each.device == device]).encode())
    return written


def _order(measured: Measurement) -> tuple:
    sizes = (-len(measured.setting), measured.setting, measured.tokens)
    return get_args(Kind).index(measured.kind), measured.backbone != "transformer_encoder", *sizes, measured.graph


def _entry(measured: Measurement, cell: Cell, value: float) -> str:
    base = measured.base(cell.head)
    return _shown(value) if isnan(base) or value <= 0 else f"{_shown(value)} ({base / value:.2f}x)"


def _alone(measured: Measurement, cell: Cell, value: float) -> str:
    fraction = ratios.alone_fraction(measured, cell.head, cell[2:])
    return "-" if isnan(fraction) else f"{_shown(value)} ({fraction:.2f})"


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _lacking(measured: Measurement) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in measured.cells:
        if each.lacking:
            reasons.setdefault((each.impl, each.lacking), []).append(each.head)
    every, shown = measured.named("head"), []
    for (impl, reason), named in reasons.items():
        heads = list(dict.fromkeys(named))
        shown.append(f"{impl}: {reason}" + ("" if len(heads) == len(every) else f" ({', '.join(heads)})"))
    return [f"Not measured: {'; '.join(shown)}."] if shown else []


def _products(measured: Measurement) -> list[str]:
    lines = [f"Products of a chunk alone, GFLOP/s: {_by_way(measured, measured.rate, '{:.0f}')}."]
    for way in measured.ways if measured.kind in ("head", "eval") else ():
        fractions = {head: ratios.product_fraction(measured, head, way) for head in measured.named("head")}
        shown = ", ".join(f"{head} {value:.2f}" for head, value in fractions.items() if not isnan(value))
        lines += [f"Fraction of that rate, ours {' '.join(way)}: {shown}."] if shown else []
    return lines


def _linearity(measured: Measurement) -> list[str]:
    lines = []
    for impl in (OURS, PUBLISHED):
        values = _by_way(measured, lambda way, impl=impl: ratios.linearity(measured, impl, way))
        lines += [f"MoS-15 / (15 x Softmax), {impl}: {values}."] if values else []
    return lines


def _over_softmax(measured: Measurement) -> list[str]:
    """The ratios to the softmax, with those that the poster prints, which used the published structure."""
    lines, poster = [], {head: f" (poster {ratio:.2f})" for head, ratio in PRINTED_OVER_SOFTMAX.items()}
    for impl in measured.named("impl") if measured.kind == "inference" else ():
        for way in measured.ways:
            found = ratios.over_softmax(measured, impl, way)
            shown = ", ".join(f"{head} {ratio:.2f}{poster.get(head, '')}" for head, ratio in found.items())
            lines += [f"Time over poster-softmax's, {impl} {' '.join(way)}: {shown}."] if shown else []
    return lines


def _against_fastest(measured: Measurement) -> list[str]:
    baselines, own = ratios.against_fastest(measured), ratios.against_forms(measured)
    rivals = {"a baseline of the same precision and route": baselines, "another form of ours": own}
    lines = [f"Slower than {named} by over 5 %: {_slower(found)}." for named, found in rivals.items() if found]
    whole = measured.kind == "step" and any(cell.precision != "fp32" for cell in baselines)
    return lines + [WHOLE_STEPS] * whole


def _slower(compared: Mapping[Cell, tuple[float, str]]) -> str:
    slower = [
        f"{cell.head} {cell.precision} {cell.route} ({ratio:.2f} of {name})"
        for cell, (ratio, name) in compared.items()
        if ratio > ratios.BAND
    ]
    return ", ".join(slower) or "none"


def _by_way(measured: Measurement, figure: Callable[[Way], float], form: str = "{:.2f}") -> str:
    values = {way: figure(way) for way in measured.ways}
    return ", ".join(f"{' '.join(way)} {form.format(value)}" for way, value in values.items() if not isnan(value))
