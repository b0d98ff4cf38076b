"""The rows of TASKS hold together."""

import pytest

from recurcli.data.tasks import CUSTOM, TASKS, task_named
from recurcli.errors import UsageError


@pytest.mark.parametrize("name", sorted(TASKS.keys() - {CUSTOM}))
def test_every_split_has_a_file_and_a_number_of_rows(name: str) -> None:
    task = TASKS[name]
    assert task.name == name
    assert {"train", "dev", "test"} <= set(task.files)
    assert {task.files[split] for split in task.rows} == {*task.files.values()}
    assert ("dev" in task.rows) == (task.files["dev"] != task.files["train"])
    assert len(set(task.labels)) == len(task.labels) >= (0 if task.plain_text else 2)
    assert task.dropped_label not in task.labels


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_submission_answers_a_test_file_of_the_task(name: str) -> None:
    task = TASKS[name]
    for split in task.submissions:
        assert split in task.files
        assert split in task.rows
        assert not task.has_labels(split)


def test_only_a_leaderboard_hides_the_labels_of_its_test_set() -> None:
    assert task_named("listops-mini").has_labels("test")
    assert not task_named("afqmc").has_labels("test")
    assert task_named("afqmc").has_labels("dev")


def test_an_unknown_task_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="unknown task 'tnew'; did you mean 'tnews'"):
        task_named("tnew")
