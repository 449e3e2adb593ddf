"""What each client has spent, on disk before anything is drawn."""

from fedfdp.privacy.ledger.ledger import Ledger, LedgerBook

__all__ = ["Ledger", "LedgerBook"]
