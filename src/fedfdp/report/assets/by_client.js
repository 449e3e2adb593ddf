// How the model serves each client, and what each client holds. `values` are in the order of `names`.
const firstPanels = 24;
const noMargins = { marginTop: 0, marginRight: 0, marginBottom: 0, marginLeft: 0 };

// One small chart for each client on common axes, the worst served first.
function multiplesFigure({ title, note, names, rounds, rows, kind, worstFirst }) {
  const end = (one) => one.values.filter(known).pop();
  const arranged = () =>
    names
      .map((name, i) => ({ name, values: rows.map((row) => row[i] ?? null) }))
      .sort((a, b) => known(end(b)) - known(end(a)) || worstFirst * ((end(a) ?? 0) - (end(b) ?? 0)));
  let series = arranged(),
    count = Math.min(firstPanels, series.length);
  const draw = (width) => {
    const visible = series.slice(0, count),
      columns = Math.max(1, Math.floor(width / 120)),
      wide = width / columns,
      height = Math.ceil(visible.length / columns) * 84 + 4,
      label = `${plain(title)}: ${visible.length} of ${series.length} clients. ${visible
        .slice(0, 12)
        .map((one) => `${plain(one.name)} ends at ${form[kind](end(one) ?? null)}`)
        .join("; ")}${visible.length > 12 ? "; and more" : ""}.`;
    const facet = { fx: (one) => one.i % columns, fy: (one) => Math.floor(one.i / columns) };
    const points = visible.flatMap((one, i) =>
      rounds.map((round, r) => ({ i, one, round, y: one.values[r] ?? NaN, last: r === rounds.length - 1 })),
    );
    const panels = points.filter((point) => point.last),
      band = { axis: null, padding: 0 };
    const svg = chart({
      ...{ width, height, label, ...noMargins, insetTop: 26, insetBottom: 10, insetLeft: 8, insetRight: 12 },
      fx: { ...band, domain: Array.from({ length: columns }, (_, i) => i) },
      fy: band,
      x: { axis: null, type: "linear", domain: [Math.min(...rounds), Math.max(...rounds)] },
      // The scale of all clients, also of those that are not shown yet.
      y: { axis: null, type: "linear", zero: true, domain: spanOf(series.flatMap((one) => one.values)) },
      marks: [
        Plot.frame({ className: "panel", insetTop: 18, insetRight: 5, insetBottom: 6, insetLeft: 3 }),
        Plot.text(panels, {
          ...{ ...facet, frameAnchor: "top-left", dx: 4, dy: 5, fill: "var(--ink)" },
          text: ({ one }) => cut(one.name, Math.floor((wide - 52) / 6)),
        }),
        Plot.text(panels, {
          ...{ ...facet, frameAnchor: "top-right", dx: -6, dy: 5 },
          text: ({ one }) => (known(end(one)) ? ticksOf(kind)(Number(end(one).toPrecision(3))) : "–"),
        }),
        curve({ points, style: styleOf(0) }, { ...facet, z: "i" }),
      ],
    });
    const at = (scale) => svg.scale(scale).apply;
    const stops = points
      .filter((point) => known(point.y))
      .map((point) => {
        const x = at("fx")(facet.fx(point)) + at("x")(point.round),
          y = at("fy")(facet.fy(point)) + at("y")(point.y);
        const passing = point.one.values.slice(rounds.indexOf(point.round) + 1).some(known);
        const items = [{ label: `round ${point.round}`, value: form[kind](point.y), y }];
        return { x, y, tall: 0.6, title: point.one.name, passing, items };
      });
    return { svg, stops };
  };
  const made = figure({
    ...{ title, note, draw },
    table: () => ({
      title,
      columns: [{ name: "client", kind: "text" }, ...rounds.map((round) => ({ name: `round ${round}`, kind }))],
      rows: series.map((one) => [one.name, ...one.values]),
    }),
  });
  if (series.length > firstPanels) {
    const button = el("button", { type: "button" }, `Show all ${series.length} clients`);
    button.addEventListener("click", () => {
      count = count === series.length ? firstPanels : series.length;
      button.textContent =
        count === series.length ? `Show the first ${firstPanels}` : `Show all ${series.length} clients`;
      made.render();
    });
    made.node.querySelector(".chart").after(button);
  }
  made.update = (next) => {
    ({ rounds, rows } = next);
    series = arranged();
    made.render();
  };
  return made;
}

