"""The page for a data protection officer: plain words, two printed sides, no script. All numbers are the register's."""

import datetime
import html
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fedfdp.core.errors import RunError
from fedfdp.report.page import policy_hash
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.register import ANYONE, Entry, Records, Total, distinct, odds
from fedfdp.runs.statement import NOT_COVERED

PAGE = "officer.html"
MOST_HOLDERS, MOST_RUNS, MOST_WARNINGS = 8, 8, 8  # rows that leave room on two sides
LONGEST_NAME = 40
BEFORE = (0.01, 0.1, 0.5)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {hash}">
<title>Privacy report · fedfdp</title>
<style>{style}</style>
</head>
<body>
<main>
<header><h1>Privacy report for the data protection officer</h1>
<p class="soft">Made on {date} with fedfdp {version} from the ledgers of {sources}. No record was read for it.</p>
</header>
{body}
</main>
</body>
</html>
"""


def officers_page(found: Sequence[Records], today: str | None = None) -> str:
    """The page as HTML."""
    style = files("fedfdp.report").joinpath("assets", "officer.css").read_text(encoding="utf-8")
    entries = [entry for records in found for entry in records.entries]
    kinds = [(sum(entry.kind == kind for entry in entries), kind) for kind in ("run", "node")]
    sources = " and ".join(f"{count} {kind}{'s' if count > 1 else ''}" for count, kind in kinds if count)
    body = [*(part for records in found for part in _records(records)), _who(entries), _not_covered(found), _terms()]
    return _PAGE.format(
        hash=policy_hash(style),
        style=style,
        date=today or datetime.date.today().isoformat(),
        version=version("fedfdp"),
        sources=sources,
        body="\n".join(body),
    )


def write_officers_page(found: Sequence[Records], file: Path) -> None:
    """The whole page or nothing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        RunFolder(file.parent).write(file.name, officers_page(found).encode("utf-8", "replace"))
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror}; give another --out") from None


def _records(records: Records) -> list[str]:
    """Who is protected, how well, what was spent by whom, and by which runs."""
    one = records.unit.one
    if records.unit.is_record:
        unit = "<strong>One record</strong> of one data holder. Someone with several records is protected for each."
    else:
        unit = (
            f"<strong>One {_name(one)}</strong> at one data holder: all records with the same value in the column "
            f"“{_name(one)}” together."
        )
    parts = [f"<h2>{_text(records.name)}</h2>", f"<p><b>Protected is:</b> {unit}</p>"]
    if records.unprotected:
        places = ", ".join(_name(entry.place.name) for entry in records.unprotected[:3])
        parts.append(
            f'<p class="alarm">{len(records.unprotected)} of these runs had no privacy protection at all ({places}'
            f"{', …' if len(records.unprotected) > 3 else ''}). What they released, if it was given to anyone, is not "
            f"covered by any number on this page.</p>"
        )
    if records.unnoised:
        said = "; ".join(f"{_name(holder)}: {_text(words)}" for holder, words in records.unnoised.items())
        parts.append(
            f'<p class="alarm">Rounds that were answered without noise: {said}. '
            f"No number on this page covers what they gave away of training records.</p>"
        )
    if not records.totals:
        return parts
    worst = records.totals[0]
    return [
        *parts,
        _headline(worst, one, len(records.entries) - len(records.unprotected)),
        _odds_table(worst),
        _holders(records),
        _runs(records.entries),
    ]


def _headline(worst: Total, one: str, runs: int) -> str:
    many = "the one run" if runs == 1 else f"all {runs} runs together, tuning runs included"
    said = (
        f"<p class='big'>ε = {worst.epsilon:.2f} <small>at δ = {worst.delta:g}</small></p>"
        f"<p>This is what may have been given away about any {_name(one)} at the holder that spent most, over {many}. "
    )
    if worst.planned is not None and worst.planned < worst.epsilon - 0.005:
        why = "It adds up the runs, which holds however later runs were chosen."
        if worst.used is not None:
            why = "It is the whole budget of the node, which holds however its runs are chosen, and whatever follows."
        said += (
            f"{why} If all runs had been fixed before the first began, it would be ε = {worst.planned:.2f} at "
            f"δ = {worst.planned_delta:g}. "
        )
    return said + f"The promise may fail with a probability of at most δ, {_one_in(worst.delta)}.</p>"


def _odds_table(worst: Total) -> str:
    rows = "".join(
        f"<tr><td>{before:.0%}</td><td><b>{_percent(odds(worst.epsilon, before))}</b></td></tr>" for before in BEFORE
    )
    return (
        "<p>In odds: whoever sees everything that was released, and knows all other records, can become at most this "
        "sure that a given one was used in training:</p>"
        f"<table class='odds'><thead><tr><th>sure beforehand</th><th>afterwards at most</th></tr></thead>{rows}</table>"
    )


