"""`harness docs`: the pages of the documentation, which an installed wheel contains, too."""

from typing import Annotated

import typer

from harness import bundled
from harness.cli.options import say
from harness.errors import ExecutionError, nearest


def docs(
    page: Annotated[str | None, typer.Argument(help="The name of a page; without it, the pages are listed.")] = None,
) -> None:
    """Print a page of the documentation as markdown, or the names and titles of all pages."""
    pages = {place.stem: place.read_text(encoding="utf-8") for place in sorted(bundled("docs").glob("*.md"))}
    if page is None:
        for name, text in pages.items():
            say(f"{name:<14} {text.partition(chr(10))[0].removeprefix('# ')}")
    elif page in pages:
        say(pages[page])
    else:
        raise ExecutionError(f"there is no page '{page}'{nearest(page, list(pages))} (known: {', '.join(pages)})")
