// Curves over rounds, and points in the plane. A series is {label, style, x, y}; what is no number is a gap.
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
  within,
  zero = false,
  xName,
}) {
  const shown = () => series.filter((one) => !hidden.has(one.label));
  const draw = (width) => {
    const visible = shown(),
      height = 250;
    const values = visible.flatMap((one) => one.y),
      useLog = log && fitsLog(values);
    const svg = canvas(width, height, describe(title, visible, kind));
    const xs = [...new Set(visible.flatMap((one) => one.x.filter((x, i) => known(one.y[i]))))].sort((a, b) => a - b);
    if (!xs.length) {
      svg.append(
        sv(
          "text",
          { x: width / 2, y: height / 2, "text-anchor": "middle", class: "tick" },
          series.length ? "nothing to show" : "no values",
        ),
      );
      return { svg, stops: [] };
    }
    const include = [...(zero ? [0] : []), ...(limit ? [limit.value] : [])];
    const xRange = xs[0] === last(xs) ? [xs[0] - 1, xs[0] + 1] : [xs[0], last(xs)];
    const at = axes(
      svg,
      width,
      height,
      { label: xLabel, range: xRange, kind: "round" },
      { range: span(values, { log: useLog, within, include }), log: useLog, kind },
    );
    if (limit) {
      svg.append(
        sv("line", { class: "limit", x1: at.box.left, x2: at.box.right, y1: at.y(limit.value), y2: at.y(limit.value) }),
        sv("text", { class: "tick", x: at.box.right, y: at.y(limit.value) + 14, "text-anchor": "end" }, limit.label),
      );
    }
    for (const one of visible) svg.append(curve(one, at));
    const stops = xs.map((x) => ({
      x: at.x(x),
      title: `${xName || "round"} ${x}`,
      items: visible.flatMap((one) => {
        const i = one.x.indexOf(x);
        return i >= 0 && known(one.y[i]) ? [{ label: one.label, value: form[kind](one.y[i]), y: at.y(one.y[i]) }] : [];
      }),
    }));
    return { svg, stops, across: [at.box.top, at.box.bottom] };
  };
  const table = () => {
    const xs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
    return {
      title,
      columns: [{ name: xName || "round", kind: "count" }, ...series.map((one) => ({ name: plain(one.label), kind }))],
      rows: xs.map((x) => [x, ...series.map((one) => (one.x.includes(x) ? one.y[one.x.indexOf(x)] : null))]),
    };
  };
  const made = figure({ title, note, draw, table, legend: () => (series.length > 1 ? shown() : []) });
  if (ownLegend && series.length > 1) made.node.querySelector(".chart").after(legendOf(series, hidden, made.render));
  return made;
}

function curve(one, at) {
  let path = "",
    pen = false,
    alone = [];
  one.y.forEach((y, i) => {
    if (!known(y)) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${at.x(one.x[i]).toFixed(2)} ${at.y(y).toFixed(2)}`;
    if (!pen && !known(one.y[i + 1])) alone.push([at.x(one.x[i]), at.y(y)]);
    pen = true;
  });
  const { colour, dash } = one.style;
  return sv(
    "g",
    {},
    sv("path", { class: `line s${colour}`, "stroke-dasharray": dash, d: path || "M0 0" }),
    alone.map(([x, y]) => sv("circle", { class: `f${colour}`, cx: x, cy: y, r: 3.5 })),
  );
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
  const draw = (width) => {
    const height = 320,
      visible = points.filter((point) => !hidden.has(point.label) && known(point.y) && (known(point.x) || missing));
    const xs = visible.map((point) => point.x).filter(known),
      useLog = log && fitsLog(xs),
      apart = visible.some((point) => !known(point.x));
    const svg = canvas(
      width,
      height,
      `${title}. ${visible
        .slice(0, 20)
        .map(
          (p) =>
            `${plain(p.label)}: ${form[yKind](p.y)} at ${known(p.x) ? form[xKind](p.x) : missing}${p.front ? ", on the front" : ""}`,
        )
        .join("; ")}.`,
    );
    if (!visible.length) {
      svg.append(
        sv("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "tick" }, "nothing to show"),
      );
      return { svg, stops: [] };
    }
    const within = yKind === "percent" ? [-0.04, 1.04] : undefined;
    const at = axes(
      svg,
      apart ? width - 64 : width,
      height,
      { label: xLabel, range: span(xs, { log: useLog }), log: useLog, kind: xKind },
      {
        range: span(
          visible.map((point) => point.y),
          { within },
        ),
        kind: yKind,
      },
    );
    if (apart) {
      svg.append(
        sv("line", { class: "limit", x1: width - 66, x2: width - 66, y1: at.box.top, y2: at.box.bottom }),
        sv("text", { class: "tick", x: width - 34, y: at.box.bottom + 17, "text-anchor": "middle" }, missing),
      );
    }
    const stops = [];
    for (const point of [...visible].sort((a, b) => a.front - b.front)) {
      const x = known(point.x) ? at.x(point.x) : width - 34,
        y = at.y(point.y),
        { colour } = point.style;
      svg.append(
        sv("circle", {
          class: point.front ? `f${colour} s${colour}` : `hollow s${colour}`,
          cx: x,
          cy: y,
          r: 9,
          "stroke-width": 2,
        }),
        sv(
          "text",
          { class: point.front ? "inside" : "small", x, y: y + 3.5, "text-anchor": "middle" },
          String(point.number),
        ),
      );
      stops.push({
        x,
        y,
        title: point.label,
        items: [
          { label: columns[1], value: form[yKind](point.y) },
          { label: columns[0], value: known(point.x) ? form[xKind](point.x) : missing },
          { label: "front", value: point.front ? "yes" : "no" },
        ],
      });
    }
    return { svg, stops };
  };
  return figure({
    title,
    note,
    draw,
    legend: () => points.filter((point) => !hidden.has(point.label)),
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
