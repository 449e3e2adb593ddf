// One run over its rounds: every metric that has a curve.
drawings.rounds = (run) => {
  const h = run.history,
    budget = run.result.epsilon_budget;
  if (!h.round.length) return [paragraph("The model has not been evaluated yet.")];
  const limits = known(budget) ? { epsilon: { value: budget, label: `budget ${budget}` } } : {};
  let index = 0;
  const figures = curveFigures([run], {
    limits,
    ownLegend: true,
    linesOf: (group) =>
      group.map(({ name, curve }) => ({ label: curve.label, x: h.round, y: h[name], style: styleOf(index++) })),
  });
  return [
    el(
      "div",
      { class: "figures" },
      figures.map((one) => one.node),
    ),
  ];
};
