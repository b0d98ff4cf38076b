"""The recipes for Ray Data and Spark label a Parquet file as `recur predict` does, where the packages are installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import Recur

README = Path(__file__).resolve().parent.parent / "docs" / "cluster.md"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "pyspark"])
def test_a_recipe_labels_as_predict_does(engine: str, trained: Path, recur: Recur, tmp_path: Path) -> None:
    pytest.importorskip(engine)
    if engine == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    pandas = pytest.importorskip("pandas")
    [code] = [
        block
        for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        if f"import {engine}" in block or f"from {engine}" in block
    ]
    (tmp_path / "rows").mkdir()
    texts = [f"鼠牛虎 {number} 股市" for number in range(50)]
    pandas.DataFrame({"text": texts}).to_parquet(tmp_path / "rows" / "x.parquet")
    code = code.replace("runs/starsaber-tnews", str(trained))
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=300)
    found = pandas.read_parquet(tmp_path / "labelled").sort_values("text")
    (tmp_path / "x.txt").write_text("".join(f"{text}\n" for text in sorted(texts)))
    out, _ = recur.ok("predict", trained, tmp_path / "x.txt", "--no-header", "--quiet")
    expected = [line.split("\t") for line in out.splitlines()]
    assert list(found["text"]) == [row[0] for row in expected]
    assert list(found["label"]) == [row[-2] for row in expected]
    assert list(found["score"]) == pytest.approx([float(row[-1]) for row in expected], abs=1e-5)