// How many clients are served how well: bars, and below them a stroke for every single client.
function distributionFigure({ title, note, names, values, label, kind }) {
  const clients = names
    .map((name, i) => ({ name, value: values[i] }))
    .filter((one) => known(one.value))
    .sort((a, b) => a.value - b.value);
  const all = clients.map((one) => one.value),
    range = kind === "percent" ? [0, 1] : spanOf(all),
    bins = Plot.bin()
      .value((one) => one.value)
      .domain(range)
      .thresholds(kind === "percent" ? Array.from({ length: 19 }, (_, i) => (i + 1) / 20) : 16)(clients)
      .filter((held) => held.length);
  const draw = (width) => {
    const height = 230;
    if (!clients.length) return emptyChart(width, height, `${plain(title)}: no values.`, "no values");
    const svg = chart({
      ...{ width, height },
      label: `${plain(title)}. ${clients.length} clients, from ${form[kind](all[0])} (${plain(clients[0].name)}) to ${form[
        kind
      ](last(all))} (${plain(last(clients).name)}), median ${form[kind](all[Math.floor((all.length - 1) / 2)])}.`,
      x: across(width, label, { kind, domain: range }),
      y: upwards({ kind: "round" }),
      marks: [
        Plot.rectY(bins, { x1: "x0", x2: "x1", y: "length", fill: colourOf(styleOf(0)), fillOpacity: 0.75 }),
        Plot.ruleX(clients, { x: "value", stroke: "var(--paper)", insetTop: height - 42 - 12 - 9 }),
        baseline(),
      ],
    });
    const stops = bins.map((held) => ({
      x: svg.scale("x").apply((held.x0 + held.x1) / 2),
      y: svg.scale("y").apply(held.length),
      title: `${form[kind](held.x0)} to ${form[kind](held.x1)}: ${held.length} of ${clients.length}`,
      items: held.slice(0, 8).map((one) => ({ label: one.name, value: form[kind](one.value) })),
    }));
    return { svg, stops };
  };
  return figure({
    ...{ title, note, draw },
    table: () => ({
      title,
      columns: [
        { name: "client", kind: "text" },
        { name: label, kind },
      ],
      rows: clients.map((one) => [one.name, one.value]),
    }),
  });
}

// A value with its interval for each client, on one axis: rows of {name, value, low, high}, in the order to be shown.
// `reference` {value, label} is a line through all of them, such as a baseline.
function intervalFigure({ title, note, rows, label, kind, reference = null }) {
  const told = (row) => `${form[kind](row.value)} (${form[kind](row.low)} to ${form[kind](row.high)})`;
  const draw = (width) => {
    const seen = rows.filter((row) => known(row.value)),
      tall = seen.length <= 40 ? 20 : 8,
      left = Math.min(150, width * 0.3),
      height = 12 + seen.length * tall + 42,
      heard = seen.slice(0, 12).map((row) => `${plain(row.name)}: ${told(row)}`);
    const spoken = `${plain(title)}. ${heard.join("; ")}${seen.length > 12 ? "; and more" : ""}.`;
    if (!seen.length) return emptyChart(width, 84, spoken, "no values");
    const stroke = colourOf(styleOf(0)),
      place = (_, i) => i;
    const svg = chart({
      ...{ width, height, label: spoken, marginLeft: left },
      x: across(width - left, label, { kind, nice: true, grid: true }),
      y: { type: "band", padding: 0, axis: null, domain: seen.map(place) },
      marks: [
        baseline(),
        Plot.axisY(
          seen.map(place).filter((i) => tall > 10 || i % 2 === 0),
          {
            ...{ tickSize: 0, label: null },
            tickFormat: (i) => cut(seen[i].name, Math.floor(left / 6.4)),
          },
        ),
        reference ? Plot.ruleX([reference.value], { strokeDasharray: "5 4", strokeWidth: 1.5 }) : null,
        reference ? Plot.text([reference], { x: "value", text: "label", frameAnchor: "top", dy: -12 }) : null,
        Plot.ruleY(seen, { x1: "low", x2: "high", y: place, stroke, strokeWidth: 2, className: "interval" }),
        Plot.dot(seen, { x: "value", y: place, r: 4, fill: stroke }),
      ],
    });
    const stops = seen.map((row, i) => ({
      x: svg.scale("x").apply(row.value),
      y: svg.scale("y").apply(i) + tall / 2,
      tall: 50,
      title: row.name,
      items: [{ label, value: told(row) }],
    }));
    return { svg, stops };
  };
  const columns = [{ name: "client", kind: "text" }, ...[label, "from", "to"].map((name) => ({ name, kind }))];
  const table = () => ({ title, columns, rows: rows.map((row) => [row.name, row.value, row.low, row.high]) });
  return figure({ title, note, draw, table });
}

