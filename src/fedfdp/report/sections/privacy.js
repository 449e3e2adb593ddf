// What one run guarantees: its privacy statement.
drawings.privacy = (run) => {
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
    return parts;
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
  return parts;
};
