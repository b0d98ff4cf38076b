"""Writes a report as one HTML page with SVG plots, without scripts and network access. Texts of the data are escaped."""

from pathlib import Path
from typing import Any

from recurcli.errors import escaped
from recurcli.files import OutputKind, write_atomically
from recurcli.version import __version__

REPORT = OutputKind("a report", (".html",), ("matplotlib", "jinja2"))
LONGEST = 600
"""The number of characters of a text that are shown."""


def write_page(output: Path, template: str, **values: Any) -> None:
    """Fill `template`, a file in templates/, with `values` and write the page to `output`."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["shown"] = lambda text: escaped(text, limit=LONGEST)
    environment.filters["percent"] = lambda share: f"{share:.1%}"
    page = environment.get_template(template).render(version=__version__, **values)
    write_atomically(output, page)