def _holders(records: Records) -> str:
    """Equal rows are one row; of many different ones the dearest are shown and the rest counted."""
    groups: dict[tuple[object, ...], list[Total]] = {}
    for total in records.totals:
        key = (round(total.epsilon, 4), total.delta, total.planned and round(total.planned, 4), total.runs)
        groups.setdefault((*key, total.budget, total.used), []).append(total)
    shown = list(groups.values())
    rows = []
    for group in shown[:MOST_HOLDERS]:
        total = group[0]
        spent = total.epsilon if total.used is None else total.used
        used = "–" if not total.budget else f"{spent / total.budget:.0%} of {total.budget:g}"
        planned = "–" if total.planned is None else f"{total.planned:.2f}"
        rows.append((_names([each.holder for each in group]), total.runs, f"{total.epsilon:.2f}", planned, used))
    left = sum(len(group) for group in shown[MOST_HOLDERS:])
    rest = f"<p class='soft'>and {left} more holders that spent less.</p>" if left else ""
    note = ""
    if records.moved:
        note = (
            "<p class='soft'>The runs dealt the records out to clients in different ways, so a record cannot be "
            "followed: counted is the client that spent most in each run. A record may have been a test record, which "
            "is not protected, in some of them.</p>"
        )
    heads = ("data holder", "runs", "ε in all", "ε if fixed before", "of its budget")
    return "<h3>Spent by each data holder</h3>" + _table(heads, rows) + rest + note


def _runs(entries: Sequence[Entry]) -> str:
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        spent = None if entry.epsilon is None else round(entry.epsilon, 2)
        key = (entry.date, entry.kind, entry.method, entry.state, spent, entry.delta)
        groups.setdefault(key, []).append(entry)
    rows = []
    shown = list(groups.values())
    for group in shown[-MOST_RUNS:]:
        entry = group[0]
        what = _name(entry.place.name) if len(group) == 1 else f"{len(group)} runs, from {_name(entry.place.name)}"
        epsilon = "none" if entry.epsilon is None else f"{entry.epsilon:.2f}"
        delta = "–" if entry.delta is None else f"{entry.delta:g}"
        rows.append((entry.date, what, _text(entry.method), _text(entry.state), len(entry.holders), epsilon, delta))
    left = sum(len(group) for group in shown[:-MOST_RUNS])
    rest = f"<p class='soft'>and {left} earlier ones, which are counted above.</p>" if left else ""
    heads = ("date", "run or node", "method", "state", "holders", "ε", "δ")
    return "<h3>Register</h3>" + _table(heads, rows) + rest


def _who(entries: Sequence[Entry]) -> str:
    seeded = any(entry.seeded for entry in entries)
    evaluations = sum(entry.evaluations for entry in entries)
    # Where something left without noise, a plain yes would be wrong.
    bare = any(entry.unnoised or not entry.holders for entry in entries)
    but = ". <b>No: of what was trained without noise (above)</b>" if bare else ""
    noised = "only noised sums leave a holder" if not bare else "noised sums leave a holder"
    rows = [
        ("the coordinating server", "every upload of every round", f"yes, by ε: {noised}{but}"),
        ("other data holders", "the shared model", f"yes: it is made of those uploads alone{but}"),
        ("whoever uses the model", "the finished model", f"yes, for ever: using it costs nothing more{but}"),
        ("the data holder itself", "its own records", "no: they stay where they are"),
    ]
    if evaluations:
        rows.append(
            ("the server, by evaluation", f"{evaluations} exact results on test records", "no: test records are not")
        )
    if seeded:
        rows.append(("whoever knows the seed", "the noise itself", "no: a run with a seed is a simulation"))
    return "<h2>Who is protected from whom</h2>" + _table(("from", "who sees", "protected"), rows)


def _not_covered(found: Sequence[Records]) -> str:
    entries = [entry for records in found for entry in records.entries]
    lines = [
        "runs whose folders were deleted or are kept elsewhere: only what is in the register is counted",
        *(
            ["files of different names are taken for different records; if they hold the same, add their ε"]
            if len(found) > 1
            else []
        ),
        *NOT_COVERED[1:],
    ]
    said = distinct(entries)
    if len(said) > MOST_WARNINGS:
        more = f"{len(said) - MOST_WARNINGS} more warnings: they are in the statements (privacy.md) of the runs"
        said = [*said[:MOST_WARNINGS], more]
    warnings = "".join(f"<li class='alarm'>{_text(line)}.</li>" for line in said)
    return (
        "<h2>What is not covered</h2><ul>" + warnings + "".join(f"<li>{_text(line)}.</li>" for line in lines) + "</ul>"
    )


def _terms() -> str:
    terms = {
        "ε (epsilon)": "how much the released values may change the odds of any guess about one unit, by a factor of "
        "e^ε at most. 0 gives away nothing; the larger, the weaker; above about 10 it says little.",
        "δ (delta)": "the probability with which that may fail. It should be far below 1 divided by the number of "
        "records.",
        "ledger": "a holder’s own account. Every release is written into it before the noise is drawn.",
        "budget": "the ε at which a holder’s program refuses to go on.",
        "noise": "random numbers added to a sum over many records, so that no single one can be read from it.",
    }
    found = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in terms.items())
    return f"<h2>Terms</h2><dl>{found}</dl>"


def _table(heads: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells are HTML already; each knows its head, for narrow screens."""
    heads = list(heads)
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td data-head="{name}">{cell}</td>' for name, cell in zip(heads, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table class='rows'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _names(names: list[str]) -> str:
    if names == [ANYONE]:
        return "any holder"
    if len(names) <= 3:
        return ", ".join(map(_name, names))
    return f"each of {len(names)}: {_name(names[0])}, {_name(names[1])}, …"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.9995 else "more than 99.9%"


def _one_in(delta: float) -> str:
    return f"1 in {round(1 / delta):,}" if 0 < delta <= 0.5 else f"{delta:.0%}"


def _text(value: object) -> str:
    """Text as HTML, on one line."""
    line = "".join(sign if sign.isprintable() else " " for sign in str(value))
    return html.escape(line)


def _name(value: object) -> str:
    """A name that somebody gave, cut where room is short."""
    line = str(value)
    return _text(line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + "…")
