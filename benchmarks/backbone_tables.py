"""The tables and plots of `bench backbone`."""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from harness.benchmarks.backbone_costs import BLOCKS_GIVEN_BACK, DROPOUT, VOCAB, WIDTH, BackboneCosts
from harness.benchmarks.measurement import save_with_table, slug
from harness.benchmarks.tables import Row, markdown_table
from harness.errors import ExecutionError

if TYPE_CHECKING:
    from harness.report.figures.style import Plot  # with matplotlib

TITLE = "Cost of a step of a backbone by context length"
MEMORY_TITLE = "Memory of a step by context length"


def rows(measured: BackboneCosts) -> list[Row]:
    """Return a header, and a row for each context length: median milliseconds and MiB of each backbone."""
    names = measured.backbones
    found = [["tokens", *(f"{name}, ms" for name in names), *(f"{name}, MiB" for name in names)]]
    of = {(each.backbone, each.context): each for each in measured.costs}
    for T in sorted({each.context for each in measured.costs}):
        times = [f"{measured.medians(name)[T]:.3g}" if (name, T) in of else "-" for name in names]
        peaks = [of[name, T].mib if (name, T) in of else None for name in names]
        found.append([f"{T:,}", *times, *("-" if peak is None else f"{peak:.1f}" for peak in peaks)])
    return found


def fit_rows(measured: BackboneCosts) -> list[Row]:
    """Return a header, and a row for each backbone: the coefficients of its time, and where its two parts are equal."""
    found = [
        ["backbone", "parameters", "c0 ms", "c1 us", "c2 ns", "c2 T^2 = c1 T at", "c2 T^2 of the longest", "deviation"]
    ]
    for name in measured.backbones:
        fit, longest = measured.fit(name), max(measured.medians(name))
        params = next(each.params for each in measured.costs if each.backbone == name)
        share = fit.quadratic * longest**2 / fit.at(longest)
        found.append(
            [
                name,
                f"{params:,}",
                f"{fit.constant:.3g}",
                f"{1e3 * fit.linear:.3g}",
                f"{1e6 * fit.quadratic:.3g}",
                _crossing(fit.crossing, longest),
                f"{share:.0%}",
                f"{fit.deviation:.0%}",
            ]
        )
    return found


def save(measured: BackboneCosts, results: Path) -> list[Path]:
    """Write the record, the table and the plots; return their paths."""
    from harness.report import outputs
    from harness.report.figures import plots  # here: matplotlib takes a second to import

    name = f"backbone_{slug(measured.device)}"
    drawn = [_time_plot(measured), *([_memory_plot(measured)] if measured.counts_memory else [])]
    pictures, _ = plots.files_of(drawn, results / "plots" / name)
    outputs.write(pictures)
    return [*save_with_table(name, measured, markdown(measured), results), *pictures]


def _time_plot(measured: BackboneCosts) -> "Plot":
    from harness.report.figures import cost_curves

    curves = [
        cost_curves.Curve(label=each, measured=measured.medians(each), fit=measured.fit(each).at)
        for each in measured.backbones
    ]
    caption = "Marks: medians. Lines: c0 + c1 T + c2 T^2."
    return cost_curves.draw(curves, "step_time", TITLE, _where(measured), "milliseconds of a step", caption)


def _memory_plot(measured: BackboneCosts) -> "Plot":
    from harness.report.figures import cost_curves

    found = {name: measured.memory(name) for name in measured.backbones}
    curves = [cost_curves.Curve(label=name, measured=values) for name, values in found.items() if values]
    caption = "Marks: the peak of one step above the memory before it, in a process of its own."
    return cost_curves.draw(curves, "step_memory", MEMORY_TITLE, _where(measured), "MiB of a step", caption)


def load(place: Path) -> BackboneCosts:
    """Read a record. Raises ExecutionError if the file is not such a record."""
    try:
        return BackboneCosts.model_validate_json(place.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ExecutionError(f"{place} is not a record of harness bench backbone: {error.errors()[0]['msg']}") from None


def markdown(measured: BackboneCosts) -> str:
    """Return both tables with a description of the measurement."""
    flag = f"CONTENDED: {'; '.join(measured.contended)}. " if measured.contended else ""
    return f"""\
# {TITLE}, on {measured.device}

Made by `harness bench backbone --save`. Forward and backward pass in training mode, one sequence, without head, loss
and optimizer; width {WIDTH}, V = {VOCAB:,}, dropout {DROPOUT:g}, float32.

{markdown_table(rows(measured))}

The time as c0 + c1 T + c2 T^2, T tokens:

{markdown_table(fit_rows(measured))}

- c2 T^2 = c1 T at: from this length on, a context twice as long costs at least three times as much of what grows. For
  a length that is beyond the longest measured one, only that is said. Fitted to the medians by non-negative least
  squares of relative differences; deviation: the largest one. parameters: without the embedding.
- MiB: {_memory(measured)}
- {flag}Medians of {measured.rounds} interleaved rounds, {_where(measured)}, load {measured.load_average:.2f} at the
  start, torch {measured.torch}, harness at {measured.commit}, {measured.started}.
"""


def _crossing(length: float | None, longest: int) -> str:
    if length is None:
        return "never"
    return f"{length:,.0f}" if length <= longest else f"beyond {longest:,}"


def _where(measured: BackboneCosts) -> str:
    threads = "" if measured.device_type == "cuda" else f", {measured.threads} thread(s)"
    return f"{measured.device}{threads}"


def _memory(measured: BackboneCosts) -> str:
    if not measured.counts_memory:
        return "not counted, because this system does not reset the peak of a process."
    what = "the peak of one step above the memory before it, in fresh processes with weights and gradients"
    if measured.device_type == "cuda":
        return f"{what}, by torch.cuda.max_memory_allocated."
    given = " ".join(f"{name}={value}" for name, value in BLOCKS_GIVEN_BACK.items())
    return f"{what}, resident memory by /proc/self/status, {given}."
