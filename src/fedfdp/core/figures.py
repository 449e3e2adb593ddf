"""Where figures are written, and the message where that is not possible. Draws nothing, and imports no matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedfdp.core.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_png(png: Path | None) -> None:
    """Refuses a place for a figure before the work that it will show is done."""
    if png is not None and png.suffix.lower() != ".png":
        raise SettingError("png", str(png), "must be a file name that ends in .png")
    if png is not None and not png.parent.is_dir():
        raise SettingError("png", str(png), "must be in a folder that exists", f"create {png.parent} first")


def save_figure(
    figure: "Figure",
    path: Path,
    *,
    setting: str = "--png",
    dpi: int = 150,
    format: str | None = None,
    make_folder: bool = False,
) -> None:
    """Writes the figure in this format, or in that of the file's ending; `setting` is what named the file."""
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=dpi, format=format)
    except (OSError, ValueError) as error:
        raise SettingError(
            setting, str(path), f"cannot be written ({error})", "give a .png, .svg or .pdf file"
        ) from None
