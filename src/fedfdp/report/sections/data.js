// What each client holds: its records, by class where the classes are known.
drawings.data = (run) => {
  const c = run.clients,
    parts = [];
  if (run.elsewhere)
    parts.push(
      warning(
        "This run went across machines: which classes a client holds never left it. Only the numbers of records, which clients declare, are known.",
      ),
    );
  else if (c.classes)
    parts.push(
      warning(
        "Class counts are not private outputs of the mechanism: they exist because a simulation holds all records.",
      ),
    );
  else if (c.noted) parts.push(paragraph("The targets are numbers, not classes: only the records are counted."));
  else
    parts.push(
      paragraph(
        "This run's folder has no clients.json, as runs made before it was kept: which classes a client holds is not known. A new run notes it.",
      ),
    );
  if (c.train)
    parts.push(
      holdingsFigure({
        title: c.classes ? "Training records of each class at each client" : "Training records at each client",
        note: c.classes ? "The stronger, the more records (by square root)." : null,
        names: c.names,
        counts: c.classes,
        totals: c.train,
        called: c.class_names,
      }).node,
    );
  return parts;
};
