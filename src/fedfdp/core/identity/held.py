"""What objects hold where their `__dict__` does not show it: slots, closures, caches of functions."""

import functools
import gc
import types


def cached_by(function: "functools._lru_cache_wrapper[object]") -> list[object]:
    """What a cache keeps. Only the garbage collector sees it: as a dict, or one by one where there is a limit."""
    parts = [part for part in gc.get_referents(function) if not isinstance(part, type | types.FunctionType)]
    return [part for part in parts if part is not function.__dict__ and not _is_index(part)]


def _is_index(value: object) -> bool:
    """Whether it is the index of a cache with a limit, whose entries can only be read one by one."""
    return isinstance(value, dict) and any(type(entry).__name__ == "_lru_list_elem" for entry in value.values())


def is_filled(cell: types.CellType) -> bool:
    """Whether a name of a closure has a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def slots_of(value: object) -> dict[str, object]:
    """What an object holds outside of its `__dict__`: the slots of its classes that are filled."""
    found: dict[str, object] = {}
    for kind in reversed(type(value).__mro__):
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{name}" if private else name  # as Python calls it
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found
