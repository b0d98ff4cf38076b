"""The device and its settings, by what torch says of a GPU: which one is taken, deterministic algorithms, random states."""

from collections.abc import Callable

import pytest
import torch

from recurcli.device import choose_device, cuda_settings, mask_to_device, own_random_state
from recurcli.errors import UsageError

GPU = torch.device("cuda")
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Lets torch say that a machine has GPUs of a capability, and that this build knows the architectures `archs`."""

    def made(gpus: int, capability: tuple[int, int] = (8, 0), archs: tuple[str, ...] = ("sm_75", "sm_90")) -> None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
        monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
        monkeypatch.setattr("torch.cuda.get_arch_list", lambda: [*archs, "compute_90"])

    return made


def test_a_gpu_that_is_not_there_is_refused_by_its_number(machine: Machine) -> None:
    machine(1)
    assert choose_device("auto") == choose_device("cuda") == GPU
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(
        UsageError, match=r"device 'cuda:3' is not available; torch sees 1 CUDA device; use auto or cpu"
    ):
        choose_device("cuda:3")
    machine(0)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(UsageError, match=r"device 'cuda' is not available; torch sees 0 CUDA devices"):
        choose_device("cuda")


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0"])
def test_a_gpu_that_is_too_old_for_torch_is_refused(name: str, machine: Machine) -> None:
    machine(1, capability=(6, 1))
    with pytest.raises(UsageError, match=r"capability is 6\.1, and torch .* needs 7\.5 or later; use --device cpu"):
        choose_device(name)
    machine(1, capability=(6, 1), archs=())
    assert choose_device(name).type == "cuda", "a build that names no architecture is believed"


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("tf32", [False, True])
def test_the_settings_of_cuda_are_those_of_the_block(*, deterministic: bool, tf32: bool) -> None:
    def settings() -> tuple[bool, bool, bool]:
        of_matrices, of_layers = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        return torch.are_deterministic_algorithms_enabled(), of_matrices, of_layers

    before = settings()
    with cuda_settings(GPU, "rsa", deterministic=deterministic, tf32=tf32):
        assert settings() == (deterministic, tf32, tf32)
    assert settings() == before
    with cuda_settings(torch.device("cpu"), "rsa", deterministic=deterministic, tf32=tf32):
        assert settings() == before


def test_an_operation_without_a_deterministic_form_is_named_with_its_encoder() -> None:
    told = "cumsum_cuda_kernel does not have a deterministic implementation, but you set 'torch.use_…'"
    with (
        pytest.raises(
            UsageError, match="encoder skyformer: torch's cumsum_cuda_kernel has no deterministic form on CUDA"
        ),
        cuda_settings(GPU, "skyformer", deterministic=True, tf32=False),
    ):
        raise RuntimeError(told)
    with pytest.raises(RuntimeError, match="another"), cuda_settings(GPU, "rsa", deterministic=True, tf32=False):
        raise RuntimeError("another fault")
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_gpu_gets_no_mask_where_all_tokens_are_real() -> None:
    full = torch.ones(2, 3, dtype=torch.bool)
    assert mask_to_device(full, GPU) is None
    assert mask_to_device(full, torch.device("cpu")) is full


def test_a_block_of_its_own_leaves_the_random_states(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    seeds: list[int] = []
    with own_random_state():
        torch.manual_seed(8)
        torch.rand(5)
        monkeypatch.setattr("torch.cuda.manual_seed_all", seeds.append)
    assert torch.equal(torch.rand(3), expected)
    assert seeds == [7], "a GPU that is used later starts from the caller's seed"
