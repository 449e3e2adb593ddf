"""fedfdp export: a run's model as a file for other programs."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "--to", help=".safetensors, .pt (TorchScript), .pt2 (torch.export) or .onnx.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of a run that was started in Python: package.module:Class of its module.")
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="A file like those of the run: its first records are compared too.")
    ] = None,
) -> None:
    """Write a run's model for use elsewhere; by default as RUN.safetensors in the current folder.

    For example: fedfdp export runs/mine --out mine.pt2. In Python: fedfdp.load("runs/mine").
    """
    from fedfdp.runs.exported import export as write
    from fedfdp.runs.released import module_at

    file = out or Path(f"{run.resolve().name}.safetensors")
    write(run, file, module_at(model), records)
    print(f"{file}: {file.stat().st_size:,} bytes")
