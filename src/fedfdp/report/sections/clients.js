// How the model serves each client, and whose updates look poisoned.
const standingOut = (run) => {
  const { named, scores } = run.robust,
    names = Object.keys(named);
  return [
    names.length
      ? warning(
          `May be poisoned, or hold records unlike all others': ${names.map((name) => `${name} (${named[name]})`).join(", ")}.`,
        )
      : paragraph("No client's updates look poisoned."),
    tableView({
      title: `Updates of each client beside the others', ${run.name}`,
      columns: [
        { name: "client", kind: "text" },
        { name: "rounds", kind: "count" },
        { name: "length over expected", kind: "number" },
        { name: "cosine with the others", kind: "number" },
      ],
      rows: Object.entries(scores).map(([name, s]) => [name, s.rounds, s.length, s.cosine]),
    }),
  ];
};

drawings.clients = (run) => {
  const c = run.clients,
    parts = [],
    end = (name) => last(c[name]) || [],
    seen = Object.values(metrics).filter((metric) => metric.by_client && c[metric.name].flat().some(known)),
    // The names of the ends of its interval, if they are kept.
    between = (metric) => metric.interval && end(metric.interval[0]).some(known) && metric.interval,
    title = (metric) => told(metric.title, [run]);
  if (!run.elsewhere)
    parts.push(
      warning(
        "These accuracies and losses are exact and not private outputs of the mechanism: they exist because a simulation holds all records. Of real records they would have to stay with their holder.",
      ),
    );
  else
    parts.push(
      warning(
        run.evaluated || seen.includes(metrics.accuracy)
          ? `This run went across machines. ${run.evaluated ?? "Some"} of ${c.names.length} clients let the model be judged on their own records; of the others nothing is shown.`
          : "This run went across machines and no client let the model be judged on its own records: there is no accuracy, and losses are the noised ones that clients released, smoothed over rounds.",
      ),
    );
  if (run.robust) parts.push(...standingOut(run));
  parts.push(
    tableView({
      title: `Clients of ${run.name}`,
      columns: [
        { name: "client", kind: "text" },
        { name: "training records", kind: "count" },
        { name: "test records", kind: "count" },
        ...seen.flatMap((metric) => [
          { name: title(metric), kind: metric.form },
          ...(between(metric) ? ["from", "to"] : []).map((name) => ({ name, kind: metric.form })),
        ]),
      ],
      rows: c.names.map((name, i) => [
        name,
        c.train?.[i] ?? null,
        c.test?.[i] ?? null,
        ...seen.flatMap((metric) =>
          [metric.name, ...(between(metric) || [])].map((column) => end(column)[i] ?? null),
        ),
      ]),
    }),
  );
  if (!seen.length) parts.push(paragraph("There is no evaluation by client yet."));
  for (const metric of seen.filter(between)) {
    const [low, high] = metric.interval,
      worst = metric.better === "lower" ? -1 : 1;
    parts.push(
      intervalFigure({
        title: `Test ${title(metric)} of each client, with its 95 % interval`,
        note: "The worst served first. A long line: few test records, so little is known.",
        rows: c.names
          .map((name, i) => ({ name, value: end(metric.name)[i], low: end(low)[i], high: end(high)[i] }))
          .sort((a, b) => worst * ((a.value ?? 0) - (b.value ?? 0))),
        label: title(metric),
        kind: metric.form,
        reference: known(run.result.baseline_accuracy)
          ? { value: run.result.baseline_accuracy, label: "always one class" }
          : null,
      }).node,
    );
  }
  parts.push(
    el(
      "div",
      { class: "figures" },
      seen.map(
        (metric) =>
          distributionFigure({
            title: `How many clients have which ${title(metric)}`,
            note: `At round ${last(c.round)}; a stroke for every client.`,
            names: c.names,
            values: end(metric.name),
            label: title(metric),
            kind: metric.form,
          }).node,
      ),
    ),
    ...seen
      .filter((metric) => c[metric.name].filter((row) => row.some(known)).length > 1)
      .map(
      (metric) =>
        multiplesFigure({
          title: `Test ${title(metric)} of each client by round`,
          note: `The ${metric.better ? "worst served" : "lowest"} first; all on the same axes, from zero.`,
          names: c.names,
          rounds: c.round,
          rows: c[metric.name],
          kind: metric.form,
          worstFirst: metric.better === "lower" ? -1 : 1,
        }).node,
    ),
  );
  return parts;
};
