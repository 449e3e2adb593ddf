"""What each client has spent, on disk before anything is drawn."""

from fedfdp.privacy.ledger.book import LedgerBook
from fedfdp.privacy.ledger.ledger import Ledger

__all__ = ["Ledger", "LedgerBook"]
