// How well each class is recognised, and what is taken for what.
drawings.classes = (run) => {
  const c = run.by_class;
  if (!c)
    return [
      paragraph(
        run.task === "regression"
          ? "The targets are numbers: there are no classes."
          : run.elsewhere
            ? "This run went across machines: nodes give out their loss and accuracy, and nothing by class."
            : "This run kept nothing by class.",
      ),
    ];
  const parts = [
    intervalFigure({
      title: "Recall of each class",
      note: "The share of a class's test records that is recognised, with its 95 % interval.",
      rows: c.names.map((name, i) => ({
        name: `${plain(name)} (${c.records[i]})`,
        value: c.recall[i],
        low: c.recall_low[i],
        high: c.recall_high[i],
      })),
      label: "recall",
      kind: "percent",
    }).node,
  ];
  if (c.confusion)
    parts.push(
      tableView({
        title: "What the model answers (columns) for the test records of each class (rows)",
        columns: [
          { name: "class", kind: "text" },
          ...c.names.map((name) => ({ name: `→ ${plain(name)}`, kind: "count" })),
          { name: "recall", kind: "percent" },
          { name: "precision", kind: "percent" },
        ],
        rows: c.names.map((name, i) => [name, ...c.confusion[i], c.recall[i], c.precision[i]]),
      }),
    );
  return parts;
};
