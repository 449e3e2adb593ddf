// What one run reached and what it guarantees. Each section is {id, title, parts}.
const measureNames = {
  accuracy: "accuracy",
  worst_accuracy: "worst client",
  worst_10_percent: "worst tenth of clients",
  std_accuracy: "spread over clients (standard deviation)",
  jain: "Jain's index of the accuracies",
  psi: "Ψ test",
  psi_train: "Ψ train",
  psi_local: "Ψ of local models",
  loss: "loss",
  worst_loss: "worst client's loss",
  epsilon: "ε",
  delta: "δ",
  epsilon_budget: "ε budget",
  sigma: "σ",
  accountant: "accountant",
  seconds: "seconds",
  records: "training records",
  weights: "weights of the model",
};
const measureKinds = {
  accuracy: "percent",
  worst_accuracy: "percent",
  worst_10_percent: "percent",
  std_accuracy: "percent",
  epsilon: "epsilon",
  seconds: "seconds",
  records: "count",
  weights: "count",
  accountant: "text",
};
const paragraph = (text, kind) => el("p", { class: kind }, text);
const warning = (text) => el("p", { class: "note", role: "note" }, text);
const list = (lines) =>
  el(
    "ul",
    { class: "plain" },
    lines.map((line) => el("li", {}, plain(line))),
  );
const classification = (run) => known(run.result.accuracy) || run.history.accuracy.some(known);

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
    parts.push(`ε = ${form.epsilon(r.epsilon)} at δ = ${form.delta(r.delta)} for every record`);
  const clients = run.clients.names.length;
  return `${form.text(run.method)} on ${form.text(run.data)}, ${clients} ${clients === 1 ? "client" : "clients"}, ${run.round} rounds: ${parts.join("; ") || "no measures yet"}.`;
}

function summarySection(run) {
  const r = run.result,
    cards = [];
  const card = (name, value, small) =>
    cards.push(el("div", {}, el("dt", {}, name), el("dd", {}, value, small ? el("small", {}, small) : null)));
  if (classification(run)) {
    card("accuracy", form.percent(r.accuracy), "of all test records");
    card("worst client", form.percent(r.worst_accuracy));
  } else {
    card("loss", form.number(r.loss), "on test records");
    card("worst client's loss", form.number(r.worst_loss));
  }
  card("Ψ", form.number(r.psi), `variance of the clients' test ${run.metric === "loss" ? "losses" : run.metric}`);
  card(
    "ε",
    run.private ? form.epsilon(r.epsilon) : "none",
    run.private
      ? `δ = ${form.delta(r.delta)}${known(r.epsilon_budget) ? `, budget ${r.epsilon_budget}` : ""}`
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
  const rows = Object.keys(measureNames).filter((name) => r[name] !== null && r[name] !== undefined);
  return {
    id: "summary",
    title: "Summary",
    parts: [
      paragraph(sentence(run), "lead"),
      run.finished
        ? null
        : warning(
            `This run is not finished: everything below is as of round ${run.round}. Continue it with: fedfdp run --resume ${plain(run.folder)}`,
          ),
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
                ],
                rows: rows.map((name) => [measureNames[name], String(r[name])]),
              }),
            ]
          : []),
      ),
    ],
  };
}

function privacySection(run) {
  const p = run.privacy,
    parts = [];
  if (!p) {
    parts.push(
      run.private
        ? warning(
            `No statement was written yet: it comes when a run ends or is interrupted. By the last evaluation, at round ${
              run.round
            }, at most ε = ${form.epsilon(run.result.epsilon)} was spent, at δ = ${form.delta(run.result.delta)}.`,
          )
        : warning(
            "This run is not private. Nothing was clipped or noised: uploads, and the model, may reveal records.",
          ),
    );
    return { id: "privacy", title: "Privacy statement", parts };
  }
  const m = p.mechanism,
    other = known(p.epsilon_replace_one) ? form.epsilon(p.epsilon_replace_one) : "not known";
  parts.push(
    paragraph(
      `Every record of every client is protected with ε = ${form.epsilon(p.epsilon)} at δ = ${form.delta(p.delta)} (zero-out of one record; where one record is replaced by another: ${
        other
      }), against a server that sees every upload. Accountant: ${p.accountant}.`,
      "lead",
    ),
  );
  if (!run.finished)
    parts.push(
      warning(
        `The statement was written at round ${p.rounds}, the last evaluation is of round ${run.round}: the run is not finished.`,
      ),
    );
  for (const line of p.warnings || []) parts.push(warning(`Warning: ${plain(line)}.`));
  const beside = (m.sigma_beside || []).length
    ? ` What is released beside the gradient has noise multipliers ${m.sigma_beside.join(", ")}.`
    : "";
  parts.push(
    el("h4", {}, "Mechanism"),
    paragraph(
      `${plain(p.algorithm)}, ${p.rounds} rounds. ${m.name}. Each record enters a batch with probability q = ${m.sampling.q}; which ones stays secret. Each gradient is cut to norm C = ${
        m.clip
      }, and noise of σ·C with σ = ${m.sigma} is added to their sum.${beside} Unit: ${p.unit}.`,
    ),
    el("h4", {}, "What leaves a client"),
    list([
      ...Object.entries(p.released).map(([name, meaning]) => `${name}: ${meaning}`),
      "the number of its records, as a public fact",
    ]),
    el("h4", {}, "Assumptions"),
    list(p.assumptions),
    el("h4", {}, "Not covered"),
    list(p.not_covered),
    tableView({
      title: `Privacy spent by client, ${run.name}`,
      columns: [
        { name: "client", kind: "text" },
        { name: "records", kind: "count" },
        { name: "ε", kind: "epsilon" },
        { name: "ε, replace-one", kind: "epsilon" },
        { name: "budget", kind: "number" },
      ],
      rows: p.clients.map((c) => [c.client, c.records, c.epsilon, c.epsilon_replace_one, c.budget]),
    }),
    ...((p.remarks || []).length ? [list(p.remarks)] : []),
    paragraph(
      `Computed with ${Object.entries(p.versions)
        .map(([name, number]) => `${name} ${number}`)
        .join(", ")}.`,
      "soft",
    ),
  );
  return { id: "privacy", title: "Privacy statement", parts };
}
