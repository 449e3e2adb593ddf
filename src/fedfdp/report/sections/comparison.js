// The runs beside each other.
drawings.comparison = (runs) => {
  const hidden = new Set(),
    series = (make) => runs.map((run, i) => ({ label: labelOf(run), style: styleOf(i), ...make(run) }));
  const task = taskOf(runs),
    { name: served, form: servedKind, better } = shownIn("line", task)[0];
  const figures = [],
    datasets = new Set(runs.map((run) => run.data)).size,
    partitions = new Set(runs.map((run) => `${run.partition} ${run.data}`)).size;
  const front = (run) => facts.front.includes(run.number);
  // What is the same for all runs is said once, not in every row.
  const same = (value) => new Set(runs.map(value)).size === 1;
  const texts = [
    ["state", "text", (r) => (r.finished ? "finished" : `at round ${r.round}`)],
    ["method", "text", (r) => r.method],
    ["data", "text", (r) => r.data],
    ["δ", "delta", (r) => r.result.delta],
  ];
  const shared = texts.filter(([, , value]) => same(value) && value(runs[0]) !== null),
    measured = (name) => runs.some((r) => known(r.result[name]));
  const columns = [
    ["#", "count", (r) => r.number],
    ["run", "text", (r) => r.name],
    ...texts.filter(([, , value]) => !same(value)),
    ...shownIn("column", task)
      .filter(({ name }) => measured(name))
      .map(({ name, column, form }) => [told(column, runs), form, (r) => r.result[name]]),
    ["front", "text", (r) => (front(r) ? "yes" : "no")],
  ];
  const parts = [
    paragraph(
      `${runs.length} runs. Those on the front (shaded) are beaten by no other on the same records at the same clients in ${served}, Ψ and ε together; a run without privacy counts as ε = ∞, an unfinished one does not take part.`,
      "lead",
    ),
    shared.length
      ? paragraph(`All of them: ${shared.map(([name, kind, value]) => `${name} ${form[kind](value(runs[0]))}`).join("; ")}.`)
      : null,
    partitions > datasets
      ? warning(
          `The records were dealt out to clients or split into training and test in ${partitions} ways: runs on different ones are not on the same data, and their numbers differ by that too.`,
        )
      : null,
    datasets > 1 ? warning(`The runs are on ${datasets} data sets: accuracy and Ψ compare only within one.`) : null,
    tableView({
      title: "The runs beside each other",
      columns: columns.map(([name, kind]) => ({ name, kind })),
      rows: runs.map((run) => columns.map(([, , value]) => value(run))),
      marked: runs.flatMap((run, i) => (front(run) ? [i] : [])),
    }),
  ];
  if (facts.seeds.length) parts.push(tableView(seedsTable(runs, task)));
  if (facts.differing.length)
    parts.push(
      el(
        "details",
        {},
        el("summary", {}, "Settings in which the runs differ"),
        tableView({
          title: "Settings in which the runs differ",
          columns: [
            { name: "#", kind: "count" },
            { name: "run", kind: "text" },
            ...facts.differing.map((name) => ({ name, kind: "text" })),
          ],
          rows: runs.map((run) => [run.number, run.name, ...facts.differing.map((name) => run.settings[name] ?? null)]),
        }),
      ),
    );
  const points = (x) =>
    series((run) => ({ number: run.number, x: run.result[x], y: run.result[served], front: front(run) }));
  const filled = `Numbers are those of the table; filled: on the front of ${served}, Ψ and ε.`;
  figures.push(
    pointFigure({
      title: `Pareto: ${served} and Ψ`,
      note: filled,
      points: points("psi"),
      xLabel: "Ψ test (to the left: fairer)",
      xKind: "number",
      yKind: servedKind,
      log: true,
      missing: null,
      hidden,
      columns: ["Ψ", served],
    }),
    pointFigure({
      title: `Pareto: ${served} and ε`,
      note: filled,
      points: points("epsilon"),
      xLabel: "ε (to the left: more private)",
      xKind: "epsilon",
      yKind: servedKind,
      log: false,
      missing: "no privacy",
      hidden,
      columns: ["ε", served],
    }),
    ...curveFigures(runs, {
      hidden,
      linesOf: ([{ name }]) => series((run) => ({ x: run.history.round, y: run.history[name] })),
    }),
    lineFigure({
      title: `${served[0].toUpperCase()}${served.slice(1)} by client, worst first`,
      note: "At the last evaluation: the flatter, the more equally clients are served.",
      series: series((run) => {
        const values = (last(run.clients[served]) || [])
          .filter(known)
          .sort((a, b) => (better === "higher" ? a - b : b - a));
        return { x: values.map((_, i) => i + 1), y: values };
      }),
      kind: servedKind,
      xLabel: "client, worst first",
      xName: "client",
      hidden,
    }),
  );
  parts.push(
    el("h3", { class: "legend-title" }, "Runs shown in the figures"),
    legendOf(
      series(() => ({})),
      hidden,
      () => figures.forEach((one) => one.render()),
    ),
    el("p", {}),
    el(
      "div",
      { class: "figures" },
      figures.map((one) => one.node),
    ),
  );
  return parts;
};

function seedsTable(runs, task) {
  const averaged = shownIn("column", task).filter(({ name }) => name in facts.seeds[0].mean);
  return {
    title: "Means over runs that differ only in their seeds, with sample standard deviations",
    columns: [
      { name: "runs", kind: "text" },
      { name: "n", kind: "count" },
      { name: "method", kind: "text" },
      { name: "data", kind: "text" },
      ...averaged.map(({ column }) => ({ name: `${told(column, runs)} ±`, kind: "text" })),
    ],
    rows: facts.seeds.map((group) => [
      group.runs.join(" "),
      group.runs.length,
      group.method,
      group.data,
      ...averaged.map(({ name, form: kind }) =>
        known(group.mean[name]) ? `${form[kind](group.mean[name])} ± ${form[kind](group.spread[name])}` : null,
      ),
    ]),
  };
}
