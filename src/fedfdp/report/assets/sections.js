// One run over its rounds, by client, by what the clients hold, and its settings. Each section is {id, title, parts}.
function roundsSection(run) {
  const h = run.history,
    of = (label, values, index) => ({ label, x: h.round, y: values, style: styleOf(index) });
  if (!h.round.length)
    return { id: "rounds", title: "Over the rounds", parts: [paragraph("The model has not been evaluated yet.")] };
  const served = classification(run)
    ? lineFigure({
        title: "Test accuracy by round",
        series: [of("all test records", h.accuracy, 0), of("worst client", h.worst_accuracy, 1)],
        kind: "percent",
        within: [0, 1],
        xLabel: "round",
        ownLegend: true,
      })
    : lineFigure({
        title: "Test loss by round",
        series: [of("mean", h.loss, 0), of("worst client", h.worst_loss, 1)],
        kind: "number",
        xLabel: "round",
        ownLegend: true,
      });
  const figures = [served, psiFigure([of("Ψ", h.psi, 2)])];
  if (h.epsilon.some(known)) {
    const budget = run.result.epsilon_budget;
    figures.push(
      epsilonFigure([of("ε", h.epsilon, 3)], known(budget) ? { value: budget, label: `budget ${budget}` } : null),
    );
  }
  return {
    id: "rounds",
    title: "Over the rounds",
    parts: [
      el(
        "div",
        { class: "figures" },
        figures.map((one) => one.node),
      ),
    ],
  };
}
const psiFigure = (series, hidden) =>
  lineFigure({
    title: "Ψ by round",
    note: "Variance of the clients' test losses: the lower, the more equally they are served.",
    series,
    kind: "number",
    log: true,
    xLabel: "round",
    hidden,
  });
const epsilonFigure = (series, limit, hidden) =>
  lineFigure({
    title: "ε spent by round",
    note: "Of the client that spent most; while a run goes on this is an upper bound, at most about half a percent above.",
    series,
    kind: "epsilon",
    zero: true,
    within: [0, Infinity],
    limit,
    xLabel: "round",
    hidden,
  });

function clientsSection(run) {
  const c = run.clients,
    parts = [],
    end = (name) => last(c[name]) || [],
    ids = c.names.map((_, i) => i);
  const seen = { accuracy: c.accuracy.flat().some(known), loss: c.loss.flat().some(known) };
  if (!run.elsewhere)
    parts.push(
      warning(
        "These accuracies and losses are exact and not private outputs of the mechanism: they exist because a simulation holds all records. Of real records they would have to stay with their holder.",
      ),
    );
  else
    parts.push(
      warning(
        run.evaluated || seen.accuracy
          ? `This run went across machines. ${run.evaluated ?? "Some"} of ${c.names.length} clients let the model be judged on their own records; of the others nothing is shown.`
          : "This run went across machines and no client let the model be judged on its own records: there is no accuracy, and losses are the noised ones that clients released, smoothed over rounds.",
      ),
    );
  parts.push(
    tableView({
      title: `Clients of ${run.name}`,
      columns: [
        { name: "client", kind: "text" },
        { name: "training records", kind: "count" },
        { name: "test records", kind: "count" },
        { name: "accuracy", kind: "percent" },
        { name: "loss", kind: "number" },
      ],
      rows: ids.map((i) => [
        c.names[i],
        c.train?.[i] ?? null,
        c.test?.[i] ?? null,
        end("accuracy")[i] ?? null,
        end("loss")[i] ?? null,
      ]),
    }),
  );
  if (!seen.accuracy && !seen.loss) parts.push(paragraph("There is no evaluation by client yet."));
  const each = (name, make) =>
    ["accuracy", "loss"]
      .filter((name) => seen[name])
      .map((name) => make(name, name === "accuracy" ? "percent" : "number").node);
  parts.push(
    el(
      "div",
      { class: "figures" },
      each("", (name, kind) =>
        distributionFigure({
          title: `How many clients have which ${name}`,
          note: `At round ${last(c.round)}; a stroke for every client.`,
          names: c.names,
          values: end(name),
          kind,
        }),
      ),
    ),
  );
  parts.push(
    ...each("", (name, kind) =>
      multiplesFigure({
        title: `Test ${name} of each client by round`,
        note: "The worst served first; all on the same axes, from zero.",
        names: c.names,
        rounds: c.round,
        rows: c[name],
        kind,
        worstFirst: name === "accuracy" ? 1 : -1,
      }),
    ),
  );
  return { id: "clients", title: "Clients", parts };
}

function dataSection(run) {
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
      }).node,
    );
  return { id: "data", title: "Who holds what", parts };
}

function settingsSection(run) {
  return {
    id: "settings",
    title: "Settings",
    parts: [
      el(
        "details",
        {},
        el("summary", {}, "Every setting of the run"),
        tableView({
          title: `Settings of ${run.name}`,
          columns: [
            { name: "setting", kind: "text" },
            { name: "value", kind: "text" },
          ],
          rows: Object.entries(run.settings),
        }),
      ),
    ],
  };
}
