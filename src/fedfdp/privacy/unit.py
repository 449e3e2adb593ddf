"""Whom a guarantee is for, in words: the one source of them for terminal, statement, report and officer's page."""

from dataclasses import dataclass

RECORD = "record"


@dataclass(frozen=True)
class Unit:
    """What is protected as one: a record, or all records with the same value in a column."""

    name: str = RECORD  # "record", or the column that tells the units apart

    @property
    def is_record(self) -> bool:
        return self.name == RECORD

    @property
    def one(self) -> str:
        """For "every …", "one …"."""
        return self.name

    @property
    def many(self) -> str:
        """For "how many …". A column's name is left as it is: its plural is anyone's guess."""
        return f"{self.name}s" if self.name in (RECORD, "person") else f"values of {self.name}"

    @property
    def in_words(self) -> str:
        """What one unit is."""
        if self.is_record:
            return "one record of one client"
        return f"one {self.name} at one client: all records with one value in column {self.name}"
