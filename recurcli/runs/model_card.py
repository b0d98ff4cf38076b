"""The model card of a run (README.md): origin, metrics and usage."""

from collections.abc import Mapping
from typing import Any

from recurcli.errors import escaped


def model_card(result: Mapping[str, Any], metrics: Mapping[str, str]) -> str:
    """Return a model card in Markdown with Hugging Face's front matter.

    `result` is the content of result.json; `metrics` maps each metric's key to its displayed name.
    """
    pretrained = result["command"] == "pretrain"
    kind = "masked-token model" if pretrained else "text classifier"
    lines = [
        "---",
        "library_name: recurcli",
        f"pipeline_tag: {'fill-mask' if pretrained else 'text-classification'}",
        f"tags: [{result['encoder']}, {result['task']}]",
        "---",
        "",
        f"# {escaped(result['preset'])}",
        "",
        f"A {kind} with the encoder `{result['encoder']}`, made by `recur {result['command']}` "
        f"(recurcli {result['versions']['recurcli']}) on the task `{result['task']}`, seed {result['seed']}.",
        "",
        "| | |",
        "|---|---|",
        f"| parameters | {result['parameters']['total']:,} |",
        f"| steps | {result['steps']:,} ({result['epochs']} epochs), model of step {result['best_step']:,} |",
        f"| training | {result['seconds']:,} s, {result['tokens_per_second']:,} tokens/s, "
        f"{result['machine']['precision']} on {result['machine']['device']} |",
    ]
    lines += [
        f"| {split} rows | {facts['rows']:,} (sha256 `{facts['sha256'][:16]}…`) |"
        for split, facts in result["data"].items()
    ]
    if pretrained:
        lines += ["", "## Use", "", "    recur finetune --preset PRESET --init THIS_FOLDER"]
    else:
        lines += [f"| dev {words} | {result['dev'][name]:.4f} |" for name, words in metrics.items()]
        lines += [
            "",
            "The model was selected on the dev rows, so its dev metrics are slightly too high.",
            "",
            "## Use",
            "",
            "    recur predict THIS_FOLDER texts.tsv",
            "    recur eval THIS_FOLDER",
        ]
    return "\n".join(lines) + "\n"
