"""The plots of `harness experiment degeneracy`: a line for each layer, a band over its seeds."""

from collections.abc import Sequence

from harness.experiments.degeneracy import INPUTS, Spectrum
from harness.printable import counted
from harness.report.figures.style import Plot, axes, finished, legend, set_titles, settings, style

X = "number of the singular value, the largest first"
Y = "singular value / the largest\nmean; bands: lowest to highest seed"


def draw(found: Sequence[Spectrum], name: str, title: str, law: str) -> Plot:
    """The plot of some layers, whose inputs have one law, 'U(0, 1)'; the same values give the same bytes."""
    with settings():
        on, entries = axes(X, Y), []
        for index, each in enumerate(found):
            look, ratios = style(index), [[value / values[0] for value in values] for values in each.seeds]
            numbers, by_number = range(1, len(each.mean) + 1), list(zip(*ratios, strict=True))
            means = [sum(values) / len(values) for values in by_number]
            lows, highs = [min(values) for values in by_number], [max(values) for values in by_number]
            on.fill_between(numbers, lows, highs, color=look.colour, alpha=0.2, linewidth=0)
            (line,) = on.plot(numbers, means, color=look.colour, linestyle=look.line)
            entries.append((line, each.layer.name))
        legend(on, entries)
        seeds = counted(len(found[0].seeds), "seed")
        set_titles(on, title, f"untrained; averaged over {INPUTS} inputs from {law}; {seeds}")
        caption = "Singular values of dy/dx, each divided by the largest of its seed."
        return finished(on, name=name, title=title, caption=caption, of=seeds)
