"""What tests of every floor share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data: RECUR_DATA, else ../shared/data beside the checkout; without one the test is skipped."""
    named = os.environ.get("RECUR_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is no folder (RECUR_DATA names it)")
    return folder
