"""The rounds of a run, a client's side of one, and what the server does between them. Knows no files and no screens."""
