"""The ledgers of many clients in one file: one lock, one descriptor, and for each client its own budget and history."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fedfdp.privacy.accounting.events import Adjacency, Event, History, contains
from fedfdp.privacy.ledger.file import Entry
from fedfdp.privacy.ledger.ledger import Ledger, Ledgers
from fedfdp.privacy.ledger.periods import Dates


class LedgerBook(AbstractContextManager["LedgerBook"]):
    """What a simulation keeps for its clients, and a node for its one holder."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers, self._file = ledgers, ledgers.file

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        data: str,
        config: str,
        budgets: Mapping[str, float | None],
        delta: float,
        accountant: str = "pld",
        expects: Sequence[Event] = (),
        sync: bool = True,
        dates: Dates | None = None,
    ) -> "LedgerBook":
        """Begins or resumes the file (None: in memory). A file of other data, config, clients or budgets is refused.

        `expects` is what a round will probably cost, by what is public before the first release: a filter fixes its
        order by it, once and for all, when the file is begun. Without it the first charge fixes the order.
        sync=False is for simulations: charges survive a crash of the process, and a power failure only after `sync()`.
        Call it before anything that came of a charge is written.
        `dates` is for the book of one client: its charges are dated, and fit a calendar period's limit too.
        """
        ledgers = Ledgers(
            path, budgets, data=data, config=config, delta=delta, accountant=accountant, expects=expects, sync=sync,
            dates=dates,
        )  # fmt: skip
        return cls(ledgers)

    def ledger(self, client: str) -> Ledger:
        return self._ledgers.of(client)

    def epsilon(self, adjacency: Adjacency = "zero-out") -> float:
        """What may be claimed for the client that spent most, exact."""
        return max((ledger.epsilon(adjacency) for ledger in self._dearest()), default=0.0)

    def epsilon_so_far(self) -> float:
        """How much the client that spent most has used up, for display after every round; see `Ledger`."""
        return max((ledger.epsilon_so_far() for ledger in self._dearest()), default=0.0)

    def used(self) -> dict[str, float]:
        """How much each client that was charged has used up; computed once for all with the same budget and history."""
        found: dict[object, float] = {}
        used: dict[str, float] = {}
        for name, ledger in self._ledgers.charged.items():
            kind = name if ledger.any_price else (ledger.budget, ledger.history)  # each filter counts at its own order
            if kind not in found:
                found[kind] = ledger.epsilon_so_far()
            used[name] = found[kind]
        return used

    def charged(self) -> int:
        """Events charged so far, over all clients: a ledger only ever grows."""
        return sum(count for ledger in self._ledgers.charged.values() for _, _, count in ledger.history)

    def entries(self) -> Iterator[Entry]:
        return self._file.entries()

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dearest(self) -> list[Ledger]:
        """The ledgers that may have spent most: one of each history, without those contained in another."""
        ledgers = list(self._ledgers.charged.values())
        if any(ledger.any_price for ledger in ledgers):  # filters: each counts at its own order, and is cheap
            return ledgers
        different: dict[History, Ledger] = {ledger.history: ledger for ledger in ledgers}
        dearest: list[Ledger] = []
        for history in sorted(different, key=lambda history: -sum(count for _, _, count in history)):
            if not any(contains(other.history, history) for other in dearest):
                dearest.append(different[history])
        return dearest
