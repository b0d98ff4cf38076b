"""The tasks of recur: facts about their files, columns and labels."""

from recurcli.data.tasks.table import CUSTOM, TASKS, task_named
from recurcli.data.tasks.task import PLAIN, Layout, Task

__all__ = ["CUSTOM", "PLAIN", "TASKS", "Layout", "Task", "task_named"]
