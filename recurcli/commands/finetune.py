"""`recur finetune`: train a classifier on labelled rows, from scratch or from a pretrained run (`--init`)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from recurcli.commands.training.resume import finished_run, source_of_run
from recurcli.commands.training.trainer import Training, enter_run
from recurcli.data.known import KnownRows
from recurcli.data.splits import Split
from recurcli.data.tasks import task_named
from recurcli.distributed.group import current
from recurcli.encoders import LINEAR
from recurcli.errors import UsageError, pluralize
from recurcli.linear.fitting import fit_linear_model
from recurcli.linear.model import LinearModel
from recurcli.linear.static_vectors import resolve_vectors, resolve_vectors_of_tokens
from recurcli.log import Log
from recurcli.models.choice import Choice
from recurcli.models.data import Data, RowsInMemory, note_on_known_rows, prepare, read_splits
from recurcli.models.encoder import Encoder, check_init
from recurcli.models.linear import fit_linear
from recurcli.preset import Preset, ResolvedPreset
from recurcli.preset.compose import FEWEST_ROWS_OF_ENCODER, trains_encoder
from recurcli.requests.training import FinetuneRequest
from recurcli.runs.model_files import read_known_rows
from recurcli.runs.network_files import TrainedFiles, read_model
from recurcli.runs.run_directory import RunDirectory, RunStatus
from recurcli.training.session import StopRequest


def finetune(
    request: FinetuneRequest,
    log: Log,
    given: ResolvedPreset | None = None,
    rows: RowsInMemory | None = None,
    trial_fit: Callable[..., LinearModel] | None = None,
) -> dict[str, Any]:
    """Train a classifier as `request` says, and return the content of result.json.

    `given` takes the place of the preset of the request, and `rows` that of the rows which the preset names. `trial_fit`, in
    place of `fit_linear_model`, is that of a trial of `tune`: the linear model is fitted once, and an ensemble is scored on
    held-out halves of the dev rows.
    """
    given = given or request.resolved
    with enter_run(request, given) as (run, status, device):
        if status == "finished":
            return finished_run(request, log)
        _check_options(request, given)
        init = None if request.init is None else _read_init(request, given.preset, log)
        log.stage("reading the rows")
        task, splits = read_splits(given.preset, rows, log)
        given = _with_vectors(request, given, splits, run, status, log)
        preset = _without_unwanted_encoder(given.preset, request, splits, log)
        data = prepare(preset, task, splits, log, rows)
        log.scored_by(data.metric)
        known, all_known = _known_rows(data, init, log)
        for rows_of in (data.own, data.train):
            vars(rows_of).pop("hashes", None)  # the fit needs the memory; they would be made again
        stop = StopRequest(current())
        encoder = None if preset.is_linear else Encoder(preset, data, init and init.of_encoder(), device, stop, log)
        preset = preset if encoder is None else encoder.preset
        facts = data.facts(log) if encoder is None else encoder.split_facts
        is_trial = trial_fit is not None
        linear = None
        if not request.dry_run:
            linear = fit_linear(preset, data, log, trial_fit or fit_linear_model, may_refit=not is_trial)
        halves_seed = preset.data.dev_seed if is_trial and preset.ensemble is not None else None
        training = Training(
            request=request,
            resolved=given,
            preset=preset,
            run=run,
            status=status,
            device=device,
            config=data.run_config(None if encoder is None else encoder.model.config),
            candidates=[candidate for candidate in (linear, encoder) if candidate is not None],
            data=facts,
            stop=stop,
            dev=Choice(data=data, preset=preset, encoder=encoder, linear=linear, known=known, halves_seed=halves_seed),
            known=known if all_known and preset.finetuning.keep_texts else None,
            teacher=None if data.teacher is None else data.teacher.facts,
            init_sha256=None if init is None else init.folder.listed["model.safetensors"][1],
            is_of_user=rows is None and not is_trial,
        )
        return training.execute(log)


def _check_options(request: FinetuneRequest, given: ResolvedPreset) -> None:
    """Raise UsageError for a task without labels, and for options that have no effect with the preset `given`."""
    if task_named(given.preset.task).plain_text:
        raise UsageError(f"task {given.preset.task} is text without labels; `recur pretrain` trains on it")
    if request.init is not None and given.preset.is_linear:
        raise UsageError(f"--init: preset {given.name} has no encoder to start from a run; leave it out")


def _read_init(request: FinetuneRequest, preset: Preset, log: Log) -> TrainedFiles:
    """Read the pretrained run of --init. Raises UsageError if its architecture differs from that of the preset."""
    assert request.init is not None
    files = read_model(request.init)
    files.of_encoder()
    check_init(files, preset)
    files.folder.note_if_unfinished(log)
    return files


def _with_vectors(
    request: FinetuneRequest,
    given: ResolvedPreset,
    splits: Mapping[str, Split],
    run: RunDirectory,
    status: RunStatus,
    log: Log,
) -> ResolvedPreset:
    """Return the preset with the sources of static vectors that were found.

    A run that is resumed keeps the vectors of its linear model. Rank 0 decides. Raises UsageError if its vectors are not there.
    """
    preset, ranks, config = given.preset, current(), given.preset.linear
    if not preset.fits_linear_model:
        config = replace(config, vectors=None)
    elif ranks.is_main:
        stored = None if status == "new" else run.read_preset()
        asked = config.vectors if stored is None else source_of_run(config.vectors, stored["linear"]["vectors"])
        config = resolve_vectors(replace(config, vectors=asked), splits["train"].texts, log)
    if not request.dry_run:
        config = replace(config, vectors=ranks.broadcast(config.vectors))
    return replace(given, preset=replace(resolve_vectors_of_tokens(preset), linear=config))


def _without_unwanted_encoder(
    preset: Preset, request: FinetuneRequest, splits: Mapping[str, Split], log: Log
) -> Preset:
    """Return the preset without its encoder where `finetuning.encoder` leaves it out, else as it is."""
    rows = splits["train"].count_with_dev
    if preset.is_linear or request.init or request.matching or trains_encoder(preset, rows):
        return preset
    log.note(
        f"no encoder beside the linear model: {pluralize(rows, 'row')} are fewer than {FEWEST_ROWS_OF_ENCODER:,}; "
        "--set finetuning.encoder=always trains one"
    )
    return replace(preset, encoder={"name": LINEAR})


def _known_rows(data: Data, init: TrainedFiles | None, log: Log) -> tuple[KnownRows, bool]:
    """Return the rows that train and select the model, those of the run `init` too, and whether these are all known.

    A pretrained run has read no labels, and its text includes dev and test by intention (StarSaber, section 4).
    """
    if init is None or not init.config.labels:
        return data.known, True
    before = read_known_rows(init.folder, log)
    if before is None:
        return data.known, False
    note_on_known_rows(before, data.splits, log, str(init.folder))
    return data.known.joined(before), True
