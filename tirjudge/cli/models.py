"""`tirjudge models`: list, fetch and remove the models that `--model` knows by a short name or converts."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tirjudge.cli.output import add_command, command_group, examples, one_line_errors, option, say
from tirjudge.console_text import printable, table
from tirjudge.models.machine import gigabytes
from tirjudge.models.resolve import local_models, model_folder, remove_model

models = command_group("List, fetch and remove models.", "tirjudge models list", "tirjudge models fetch smol")


@examples("tirjudge models list", "XDG_CACHE_HOME=/data/cache tirjudge models list")
def list_models(
    as_json: Annotated[bool, option("Output", "Print the models as JSON.", "--json")] = False,
) -> None:
    """List the embedded models, those with a short name, and converted GGUF files: size, checksum, place."""
    with one_line_errors("models list"):
        if as_json:
            records = [
                {
                    "name": model.name,
                    "state": model.state,
                    "sha256": model.sha256,
                    "path": str(model.path) if model.path else None,
                    "bytes": model.size if model.path else None,
                }
                for model in local_models()
            ]
            print(json.dumps(records, indent=2))
            return
        rows = [("name", "state", "sha256", "place", "size")]
        for model in local_models():
            place = str(model.path) if model.path else model.remedy
            size = gigabytes(model.size) if model.path else "-"
            rows.append((model.name, model.state, model.sha256[:16] or "-", place, size))
        print("\n".join(table(rows, words=4)))


@examples("tirjudge models fetch smol", "tirjudge models fetch model.Q4_K_M.gguf")
def fetch(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Short name, GGUF file, or hub id.")] = "smol",
) -> None:
    """Convert or download a model now, so that the first verdict does not wait for it, and print its folder.

    Exit codes: 0 the model is here, 2 it cannot be had.
    """
    with one_line_errors("models fetch"):
        print(model_folder(model, say))


@examples("tirjudge models remove smol", "tirjudge models remove SmolLM2-135M-Instruct.Q4_1-b179c9523d0e6a0f")
def remove(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Name of a converted model, see `tirjudge models list`.")
    ],
) -> None:
    """Remove a converted model from the cache; its GGUF file stays. The next use converts it again.

    Exit codes: 0 removed, 2 not in the cache.
    """
    with one_line_errors("models remove"):
        print(f"removed {printable(model)}: {gigabytes(remove_model(model))}")


add_command(models, list_models, "list")
add_command(models, fetch)
add_command(models, remove)
