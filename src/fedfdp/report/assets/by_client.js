// How the model serves each client, and what each client holds. `values` are in the order of `names`.
const firstPanels = 24;
// No room below zero, unless a value is there.
const aboveZero = (values) => [Math.min(0, ...values.filter(known)), Infinity];

// One small chart for each client on common axes, the worst served first.
function multiplesFigure({ title, note, names, rounds, rows, kind, worstFirst }) {
  const series = names.map((name, i) => ({ name, values: rows.map((row) => row[i] ?? null) }));
  const end = (one) => one.values.filter(known).pop();
  series.sort((a, b) => known(end(b)) - known(end(a)) || worstFirst * ((end(a) ?? 0) - (end(b) ?? 0)));
  let count = Math.min(firstPanels, series.length);
  const draw = (width) => {
    const visible = series.slice(0, count),
      columns = Math.max(1, Math.floor(width / 120)),
      wide = width / columns,
      tall = 84;
    const height = Math.max(1, Math.ceil(visible.length / columns)) * tall + 4;
    const range = span(
      series.flatMap((one) => one.values),
      { within: kind === "percent" ? [0, 1] : aboveZero(series.flatMap((one) => one.values)), include: [0] },
    );
    const svg = canvas(
      width,
      height,
      `${plain(title)}: ${visible.length} of ${series.length} clients. ${visible
        .slice(0, 12)
        .map((one) => `${plain(one.name)} ends at ${form[kind](end(one) ?? null)}`)
        .join("; ")}${visible.length > 12 ? "; and more" : ""}.`,
    );
    const x = scale(Math.min(...rounds), Math.max(...rounds), 6, wide - 10, false),
      y = scale(range[0], range[1], tall - 10, 22, false),
      stops = [];
    visible.forEach((one, i) => {
      const left = (i % columns) * wide,
        top = Math.floor(i / columns) * tall;
      const at = { x: (round) => left + x(round), y: (value) => top + y(value) },
        final = end(one);
      svg.append(
        sv("rect", { class: "panel", x: left + 3, y: top + 18, width: wide - 8, height: tall - 24, rx: 3 }),
        sv("text", { class: "small", x: left + 4, y: top + 13 }, cut(one.name, Math.floor((wide - 52) / 6))),
        sv(
          "text",
          { class: "tick small", x: left + wide - 6, y: top + 13, "text-anchor": "end" },
          known(final) ? (tickText[kind] || tickText.number)(Number(final.toPrecision(3))) : "–",
        ),
        curve({ x: rounds, y: one.values, style: styleOf(0) }, at),
      );
      rounds.forEach((round, r) => {
        if (!known(one.values[r])) return;
        stops.push({
          x: at.x(round),
          y: at.y(one.values[r]),
          tall: 0.6,
          title: one.name,
          passing: one.values.slice(r + 1).some(known),
          items: [{ label: `round ${round}`, value: form[kind](one.values[r]), y: at.y(one.values[r]) }],
        });
      });
    });
    return { svg, stops };
  };
  const made = figure({
    title,
    note,
    draw,
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
  return made;
}

// How many clients are served how well: bars, and below them a stroke for every single client.
function distributionFigure({ title, note, names, values, label, kind }) {
  const clients = names
    .map((name, i) => ({ name, value: values[i] }))
    .filter((one) => known(one.value))
    .sort((a, b) => a.value - b.value);
  const draw = (width) => {
    const height = 230,
      all = clients.map((one) => one.value);
    const svg = canvas(
      width,
      height,
      clients.length
        ? `${plain(title)}. ${clients.length} clients, from ${form[kind](all[0])} (${plain(clients[0].name)}) to ${form[
            kind
          ](last(all))} (${plain(last(clients).name)}), median ${form[kind](all[Math.floor((all.length - 1) / 2)])}.`
        : `${plain(title)}: no values.`,
    );
    if (!clients.length) {
      svg.append(sv("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "tick" }, "no values"));
      return { svg, stops: [] };
    }
    const [low, high] = kind === "percent" ? [0, 1] : span(all, { within: aboveZero(all), include: [0] });
    const edges =
      kind === "percent"
        ? Array.from({ length: 21 }, (_, i) => i / 20)
        : Array.from({ length: 17 }, (_, i) => low + ((high - low) * i) / 16);
    const bins = edges.slice(0, -1).map((from, i) => ({
      from,
      to: edges[i + 1],
      held: clients.filter((one) => one.value >= from && (one.value < edges[i + 1] || i === edges.length - 2)),
    }));
    const most = Math.max(...bins.map((bin) => bin.held.length));
    const at = axes(
      svg,
      width,
      height,
      { label, range: [low, high], kind },
      { range: [0, most * 1.08], kind: "round" },
    );
    const stops = [];
    for (const { from, to, held } of bins.filter((bin) => bin.held.length)) {
      svg.append(
        sv("rect", {
          class: "f0",
          "fill-opacity": 0.75,
          x: at.x(from) + 1,
          y: at.y(held.length),
          width: Math.max(1, at.x(to) - at.x(from) - 2),
          height: at.box.bottom - at.y(held.length),
        }),
      );
      stops.push({
        x: (at.x(from) + at.x(to)) / 2,
        y: at.y(held.length),
        title: `${form[kind](from)} to ${form[kind](to)}: ${held.length} of ${clients.length}`,
        items: held.slice(0, 8).map((one) => ({ label: one.name, value: form[kind](one.value) })),
      });
    }
    for (const one of clients)
      svg.append(
        sv("line", {
          class: "notch",
          x1: at.x(one.value),
          x2: at.x(one.value),
          y1: at.box.bottom,
          y2: at.box.bottom - 9,
        }),
      );
    return { svg, stops };
  };
  return figure({
    title,
    note,
    draw,
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

// Records of each class at each client; or, where the classes are not known, records at each client.
function holdingsFigure({ title, note, names, counts, totals }) {
  const classes = counts ? counts[0].length : 0,
    most = Math.max(1, ...(counts ? counts.flat() : totals));
  const draw = (width) => {
    const tall = names.length <= 30 ? 22 : names.length <= 80 ? 12 : 6,
      labels = Math.min(150, width * 0.24),
      top = 22,
      right = 46;
    const height = top + names.length * tall + 22,
      room = width - labels - right,
      wide = room / Math.max(1, classes);
    const svg = canvas(
      width,
      height,
      `${plain(title)}: ${names.length} clients${classes ? `, ${classes} classes` : ""}, ${Math.min(
        ...totals,
      )} to ${Math.max(...totals)} records each${classes ? `, at most ${most} of one class` : ""}.`,
    );
    const every = Math.ceil(11 / tall),
      stops = [];
    if (classes) {
      const stride = Math.ceil(20 / wide);
      for (let k = 0; k < classes; k += stride) {
        svg.append(
          sv(
            "text",
            { class: "tick small", x: labels + (k + 0.5) * wide, y: top - 6, "text-anchor": "middle" },
            String(k),
          ),
        );
      }
    }
    svg.append(
      sv("text", { class: "tick small", x: width - 4, y: top - 6, "text-anchor": "end" }, "all"),
      sv(
        "text",
        { class: "tick small", x: labels + room / 2, y: height - 6, "text-anchor": "middle" },
        classes ? "class" : "training records",
      ),
    );
    names.forEach((name, i) => {
      const y = top + i * tall,
        middle = y + tall / 2 + 3.5;
      if (i % every === 0) {
        svg.append(
          sv(
            "text",
            { class: "tick small", x: labels - 5, y: middle, "text-anchor": "end" },
            cut(name, Math.floor(labels / 6.4)),
          ),
          sv("text", { class: "tick small", x: width - 4, y: middle, "text-anchor": "end" }, String(totals[i])),
        );
      }
      if (!classes) {
        svg.append(
          sv("rect", { class: "f0", x: labels, y: y + 1, width: (totals[i] / most) * room, height: tall - 2 }),
        );
        stops.push({
          x: labels + ((totals[i] / most) * room) / 2,
          y: y + tall / 2,
          tall: 50,
          title: name,
          items: [{ label: "records", value: String(totals[i]) }],
        });
      }
      for (let k = 0; k < classes; k++) {
        const n = counts[i][k],
          strength = Math.sqrt(n / most),
          x = labels + k * wide;
        if (tall > 6 && wide > 6) svg.append(sv("rect", { class: "panel", x, y, width: wide, height: tall }));
        if (n)
          svg.append(
            sv("rect", {
              class: "f0",
              "fill-opacity": (0.08 + 0.92 * strength).toFixed(3),
              x: x + 0.5,
              y: y + 0.5,
              width: Math.max(0.5, wide - 1),
              height: tall - 1,
            }),
          );
        if (n && wide >= 7 * String(n).length + 4 && tall >= 16) {
          svg.append(
            sv(
              "text",
              { class: strength > 0.6 ? "inside" : "small", x: x + wide / 2, y: middle, "text-anchor": "middle" },
              String(n),
            ),
          );
        }
        stops.push({
          x: x + wide / 2,
          y: y + tall / 2,
          title: name,
          items: [{ label: `class ${k}`, value: String(n) }],
        });
      }
    });
    return { svg, stops };
  };
  return figure({
    title,
    note,
    draw,
    table: () => ({
      title,
      columns: [
        { name: "client", kind: "text" },
        ...Array.from({ length: classes }, (_, k) => ({ name: `class ${k}`, kind: "count" })),
        { name: "all", kind: "count" },
      ],
      rows: names.map((name, i) => [name, ...(counts ? counts[i] : []), totals[i]]),
    }),
  });
}
