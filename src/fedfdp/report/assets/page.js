// The page: the runs beside each other where there are several, then one run, chosen by the reader.
const runs = facts.runs,
  several = runs.length > 1;
const labelOf = (run) => (several ? `${run.number} ${run.name}` : run.name);

function comparisonSection() {
  const hidden = new Set(),
    series = (make) => runs.map((run, i) => ({ label: labelOf(run), style: styleOf(i), ...make(run) }));
  const classed = runs.some(classification),
    served = classed ? "accuracy" : "loss",
    servedKind = classed ? "percent" : "number";
  const worst = classed ? "worst_accuracy" : "worst_loss",
    figures = [],
    datasets = new Set(runs.map((run) => run.data)).size;
  const front = (run) => facts.front.includes(run.number);
  const columns = [
    ["#", "count", (r) => r.number],
    ["run", "text", (r) => r.name],
    ["state", "text", (r) => (r.finished ? "finished" : `at round ${r.round}`)],
    ["method", "text", (r) => r.method],
    ["data", "text", (r) => r.data],
    [served, servedKind, (r) => r.result[served]],
    [classed ? "worst client" : "worst loss", servedKind, (r) => r.result[worst]],
    ["Ψ test", "number", (r) => r.result.psi],
    ["Ψ train", "number", (r) => r.result.psi_train],
    ["ε", "epsilon", (r) => r.result.epsilon],
    ["δ", "delta", (r) => r.result.delta],
    ["rounds", "count", (r) => r.round],
    ["seconds", "seconds", (r) => r.result.seconds],
    ["on the front", "text", (r) => (front(r) ? "yes" : "no")],
  ];
  const parts = [
    paragraph(
      `${runs.length} runs. Those on the front (shaded) are beaten by no other on the same data in ${served}, Ψ and ε together; a run without privacy counts as ε = ∞, an unfinished one does not take part.`,
      "lead",
    ),
    datasets > 1 ? warning(`The runs are on ${datasets} data sets: accuracy and Ψ compare only within one.`) : null,
    tableView({
      title: "The runs beside each other",
      columns: columns.map(([name, kind]) => ({ name, kind })),
      rows: runs.map((run) => columns.map(([, , value]) => value(run))),
      marked: runs.flatMap((run, i) => (front(run) ? [i] : [])),
    }),
  ];
  if (facts.seeds.length) parts.push(tableView(seedsTable(served, servedKind, worst)));
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
  const filled = "Numbers are those of the table; filled: on the front of accuracy, Ψ and ε.".replace(
    "accuracy",
    served,
  );
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
    lineFigure({
      title: classed ? "Test accuracy by round" : "Test loss by round",
      series: series((run) => ({ x: run.history.round, y: run.history[served] })),
      kind: servedKind,
      within: classed ? [0, 1] : undefined,
      xLabel: "round",
      hidden,
    }),
    psiFigure(
      series((run) => ({ x: run.history.round, y: run.history.psi })),
      hidden,
    ),
  );
  if (runs.some((run) => run.history.epsilon.some(known)))
    figures.push(
      epsilonFigure(
        series((run) => ({ x: run.history.round, y: run.history.epsilon })),
        null,
        hidden,
      ),
    );
  figures.push(
    lineFigure({
      title: `${classed ? "Accuracy" : "Loss"} by client, worst first`,
      note: "At the last evaluation: the flatter, the more equally clients are served.",
      series: series((run) => {
        const values = (last(run.clients[served]) || []).filter(known).sort((a, b) => (classed ? a - b : b - a));
        return { x: values.map((_, i) => i + 1), y: values };
      }),
      kind: servedKind,
      within: classed ? [0, 1] : undefined,
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
  return { id: "comparison", title: "Comparison", parts };
}

function seedsTable(served, servedKind, worst) {
  const measures = [
    [served, served, servedKind],
    [worst, measureNames[worst], servedKind],
    ["psi", "Ψ test", "number"],
    ["psi_train", "Ψ train", "number"],
    ["epsilon", "ε", "epsilon"],
  ].filter(([key]) => key in facts.seeds[0].mean);
  return {
    title: "Means over runs that differ only in their seeds, with sample standard deviations",
    columns: [
      { name: "runs", kind: "text" },
      { name: "n", kind: "count" },
      { name: "method", kind: "text" },
      { name: "data", kind: "text" },
      ...measures.flatMap(([, name, kind]) => [
        { name, kind },
        { name: `± ${name}`, kind },
      ]),
    ],
    rows: facts.seeds.map((group) => [
      group.runs.join(" "),
      group.runs.length,
      group.method,
      group.data,
      ...measures.flatMap(([key]) => [group.mean[key], group.spread[key]]),
    ]),
  };
}

const sectionsOf = (run) =>
  [summarySection, privacySection, roundsSection, clientsSection, dataSection, settingsSection].map((make) =>
    make(run),
  );
const view = ({ id, title, parts }) =>
  el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), parts);

function start() {
  const single = el("div", { id: "run" });
  const show = (index) => single.replaceChildren(...sectionsOf(runs[index]).map(view));
  const picker = el(
    "select",
    { id: "picker", onchange: (event) => show(Number(event.target.value)) },
    runs.map((run, i) => el("option", { value: i }, plain(labelOf(run)))),
  );
  const title = several ? `${runs.length} runs` : plain(runs[0].name);
  const comparison = several
    ? [
        view(comparisonSection()),
        el("div", { class: "chooser" }, el("label", { for: "picker" }, "The run below:"), picker),
      ]
    : [];
  show(0);
  const places = [
    ...(several ? [["comparison", "Comparison"]] : []),
    ...["Summary", "Privacy statement", "Over the rounds", "Clients", "Who holds what", "Settings"].map((name, i) => [
      ["summary", "privacy", "rounds", "clients", "data", "settings"][i],
      name,
    ]),
  ];
  document.body.querySelector(".skip").after(
    el(
      "header",
      {},
      el("div", {}, el("h1", {}, el("bdi", {}, title)), paragraph("Federated learning: accuracy, fairness, privacy")),
      themeButton(),
    ),
    el(
      "nav",
      { "aria-label": "Sections" },
      el(
        "ul",
        {},
        places.map(([id, name]) => el("li", {}, el("a", { href: `#${id}` }, name))),
      ),
    ),
    el("main", { id: "main", tabindex: "-1" }, comparison, single),
    el(
      "footer",
      {},
      paragraph(
        `Made by fedfdp ${facts.version} from the run folders alone. Everything is inside this file; it loads nothing.`,
      ),
    ),
  );
}
start();