// Records of each class at each client, with what the classes are `called`; or, where the classes are not known, records at each client.
function holdingsFigure({ title, note, names, counts, totals, called = null }) {
  const nameOf = (k) => plain(called?.[k] ?? k);
  const classes = counts ? counts[0].length : 0,
    most = Math.max(1, ...(counts ? counts.flat() : totals)),
    strength = (one) => Math.sqrt(one.n / most);
  const cells = names.flatMap((_, i) => (counts ? counts[i].map((n, k) => ({ i, k, n })) : [{ i, n: totals[i] }]));
  const draw = (width) => {
    const tall = names.length <= 30 ? 22 : names.length <= 80 ? 12 : 6,
      left = Math.min(150, width * 0.24),
      right = 46,
      wide = (width - left - right) / Math.max(1, classes),
      stride = Math.ceil(20 / wide),
      every = Math.ceil(11 / tall),
      fill = colourOf(styleOf(0)),
      rows = names.map((_, i) => i),
      named = rows.filter((i) => i % every === 0);
    const svg = chart({
      ...{ width, height: 22 + names.length * tall + 22 },
      ...{ marginTop: 22, marginRight: right, marginBottom: 22, marginLeft: left },
      label: `${plain(title)}: ${names.length} clients${classes ? `, ${classes} classes` : ""}, ${Math.min(
        ...totals,
      )} to ${Math.max(...totals)} records each${classes ? `, at most ${most} of one class` : ""}.`,
      x: classes
        ? { type: "band", padding: 0, axis: null, domain: counts[0].map((_, k) => k) }
        : { type: "linear", axis: null },
      y: { type: "band", padding: 0, axis: null, domain: rows },
      marks: [
        Plot.axisY(named, {
          ...{ tickSize: 0, label: null },
          tickFormat: (i) => cut(names[i], Math.floor(left / 6.4)),
        }),
        Plot.text(named, { y: (i) => i, text: (i) => String(totals[i]), frameAnchor: "right", dx: right - 4 }),
        Plot.text(["all"], { frameAnchor: "top-right", dx: right - 4, dy: -14 }),
        Plot.text([classes ? "class" : "training records"], { frameAnchor: "bottom", dy: 16 }),
        classes
          ? [
              Plot.text(
                counts[0].map((_, k) => k).filter((k) => k % stride === 0),
                { x: (k) => k, text: (k) => cut(nameOf(k), Math.max(2, Math.floor(wide / 6.4))), frameAnchor: "top", dy: -14 },
              ),
              tall > 6 && wide > 6
                ? Plot.cell(cells, { x: "k", y: "i", className: "empty", stroke: "var(--grid)" })
                : null,
              Plot.cell(
                cells.filter((one) => one.n),
                {
                  ...{ x: "k", y: "i", fill, inset: wide > 2 ? 0.5 : 0 },
                  fillOpacity: (one) => 0.08 + 0.92 * strength(one),
                },
              ),
              tall >= 16
                ? Plot.text(
                    cells.filter((one) => one.n && wide >= 7 * String(one.n).length + 4),
                    {
                      x: "k",
                      y: "i",
                      text: (one) => String(one.n),
                      fill: (one) => (strength(one) > 0.6 ? "var(--paper)" : "var(--ink)"),
                    },
                  )
                : null,
            ]
          : Plot.barX(cells, { x: "n", y: "i", fill, insetTop: 1, insetBottom: 1 }),
      ],
      opacity: { type: "identity" },
      color: { type: "identity" },
    });
    const middle = (i) => svg.scale("y").apply(i) + tall / 2;
    const stops = cells.map(({ i, k, n }) => ({
      x: classes ? svg.scale("x").apply(k) + wide / 2 : (left + svg.scale("x").apply(n)) / 2,
      y: middle(i),
      tall: classes ? 1 : 50,
      title: names[i],
      items: [{ label: classes ? `class ${nameOf(k)}` : "records", value: String(n) }],
    }));
    return { svg, stops };
  };
  return figure({
    ...{ title, note, draw },
    table: () => ({
      title,
      columns: [
        { name: "client", kind: "text" },
        ...Array.from({ length: classes }, (_, k) => ({ name: `class ${nameOf(k)}`, kind: "count" })),
        { name: "all", kind: "count" },
      ],
      rows: names.map((name, i) => [name, ...(counts ? counts[i] : []), totals[i]]),
    }),
  });
}
