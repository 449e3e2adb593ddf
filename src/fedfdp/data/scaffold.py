"""A complete run.toml for a table of which only the file is known: for `fedfdp init` and `fedfdp data check`.

What it writes about a column was read from the records, so it is not public. The file says so, and names every such
column in `data.unchecked`, which the privacy statement repeats until the holder has replaced it by a public fact.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from fedfdp.core.errors import SettingError, nearest
from fedfdp.data.files.describe import Description
from fedfdp.data.files.profile import FEW, Profile

DEALT = "none"  # instead of a holder: nobody is named, rows are dealt out at random
_HOLDERS = "holder hospital site center centre clinic country state region island school bank branch city district"
_HOLDERS += " department province station store company institution occupation organisation client ward group"
_LABELS = "label target class y outcome response result diagnosis species readmitted survived default"
MOST_CLASSES = 100
NOTICE = """\
# NOT PUBLIC YET. Ranges, categories and classes below were read from this file; ranges were widened to round numbers.
# They tell something about the records, and no epsilon covers that. Replace each by what is known without looking at
# the records (a scale, a code book, a law), then take its name off this list:
"""


@dataclass(frozen=True)
class Choices:
    """What only a person can say about a table."""

    holder: str  # the column that says who holds a row, or "none"
    label: str  # the column to be predicted
    regression: bool | None = None  # whether the label is a quantity; None: judged by what it holds
    unit: str | None = None  # the column that says whose row it is
    epsilon: float = 3.0  # the whole budget of a run
    ranges: Literal["read", "private"] = "read"  # private: ranges of numbers are estimated under epsilon
    decimal: str | None = None  # the mark before the decimals, if it had to be given


def guessed(columns: Sequence[Profile]) -> Choices:
    """A likely holder and label, by names and types; a person has to look at them."""
    label = _by_name(columns, _LABELS) or [c for c in columns if c.kind in ("text", "number") and not c.row_number][-1:]
    others = [c for c in columns if c not in label[:1] and not c.missing and not c.row_number and c.different > 1]
    holder = _by_name([c for c in others if c.kind in ("text", "number")], _HOLDERS)
    holder = holder or [c for c in others if c.kind == "text" and c.different <= FEW]
    if not label:
        raise SettingError("--label", None, "the table has no column that could be predicted", "add one")
    return Choices(holder[0].name if holder else DEALT, label[0].name)


def scaffold(found: Description, source: str, name: str, choices: Choices) -> str:
    """The text of a run.toml. `source`: the table's path from there; `name`: the run's."""
    columns = {column.name: column for column in found.columns}
    _check(choices, columns)
    label = columns[choices.label]
    regression = _quantity(label) if choices.regression is None else choices.regression
    inputs = [c for c in found.columns if c.name not in (choices.holder, choices.label, choices.unit)]
    ignored = {c.name: why for c in inputs if (why := _useless(c))}
    used = [c for c in inputs if c.name not in ignored]
    entries = [_entry(column, choices) for column in used]
    read = [c.name for c, (_, public) in zip(used, entries, strict=True) if not public]
    lines = [
        f"# How to train on {source}. Look it over: whatever is wrong here is wrong in the model.",
        f"name = {_text(name)}",
        "",
        "[data]",
        f"source = {_text(source)}",
        *_who(choices),
        *_what(label, regression),
        *([f"decimal = {_text(choices.decimal)}  # the mark before decimals"] if choices.decimal else []),
    ]
    if ignored:
        names = ", ".join(map(_text, ignored))
        lines += [f"ignore = [{names}]  # {'; '.join(f'{n}: {why}' for n, why in ignored.items())}"]
    lines += ["", f"{NOTICE}unchecked = [{', '.join(map(_text, [*read, label.name]))}]", "", "[data.columns]"]
    lines += [f"{_key(column.name)} = {entry}" for column, (entry, _) in zip(used, entries, strict=True)]
    lines += ["", "[model]", 'name = "linear"  # or "mlp"', "", "[privacy]"]
    lines += [f"epsilon = {choices.epsilon:g}  # the whole budget of a run; smaller is more private"]
    return "\n".join(lines) + "\n"


def _by_name(columns: Sequence[Profile], words: str) -> list[Profile]:
    return [column for column in columns if column.name.lower() in words.split()]


def _check(choices: Choices, columns: dict[str, Profile]) -> None:
    given = {"--holder": choices.holder, "--label": choices.label, "--unit": choices.unit}
    for option, name in given.items():
        if name is None or (option == "--holder" and name == DEALT):
            continue
        if name not in columns:
            raise SettingError(option, name, f"no such column; {nearest(name, columns)}")
        if (missing := columns[name].missing) and option != "--label":
            what = "holder" if option == "--holder" else "person"
            raise SettingError(option, name, f"{missing:,} rows have none", f"fill them in: every row needs its {what}")
    named = [name for name in given.values() if name is not None]
    if len(set(named)) < len(named):
        raise SettingError("--label", choices.label, "holder, label and unit must be different columns")
    if not choices.epsilon > 0 or not math.isfinite(choices.epsilon):
        raise SettingError("--epsilon", choices.epsilon, "above 0", "1 to 8 are usual")
    if choices.ranges == "private" and choices.unit is not None:
        raise SettingError("--ranges", "private", "protects single records, not all rows of a person", "leave it out")
    label = columns[choices.label]
    if choices.regression and label.kind != "number":
        raise SettingError("--target", label.name, f"holds {label.kind}, not numbers", "for classes give --label")
    wanted_classes = choices.regression is False or not _quantity(label)
    if wanted_classes and not choices.regression and not 2 <= label.different <= FEW:
        many = f"more than {FEW}" if label.different > FEW else str(label.different)
        fix = "for a quantity give --target; else write a shorter list" if label.kind == "number" else "name another"
        raise SettingError("--label", label.name, f"has {many} different values, which are no classes", fix)


def _quantity(label: Profile) -> bool:
    return label.kind == "number" and (label.different > FEW or not label.whole)


def _useless(column: Profile) -> str:
    """Why a column is left out; empty if it is not."""
    if column.kind == "empty":
        return "no values"
    if column.row_number:
        return "names a row"
    if column.different == 1 and not column.missing:
        return "always the same"
    return "texts of many kinds" if column.kind == "text" and column.different > FEW else ""


def _who(choices: Choices) -> list[str]:
    if choices.holder == DEALT:
        dealt = [
            'partition = "iid"  # no column says who holds a row: they are dealt out at random, to',
            "clients = 10",
        ]
    else:
        dealt = [f"holder = {_text(choices.holder)}  # who holds a row"]
    return dealt + ([f"unit = {_text(choices.unit)}  # whose row it is"] if choices.unit else [])


def _what(label: Profile, regression: bool) -> list[str]:
    lines = [f"label = {_text(label.name)}  # what is predicted"]
    if regression:
        low, high = _rounded(label)
        lines.append(f"target = [{low}, {high}]  # its range: predictions stay within")
    else:
        lines.append(f"classes = [{', '.join(map(_value, label.values))}]")
    if label.missing:
        lines.append(f'unlabelled = "skip"  # {label.missing:,} rows have no label (empty, NA, None …)')
    return lines


def _entry(column: Profile, choices: Choices) -> tuple[str, bool]:
    """What [data.columns] says of a column, and whether it is free of what was read from its values."""
    if column.kind == "text":
        listed = f"[{', '.join(map(_value, column.values))}]"
        if not column.missing and column.different > 1:
            return listed, False
        return f'{{ categories = {listed}, other = true, missing = "other" }}', False
    if column.kind == "number":
        low, high = _rounded(column)
        if choices.ranges == "private":
            return ('{ range = "private", missing = 0, indicator = true }' if column.missing else '"private"'), True
        if column.missing:
            return f"{{ range = [{low}, {high}], missing = {_middle(low, high)}, indicator = true }}", False
        return f"[{low}, {high}]", False
    return _dates(column)


def _dates(column: Profile) -> tuple[str, bool]:
    parts, remark = [], ""
    if column.formats:
        parts.append(f"format = {_text(column.formats[0])}")
        remark = "".join(f", or {form}?" for form in column.formats[1:])
    if column.kind == "time":
        middle, public = "12:00", True
        parts.append('cycles = ["day"]')
    else:
        first, last = (datetime.fromtimestamp(end or 0.0, UTC).year for end in (column.low, column.high))
        middle, public = f"{(first + last) // 2}-07-01", False
        parts += [f'range = ["{first}-01-01", "{last}-12-31"]', 'cycles = ["year"]']
    if column.missing:
        parts.append(f'missing = "{middle}", indicator = true')
    return f"{{ {', '.join(parts)} }}{f'  # how dates are written{remark}' if remark else ''}", public


def _rounded(column: Profile) -> tuple[str, str]:
    """The range of a column's numbers, widened to round numbers; from 0 where they begin near it."""
    low, high = column.low or 0.0, column.high or 0.0
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span))
    if low == high:
        low, high = low - step, high + step
    low, high = (0.0 if 0 <= low <= span else math.floor(low / step) * step), math.ceil(high / step) * step
    return f"{low:.12g}", f"{high:.12g}"


def _middle(low: str, high: str) -> str:
    return f"{(float(low) + float(high)) / 2:.12g}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value(text: str) -> str:
    """A class or category: a whole number as it is, anything else as a text."""
    return text if re.fullmatch(r"-?[1-9]\d{0,17}|0", text) else _text(text)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
