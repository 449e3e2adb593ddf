"""The rounds of a run, the client of a round, what the server does between rounds. Knows no files and no screens."""
