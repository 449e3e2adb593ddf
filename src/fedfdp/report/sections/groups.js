// How groups of a declared column compare, over all test records and at each client.
drawings.groups = (run) => {
  const g = run.by_group;
  if (!g)
    return [
      paragraph(
        run.elsewhere
          ? "This run went across machines: nodes give out nothing of groups."
          : "No column of groups was declared (data.group).",
        "soft",
      ),
    ];
  const rate = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
  const parts = [
    paragraph(
      `Groups of ${plain(g.column)}: the share that is given ${plain(g.favourable)} differs by ${rate(g.parity_gap)} ` +
        `(demographic parity), and among the records that are ${plain(g.favourable)} by ${rate(g.opportunity_gap)} (equal opportunity).`,
      "lead",
    ),
    tableView({
      title: `Groups of ${plain(g.column)}, all test records, ${run.name}`,
      columns: [
        { name: "group", kind: "text" },
        { name: "test records", kind: "count" },
        { name: "accuracy", kind: "percent" },
        { name: `given ${plain(g.favourable)}`, kind: "percent" },
        { name: `of ${plain(g.favourable)}`, kind: "count" },
        { name: "of these, recognised", kind: "percent" },
      ],
      rows: g.names.map((name, i) => [name, g.records[i], g.accuracy[i], g.given[i], g.favourable_records[i], g.recognised[i]]),
    }),
  ];
  if (g.clients.parity_gap)
    parts.push(
      tableView({
        title: `Gaps between groups at each client, ${run.name}`,
        columns: [
          { name: "client", kind: "text" },
          { name: "demographic parity", kind: "percent" },
          { name: "equal opportunity", kind: "percent" },
        ],
        rows: run.clients.names.map((name, i) => [name, g.clients.parity_gap[i], g.clients.opportunity_gap[i]]),
      }),
    );
  return parts;
};
