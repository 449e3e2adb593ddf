// Curves over rounds, points in the plane, values with their intervals. A series is {label, style, x, y} and, where its
// uncertainty is known, {low, high}; what is no number is a gap.
function lineFigure({
  title,
  note,
  series,
  xLabel,
  kind,
  log = false,
  limit = null,
  hidden = new Set(),
  ownLegend = false,
  zero = false,
  xName = "round",
}) {
  const shown = () => series.filter((one) => !hidden.has(one.label));
  const draw = (width) => {
    const visible = shown(),
      height = 250,
      useLog = log && fitsLog(valuesOf(visible)),
      label = describe(title, visible, kind);
    const xs = [...new Set(visible.flatMap((one) => one.x.filter((x, i) => known(one.y[i]))))].sort((a, b) => a - b);
    if (!xs.length) return emptyChart(width, height, label, series.length ? "nothing to show" : "no values");
    const svg = chart({
      ...{ width, height, label },
      x: across(width, xLabel, { kind: "round", domain: [xs[0], last(xs)] }),
      y: upwards({ kind, log: useLog, zero }),
      marks: [
        baseline(),
        limit ? Plot.ruleY([limit.value], { strokeDasharray: "5 4", strokeWidth: 1.5 }) : null,
        limit ? Plot.text([limit], { y: "value", text: "label", frameAnchor: "right", dy: 10 }) : null,
        visible.map((one) => curve(one)),
      ],
    });
    const at = { x: svg.scale("x").apply, y: svg.scale("y").apply };
    const stops = xs.map((x) => ({
      x: at.x(x),
      title: `${xName} ${x}`,
      items: visible.flatMap((one) => {
        const i = one.x.indexOf(x);
        return i >= 0 && known(one.y[i]) ? [{ label: one.label, value: form[kind](one.y[i]), y: at.y(one.y[i]) }] : [];
      }),
    }));
    return { svg, stops, across: [12, height - 42] };
  };
  const table = () => {
    const xs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
    const parts = series.flatMap((one) =>
      ["y", "low", "high"]
        .filter((part) => one[part])
        .map((part) => ({ one, part, name: part === "y" ? plain(one.label) : `${plain(one.label)}, ${part}` })),
    );
    return {
      title,
      columns: [{ name: xName, kind: "count" }, ...parts.map(({ name }) => ({ name, kind }))],
      rows: xs.map((x) => [x, ...parts.map(({ one, part }) => one[part][one.x.indexOf(x)] ?? null)]),
    };
  };
  const made = figure({ title, note, draw, table, legend: () => (series.length > 1 ? shown() : []) });
  made.update = (next) => {
    series = next;
    made.render();
  };
  if (ownLegend && series.length > 1) made.node.querySelector(".chart").after(legendOf(series, hidden, made.render));
  return made;
}

function describe(title, series, kind) {
  const parts = series.slice(0, 12).map((one) => {
    const values = one.y.filter(known);
    return values.length
      ? `${plain(one.label)}: from ${form[kind](values[0])} to ${form[kind](last(values))}`
      : `${plain(one.label)}: no values`;
  });
  return `${plain(title)}. ${parts.join("; ")}${series.length > 12 ? `; and ${series.length - 12} more` : ""}.`;
}

// Points: {label, number, x, y, front, style}. An x that is not known stands apart, at the right, under `missing`.
function pointFigure({ title, note, points, xLabel, xKind, yKind, log, missing, hidden, columns }) {
  const shown = () => points.filter((point) => !hidden.has(point.label));
  const told = (point) => (known(point.x) ? form[xKind](point.x) : missing);
  const draw = (width) => {
    const height = 320,
      visible = shown().filter((point) => known(point.y) && (known(point.x) || missing)),
      placed = visible.filter((point) => known(point.x)),
      apart = visible.filter((point) => !known(point.x));
    const label = `${title}. ${visible
      .slice(0, 20)
      .map((p) => `${plain(p.label)}: ${form[yKind](p.y)} at ${told(p)}${p.front ? ", on the front" : ""}`)
      .join("; ")}.`;
    if (!visible.length) return emptyChart(width, height, label, "nothing to show");
    const marks = (some, x) =>
      some.flatMap((point) => [
        Plot.dot([point], {
          ...{ ...x, y: "y", r: 9, stroke: colourOf(point.style), strokeWidth: 2 },
          fill: point.front ? colourOf(point.style) : "var(--paper)",
        }),
        Plot.text([point], { ...x, y: "y", text: "number", fill: point.front ? "var(--paper)" : "var(--ink)" }),
      ]);
    const useLog = log && fitsLog(placed.map((point) => point.x)),
      aside = { frameAnchor: "right", dx: -24, textAnchor: "middle" };
    const svg = chart({
      ...{ width, height, label, insetTop: 12, insetBottom: 12, insetLeft: 12, insetRight: apart.length ? 64 : 12 },
      x: across(apart.length ? width - 64 : width, xLabel, { kind: xKind, log: useLog, nice: true }),
      y: upwards({ kind: yKind }),
      marks: [
        baseline(),
        marks(
          placed.filter((point) => !point.front),
          { x: "x" },
        ),
        marks(apart, aside),
        marks(
          placed.filter((point) => point.front),
          { x: "x" },
        ),
        apart.length ? Plot.frame({ anchor: "right", insetRight: 56, strokeDasharray: "5 4" }) : null,
        apart.length ? Plot.text([missing], { ...aside, frameAnchor: "bottom-right", dy: 14 }) : null,
      ],
    });
    const stops = visible.map((point) => ({
      x: known(point.x) ? svg.scale("x").apply(point.x) : width - 44,
      y: svg.scale("y").apply(point.y),
      title: point.label,
      items: [
        { label: columns[1], value: form[yKind](point.y) },
        { label: columns[0], value: told(point) },
        { label: "front", value: point.front ? "yes" : "no" },
      ],
    }));
    return { svg, stops };
  };
  return figure({
    ...{ title, note, draw, legend: shown },
    table: () => ({
      title,
      columns: [
        { name: "run", kind: "text" },
        { name: columns[0], kind: xKind },
        { name: columns[1], kind: yKind },
        { name: "on the front", kind: "text" },
      ],
      rows: points.map((point) => [point.label, point.x, point.y, point.front ? "yes" : "no"]),
    }),
  });
}
