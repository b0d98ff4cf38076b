"""Writes a report as one HTML page with charts, without scripts and network access. Texts of the data are escaped."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from recurcli.errors import escaped
from recurcli.files import write_atomically
from recurcli.version import __version__

if TYPE_CHECKING:
    import jinja2

LONGEST = 600
"""The number of characters of a text that are shown."""


def environment() -> "jinja2.Environment":
    """Return the templates with their filters: `shown` for texts of the data, `percent` for shares."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    found = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    found.filters["shown"] = lambda text: escaped(text, limit=LONGEST)
    found.filters["percent"] = lambda share: f"{share:.1%}"
    return found


def write_page(output: Path, template: str, **values: Any) -> None:
    """Fill `template`, a file in templates/, with `values` and write the page to `output`."""
    write_atomically(output, environment().get_template(template).render(version=__version__, **values))
