"""fedfdp predict: a run's model on new records."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    file: Annotated[Path, typer.Argument(help="Records like those of the run, or a .npz file with x.")],
    out: Annotated[Path | None, typer.Option(help="Write CSV into this file instead of printing it.")] = None,
    holder: Annotated[
        str | None,
        typer.Option(help="With this holder's own model: its name in the run, or the file in its node's folder."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column that the model was trained without; as often as needed.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of a run that was started in Python: package.module:Class of its module.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")] = False,
) -> None:
    """Predict: a class and its probability for each record, or a value in the target's own units."""
    from fedfdp.core.errors import SettingError
    from fedfdp.runs.predict import predict as predicted
    from fedfdp.runs.released import module_at

    found = predicted(run, file, module_at(model), holder=holder, ignore=ignore or ())
    if out is not None:
        try:
            with open(out, "w", newline="", encoding="utf-8") as target:
                found.write(target)
        except OSError as error:
            raise SettingError("--out", str(out), f"cannot be written: {error.strerror}") from None
    if as_json:
        print(json.dumps({"run": str(run), "file": str(file), "predictions": list(found.rows())}))
    elif out is not None:
        print(f"{len(found):,} predictions in {out}")
    else:
        found.write(sys.stdout)
