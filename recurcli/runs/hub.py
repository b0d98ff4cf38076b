"""Runs on the Hugging Face Hub: how a folder is pushed, and how `hf://owner/name@revision` becomes a folder of the cache.

Only files of a run are fetched, which are safetensors, JSON and text; no pickle, and no code.
"""

import re
from pathlib import Path
from typing import Any

from recurcli.errors import ModelError, RecurError, StorageError, UsageError, escaped
from recurcli.files import MANIFEST, extend_manifest, read_manifest, write_atomically
from recurcli.log import Log
from recurcli.runs.run_directory import CONTENTS, MODEL_CARD, held_in_words

HUB = "hf://"
_ADDRESS = re.compile(rf"{HUB}([\w-][\w.-]*/[\w-][\w.-]*)(?:@(\w[\w./-]*))?")


def local_run(run: Path, log: Log) -> Path:
    """Return `run`, or the folder in Hugging Face's cache of one on the Hub; all its files are of one commit, which is noted.

    What the cache lacks is fetched. Raises UsageError for what is neither there nor on the Hub, ModelError for what is no run.
    """
    asked = re.sub("^hf:/+", HUB, str(run))  # a Path has one slash
    if not asked.startswith(HUB):
        return run
    if (address := _ADDRESS.fullmatch(asked)) is None:
        raise UsageError(f"{escaped(asked)}: is not {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION")
    name, revision = address.groups()
    folder = _fetched(asked, name, revision, MANIFEST).parent
    listed = read_manifest(folder)
    if foreign := listed.keys() - {*CONTENTS}:
        raise ModelError(f"{asked}: is not a run of recur: its {MANIFEST} lists {escaped(min(foreign))}")
    for file in listed:
        _fetched(asked, name, folder.name, file)
    log.note(f"{asked}: is the commit {folder.name}; {HUB}{name}@{folder.name} always is")
    return folder


def _fetched(asked: str, name: str, revision: str | None, file: str) -> Path:
    """Return the path in the cache of a file of a repository. Raises UsageError if it cannot be fetched either."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, file, revision=revision, library_name="recurcli"))
    except Exception as error:  # of many kinds: no network, no such repository, no permission
        raise UsageError(f"{asked}: its {file} is not in the cache, and cannot be fetched ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Return why the Hub was not asked, or what it answered, and the way out where it wants a token."""
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    is_refused = getattr(getattr(error, "response", None), "status_code", None) in (401, 403)
    return escaped(error) + ("; `hf auth login` gives a token" if is_refused else "")


def check_names(repository: str, license: str | None) -> None:
    """Raise UsageError for what is not the name of a repository, or of a license, on the Hub."""
    if "@" in repository or not _ADDRESS.fullmatch(f"{HUB}{repository}"):
        raise UsageError(f"--push {escaped(repository)}: is not OWNER/NAME")
    if license is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", license):
        raise UsageError(f"--license {escaped(license)}: is not one of the Hub's names, such as mit or apache-2.0")


def push(folder: Path, name: str, log: Log, *, public: bool, license: str | None) -> dict[str, Any]:
    """Upload the files of `folder` to the repository `name`, a new one private unless `public`; return its address.

    Other files there are deleted. First the log lists those that go, and what they hold of texts. The `license` is written
    into the card. Raises UsageError for a repository that is public already, without `public`; StorageError if the Hub refuses.
    """
    from huggingface_hub import HfApi

    if license is not None:
        card = (folder / MODEL_CARD).read_text(encoding="utf-8")
        write_atomically(folder / MODEL_CARD, card.replace("---\n", f"---\nlicense: {license}\n", 1))
        extend_manifest(folder, MODEL_CARD)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    address, listed = f"{HUB}{name}", ", ".join(f"{file} ({size:,} bytes)" for file, size in sizes.items())
    log.note(f"{address}: uploading, in place of what is there: {listed}")
    (log.warn if public else log.note)(held_in_words(sizes))
    api = HfApi(library_name="recurcli")
    try:
        api.create_repo(name, private=not public, exist_ok=True)
        is_private = api.repo_info(name).private
        if not (public or is_private):
            raise UsageError(f"{address}: is public already, and nothing was uploaded; --public says that it may be")
        log.note(f"{address}: {'is private; its owner chooses who may' if is_private else 'everybody may'} read it")
        commit = api.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Upload a model of recur", delete_patterns="*"
        )
    except RecurError:
        raise
    except Exception as error:  # of many kinds: no network, no such owner, no permission
        raise StorageError(f"{address}: cannot be pushed ({_reason(error)})") from None
    return {"output": f"{address}@{commit.oid}"}
