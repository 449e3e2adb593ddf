// What one run reached, in a sentence, in its main numbers, and whole.
function sentence(run) {
  const r = run.result,
    parts = [];
  if (known(r.accuracy))
    parts.push(
      `${form.percent(r.accuracy)} of the test records right, ${form.percent(r.worst_accuracy)} at the client it serves worst`,
    );
  else if (known(r.loss))
    parts.push(`test loss ${form.number(r.loss)}, ${form.number(r.worst_loss)} at the client it serves worst`);
  if (known(r.psi)) parts.push(`Ψ = ${form.number(r.psi)}`);
  if (!run.private) parts.push("not private");
  else if (known(r.epsilon))
    parts.push(`ε = ${form.epsilon(r.epsilon)} at δ = ${form.delta(r.delta)} for every ${run.unit}`);
  const clients = run.clients.names.length;
  return `${form.text(run.method)} on ${form.text(run.data)}, ${clients} ${clients === 1 ? "client" : "clients"}, ${run.round} rounds: ${parts.join("; ") || "no measures yet"}.`;
}

drawings.summary = (run) => {
  const r = run.result,
    cards = [];
  const card = (name, value, small) =>
    cards.push(el("div", {}, el("dt", {}, name), el("dd", {}, value, small ? el("small", {}, small) : null)));
  const lead = shownIn("line", run.task).filter((one) => known(r[one.name])),
    beside = shownIn("result", run.task).filter((one) => known(r[one.name]));
  for (const metric of Object.values(metrics).filter((one) => lead.includes(one) || beside.includes(one))) {
    const ends = (metric.interval || []).map((name) => r[name]),
      between = ends.length && ends.every(known) ? `95 % interval ${ends.map(form.percent).join(" to ")}; ` : "";
    card(told(metric.title, [run]), form[metric.form](r[metric.name]), between + told(metric.about, [run]));
  }
  card(
    "ε",
    run.private ? form.epsilon(r.epsilon) : "none",
    run.private
      ? `δ = ${form.delta(r.delta)}${known(r.epsilon_budget) ? `; ${(100 * r.epsilon / r.epsilon_budget).toFixed(0)} % of the budget of ${r.epsilon_budget} used` : ""}`
      : "this run is not private",
  );
  card(
    "rounds",
    String(run.round),
    run.finished
      ? known(r.seconds)
        ? `in ${form.seconds(r.seconds)} s`
        : null
      : `of ${run.rounds ?? "?"}: not finished`,
  );
  const rows = Object.values(metrics).filter(
    ({ name, tasks }) => r[name] !== null && r[name] !== undefined && tasks.includes(run.task),
  );
  return [
    paragraph(sentence(run), "lead"),
    run.finished
      ? null
      : warning(
          `This run is not finished: everything below is as of round ${run.round}. Continue it with: fedfdp run --resume ${plain(run.folder)}`,
        ),
    ...run.verdict.map((line) => warning(`${line[0].toUpperCase()}${line.slice(1)}.`)),
    el("dl", { class: "cards" }, cards),
    el(
      "details",
      {},
      el("summary", {}, "Every measure"),
      ...(rows.length
        ? [
            tableView({
              title: `Measures of ${run.name}`,
              columns: [
                { name: "measure", kind: "text" },
                { name: "value", kind: "text" },
                { name: "what it is", kind: "text" },
              ],
              rows: rows.map((one) => [told(one.title, [run]), String(r[one.name]), told(one.about, [run])]),
            }),
          ]
        : []),
    ),
  ];
};
