// Every setting of one run.
drawings.settings = (run) => [
  el(
    "details",
    {},
    el("summary", {}, "Every setting of the run"),
    tableView({
      title: `Settings of ${run.name}`,
      columns: [
        { name: "setting", kind: "text" },
        { name: "value", kind: "text" },
      ],
      rows: Object.entries(run.settings),
    }),
  ),
];
