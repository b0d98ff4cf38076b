"""Writes a report as one HTML page with SVG plots, without scripts and network access. Texts of the data are escaped."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recurcli import __version__
from recurcli.errors import UsageError, escaped
from recurcli.files import require_writable, write_atomically

PACKAGES = ("matplotlib", "jinja2")
LONGEST = 600
"""The number of characters of a text that are shown."""


def require_report(path: Path, *, overwrite: bool) -> None:
    """Raise UsageError if `path` does not end in .html, if it exists without `overwrite`, or if a package is missing."""
    if path.suffix != ".html":
        raise UsageError(f"{path}: a report ends in .html")
    require_writable(path, overwrite=overwrite, option="--report")
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise UsageError(f"--report needs {' and '.join(missing)}: pip install 'recurcli[report]'")


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
