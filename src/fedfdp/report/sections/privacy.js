// What one run guarantees: its privacy statement, in the statement's own words.
// Clients that spent the same of the same budget are one row.
function spentTable(run) {
  const p = run.privacy,
    groups = new Map();
  for (const c of p.clients) {
    const key = [c.epsilon, c.epsilon_replace_one, c.budget].join();
    groups.set(key, [...(groups.get(key) || []), c]);
  }
  const folded = [...groups.values()].flatMap((group) => (group.length > 3 ? [group] : group.map((c) => [c])));
  const range = (values) => {
    const low = Math.min(...values),
      high = Math.max(...values);
    return low === high ? String(low) : `${low} to ${high}`;
  };
  return {
    title: `Privacy spent by client, ${run.name}`,
    columns: [
      { name: "client", kind: "text" },
      { name: p.many, kind: "text" },
      { name: "ε", kind: "epsilon" },
      { name: "ε, replace-one", kind: "epsilon" },
      { name: "budget", kind: "number" },
      { name: "used", kind: "percent" },
    ],
    rows: folded.map((group) => {
      const [{ client, epsilon, epsilon_replace_one, budget }] = group;
      return [
        group.length === 1
          ? client
          : group.length === p.clients.length
            ? `each of all ${group.length}`
            : `each of ${group.length}: ${cut(group.map((c) => c.client).join(", "), 60)}`,
        range(group.map((c) => c.records)),
        epsilon,
        epsilon_replace_one,
        budget,
        known(budget) ? epsilon / budget : null,
      ];
    }),
  };
}

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
  parts.push(paragraph(plain(p.guarantee), "lead"));
  if (!run.finished)
    parts.push(
      warning(
        `The statement was written at round ${p.rounds}, the last evaluation is of round ${run.round}: the run is not finished.`,
      ),
    );
  for (const line of p.warnings || []) parts.push(warning(`Warning: ${plain(line)}.`));
  parts.push(
    el("h4", {}, "Mechanism"),
    paragraph(plain(p.working)),
    el("h4", {}, "What leaves a client"),
    list(p.leaves.map((line) => line.replaceAll("`", ""))),
    el("h4", {}, "Assumptions"),
    list(p.assumptions),
    el("h4", {}, "Not covered"),
    list(p.not_covered),
    tableView(spentTable(run)),
    ...((p.remarks || []).length ? [list(p.remarks)] : []),
    paragraph(
      `${p.date ? `Written on ${p.date}, computed` : "Computed"} with ${Object.entries(p.versions)
        .map(([name, number]) => `${name} ${number}`)
        .join(", ")}.`,
      "soft",
    ),
  );
  return parts;
};
