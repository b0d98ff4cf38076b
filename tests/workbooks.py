"""Writes workbooks as Excel does, as far as a reader of their values looks."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

DATE, TIME_OF_DAY = 14, 22
"""Excel's numbers of the formats of a date, and of a date with its time."""
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_LINK = '<Relationship Id="r{0}" Type="{1}/{2}" Target="{3}"/>'

Value = str | float | tuple[int, float] | None
"""The value of a cell; a number with the number of its format; None: the cell is missing."""
Sheets = Mapping[str, Sequence[Sequence[Value]]]
"""The rows of each sheet by its name."""


def write_workbook(path: Path, sheets: Sheets) -> Path:
    """Writes the rows of each sheet, and returns `path`."""
    numbered = dict(enumerate(sheets, 1))
    names = "".join(f'<sheet name="{escape(name)}" sheetId="{n}" r:id="r{n}"/>' for n, name in numbered.items())
    links = [_LINK.format(n, _OFFICE, "worksheet", f"worksheets/sheet{n}.xml") for n in numbered]
    links.append(_LINK.format(0, _OFFICE, "styles", "styles.xml"))
    formats = "".join(f'<xf numFmtId="{number}"/>' for number in (0, DATE, TIME_OF_DAY))
    root = f'xmlns="{_MAIN}" xmlns:r="{_OFFICE}"'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"/>',
        "_rels/.rels": _relations([_LINK.format(1, _OFFICE, "officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f"<workbook {root}><sheets>{names}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _relations(links),
        "xl/styles.xml": f"<styleSheet {root}><cellXfs>{formats}</cellXfs></styleSheet>",
    }
    for n, name in numbered.items():
        rows = "".join(f'<row r="{line}">{_cells(row, line)}</row>' for line, row in enumerate(sheets[name], 1))
        parts[f"xl/worksheets/sheet{n}.xml"] = f"<worksheet {root}><sheetData>{rows}</sheetData></worksheet>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def _relations(links: Sequence[str]) -> str:
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{"".join(links)}</Relationships>'


def _cells(row: Sequence[Value], line: int) -> str:
    return "".join(_cell(f'r="{chr(65 + column)}{line}"', value) for column, value in enumerate(row))


def _cell(place: str, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f'<c {place} t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    if isinstance(value, bool):
        return f'<c {place} t="b"><v>{int(value)}</v></c>'
    if isinstance(value, tuple):
        return f'<c {place} s="{(0, DATE, TIME_OF_DAY).index(value[0])}"><v>{value[1]}</v></c>'
    return f"<c {place}><v>{value!r}</v></c>"
