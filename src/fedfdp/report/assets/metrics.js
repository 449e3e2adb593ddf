// The metrics, as the registry declares them: their titles, how they are written, and where each is shown.
const metrics = facts.metrics;
const shownIn = (place, task) => facts.shown[task][place].map((name) => metrics[name]);
// A comparison is one of accuracies as soon as one of the runs has them.
const taskOf = (all) => (all.some((run) => run.task === "classification") ? "classification" : "regression");
// A metric's text, with what Ψ is the spread of in these runs put in.
const told = (text, all) =>
  text.replaceAll("{metric}", () =>
    [...new Set(all.map((run) => (run.metric === "loss" ? "losses" : plain(run.metric))))].join(", "),
  );

// A figure for each group of metrics that share one; `linesOf(group)` gives its series. What has no values in any run
// is left out, unless it is one of the main numbers.
function curveFigures(all, { linesOf, limits = {}, hidden, ownLegend = false }) {
  const groups = new Map(),
    found = (metric) => all.some((run) => run.history[metric.name].some(known));
  for (const metric of shownIn("curve", taskOf(all))) {
    if (metric.line === null && !found(metric)) continue;
    groups.set(metric.curve.figure, [...(groups.get(metric.curve.figure) || []), metric]);
  }
  return [...groups.values()].map((group) => {
    const [{ name, form: kind, curve }] = group;
    const made = lineFigure({
      title: `${told(curve.figure, all)} by round`,
      note: told(curve.note, all) || null,
      series: linesOf(group),
      kind,
      log: curve.log,
      zero: curve.zero,
      limit: limits[name] || null,
      xLabel: "round",
      hidden,
      ownLegend,
    });
    return { ...made, group };
  });
}
