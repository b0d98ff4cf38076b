"""A training step and an inference on a GPU without numbers: devices and dtypes fit, and the CPU hardly waits for the GPU."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import slow_but
from steps import FEATURES

from recurcli.encoders import ENCODERS, PRETRAINED, encoder_class
from recurcli.encoders.registry import causal_key

HERE = Path(__file__).resolve().parent
BUDGET = 2
"""Most waits in a training step, and in the inference of a batch."""
MORE = {"truncated-rnn": 8}
"""Waits beyond it: torch's SVD waits twice for each of four matrices. One SVD of all would have other last bits on a CPU."""
OF_SOME = {
    "next tokens": [name for name in ENCODERS if causal_key(name)],
    "carry": [name for name in ENCODERS if not encoder_class(name).carry_obstacle],
    "no window": ["truncated-rnn", "truncated-lstm"],
}
"""The encoders of a feature that not all can have."""
CASES = [f"{encoder}/{feature}" for feature in FEATURES for encoder in OF_SOME.get(feature, ENCODERS)]
ALONE = {"carry": "transformer-xl", "T 512": "rsa"}
"""The encoder that a feature is tried with where StarSaber cannot have it, or is no test of it."""
OF_EACH_KIND = ("starsaber", "transformer", "bilstm", "truncated-rnn", "delta-net")
"""Encoders of attention, of torch's layers, of matrices that are projected, and of a scan."""
DEFAULT = [
    case
    for case in CASES
    if case in [f"{encoder}/plain" for encoder in OF_EACH_KIND]
    or case.endswith("/no window")
    or case in [f"{ALONE.get(what, 'starsaber')}/{what}" for what in FEATURES]
]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stub.cpp as a library."""
    if sys.platform != "linux" or torch.version.cuda or torch.version.hip:
        pytest.skip("the stub takes the place of CUDA in a CPU build of torch for Linux")
    if shutil.which("g++") is None:
        pytest.skip("no g++, which compiles the stub")
    package, library = Path(torch.__file__).parent, tmp_path_factory.mktemp("stub") / "stub.so"
    places = [f"-I{package / 'include'}", f"-L{package / 'lib'}", f"-Wl,-rpath,{package / 'lib'}"]
    line = ["g++", "-std=c++20", "-shared", "-fPIC", str(HERE / "stub.cpp"), *places, "-lc10", "-ltorch_cpu"]
    subprocess.run([*line, "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="module")
def found(stub: Path, request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What steps.py finds in each case of this session, in one process that loads the stub before torch."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    cases = dict.fromkeys(str(item.callspec.params["case"]) for item in items)
    ended = subprocess.run(
        [sys.executable, str(HERE / "steps.py"), *cases],
        env={**os.environ, "LD_PRELOAD": str(stub), "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return {case.pop("case"): case for case in map(json.loads, ended.stdout.splitlines())}


@pytest.mark.parametrize("case", slow_but(DEFAULT, CASES))
def test_a_step_fits_the_gpu_and_hardly_waits_for_it(case: str, found: dict[str, dict[str, Any]]) -> None:
    if case.startswith(PRETRAINED) and importlib.util.find_spec("transformers") is None:
        pytest.skip("no package transformers")
    assert "error" not in found[case], found[case]["error"]
    budget = BUDGET + MORE.get(case.partition("/")[0], 0)
    assert len(found[case]["training"]) <= budget, found[case]["training"]
    assert len(found[case]["inference"]) <= BUDGET, found[case]["inference"]


@pytest.mark.parametrize(("case", "waits"), [("bilstm/plain", 1), ("truncated-rnn/plain", 8)])
def test_a_wait_that_is_known_is_seen(case: str, waits: int, found: dict[str, dict[str, Any]]) -> None:
    assert len(found[case]["training"]) == waits


@pytest.mark.parametrize("case", ["bilstm/plain", "truncated-rnn/no window", "truncated-lstm/no window"])
def test_recurrent_layers_run_in_float32(case: str, found: dict[str, dict[str, Any]]) -> None:
    assert found[case]["recurrent"] == ["float32"]
