"""`presets/baselines/measure.py`, and what it measured."""

import subprocess
import sys
from pathlib import Path

PRESETS = Path(__file__).parent.parent / "presets"


def test_the_results_have_the_tables_of_what_was_measured() -> None:
    command = [sys.executable, str(PRESETS / "baselines" / "measure.py"), "table"]
    tables = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    results = (PRESETS / "RESULTS.md").read_text(encoding="utf-8")
    assert len(tables.split("\n\n")) == 2 and all(table.strip() in results for table in tables.split("\n\n"))
