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
      group
        .filter(({ name }) => h[name].some(known))
        .map(({ name, curve, interval }) => ({
          ...{ label: curve.label, x: h.round, y: h[name], style: styleOf(index++) },
          ...(interval && h[interval[0]].some(known) ? { low: h[interval[0]], high: h[interval[1]] } : {}),
        })),
  });
  return [
    el(
      "div",
      { class: "figures" },
      figures.map((one) => one.node),
    ),
  ];
};
