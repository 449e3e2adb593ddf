"""What everything else stands on: weights, records, settings, errors. Imports nothing of the rest."""
