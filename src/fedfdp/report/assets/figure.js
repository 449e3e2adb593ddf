// A figure: title, chart, the values under pointer and arrow keys, the same numbers as a table, and the SVG to keep.
// `draw(width)` gives {svg, stops, across}: a stop is {x, y, title, items: [{label, value, y, style}]}.

const exportWidth = 640;

// Stand-alone: the page's colours and sizes become attributes, in the light theme, whatever the page shows now.
function standAlone(make, title, legend) {
  const theme = root.dataset.theme;
  root.dataset.theme = "light";
  const stage = el("div", { class: "offstage", "aria-hidden": "true" });
  document.body.append(stage);
  const svg = make(exportWidth).svg;
  stage.append(svg);
  let height = Number(svg.getAttribute("height"));
  svg.append(sv("text", { x: 10, y: -8, "text-anchor": "start", fill: "var(--ink)" }, cut(title, 90)));
  let x = 10,
    row = 0;
  for (const { label, style } of legend) {
    const text = cut(label, 40),
      wide = 40 + 7 * Array.from(text).length;
    if (x + wide > exportWidth && x > 10) [x, row] = [10, row + 1];
    svg.append(
      sample(style, x, height + 10 + 18 * row),
      sv("text", { x: x + 30, y: height + 14 + 18 * row, "text-anchor": "start" }, text),
    );
    x += wide;
  }
  if (legend.length) height += 18 * (row + 1) + 6;
  svg.setAttribute("viewBox", `0 -26 ${exportWidth} ${height + 26}`);
  svg.setAttribute("width", exportWidth);
  svg.setAttribute("height", height + 26);
  svg.prepend(sv("rect", { x: 0, y: -26, width: exportWidth, height: height + 26, fill: "#ffffff" }));
  for (const part of [svg, ...svg.querySelectorAll("*")]) {
    const style = getComputedStyle(part);
    for (const name of ["fill", "stroke", "font-size"]) part.setAttribute(name, style.getPropertyValue(name));
    part.removeAttribute("class");
  }
  const text = '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(svg) + "\n";
  stage.remove();
  root.dataset.theme = theme;
  return text;
}

// How a series looks: eight colours, and dashes where they come round again.
const dashes = [null, "7 4", "2 4", "9 3 2 3"];
const styleOf = (index) => ({ colour: index % 8, dash: dashes[Math.floor(index / 8) % dashes.length] });
const sample = (style, x, y) =>
  sv("line", {
    stroke: colourOf(style),
    "stroke-width": 2,
    "stroke-dasharray": style.dash,
    x1: x,
    x2: x + 24,
    y1: y,
    y2: y,
  });

// Buttons that hide and show series; `hidden` is a set of labels that charts share, `changed` draws them again.
function legendOf(series, hidden, changed) {
  const list = el("div", { class: "legend", role: "group", "aria-label": "Shown in the figures" });
  for (const { label, style } of series) {
    const button = el(
      "button",
      { type: "button", "aria-pressed": String(!hidden.has(label)) },
      sv("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, sample(style, 1, 5)),
      given(label),
    );
    button.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      button.setAttribute("aria-pressed", String(!hidden.has(label)));
      changed();
    });
    list.append(button);
  }
  return list;
}

function figure({ title, note, draw, table, legend = [], controls = null }) {
  const id = freshId("figure");
  const chart = el("div", { class: "chart" });
  const spoken = el("div", { class: "unseen", "aria-live": "polite" });
  let width = 0;
  const render = () => {
    if (width < 40) return;
    const drawn = draw(width),
      focused = chart.contains(document.activeElement);
    chart.replaceChildren(drawn.svg);
    follow(chart, drawn, spoken);
    if (focused) drawn.svg.focus();
    if (numbers?.children.length > 1) numbers.lastChild.replaceWith(tableView(table()));
  };
  new ResizeObserver(() => {
    const now = Math.floor(chart.clientWidth);
    if (Math.abs(now - width) > 1) {
      width = now;
      render();
    }
  }).observe(chart);
  const save = el(
    "button",
    {
      type: "button",
      class: "save-svg",
      "aria-label": `Download “${plain(title)}” as SVG`,
      onclick: () =>
        download(
          `${slug(title)}.svg`,
          "image/svg+xml",
          standAlone(draw, title, typeof legend === "function" ? legend() : legend),
        ),
    },
    "SVG",
  );
  const numbers = table && el("details", {}, el("summary", {}, "The numbers"));
  if (numbers) {
    numbers.addEventListener("toggle", () => {
      if (numbers.open && numbers.children.length === 1) numbers.append(tableView(table()));
    });
  }
  const node = el(
    "figure",
    { id, "aria-labelledby": `${id}-title` },
    el(
      "figcaption",
      {},
      el(
        "div",
        { class: "bar" },
        el("h3", { id: `${id}-title` }, el("bdi", {}, plain(title))),
        el("div", { class: "tools" }, save),
      ),
      note ? el("p", { class: "soft" }, note) : null,
    ),
    controls,
    chart,
    spoken,
    numbers,
  );
  return { node, render };
}

// The values at the place of the pointer, or, by arrow keys, from one place to the next.
function follow(chart, { svg, stops, across }, spoken) {
  if (!stops.length) return;
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("aria-description", "Left and right arrow keys read the values.");
  const tip = el("div", { class: "tip", hidden: true });
  const cursor = sv("g", { "aria-hidden": "true" });
  svg.append(cursor);
  chart.append(tip);
  const keyed = stops.filter((stop) => !stop.passing);
  const box = svg.viewBox.baseVal;
  let current = -1;
  const leave = () => {
    tip.hidden = true;
    cursor.replaceChildren();
  };
  function show(stop, pointerY) {
    let items = stop.items;
    if (items.length > 8) {
      items = [...items].sort((a, b) => Math.abs(a.y - pointerY) - Math.abs(b.y - pointerY)).slice(0, 8);
    }
    const left = stop.items.length - items.length;
    tip.replaceChildren(
      el("b", {}, el("bdi", {}, plain(stop.title))),
      ...items.map((item) => el("div", {}, el("span", {}, given(item.label)), el("b", {}, item.value))),
      left ? el("div", {}, `and ${left} more`) : "",
    );
    tip.hidden = false;
    const ratio = svg.clientWidth / box.width;
    const x = stop.x * ratio,
      y = (stop.y ?? box.height / 3) * ratio;
    tip.style.left = `${Math.max(0, Math.min(x + 12, chart.clientWidth - tip.offsetWidth))}px`;
    if (x + 12 + tip.offsetWidth > chart.clientWidth) tip.style.left = `${Math.max(0, x - 12 - tip.offsetWidth)}px`;
    tip.style.top = `${Math.max(0, y - tip.offsetHeight - 10)}px`;
    cursor.replaceChildren(
      ...(across ? [sv("line", { class: "cursor", x1: stop.x, x2: stop.x, y1: across[0], y2: across[1] })] : []),
      ...items
        .filter((item) => item.y !== undefined)
        .map((item) => sv("circle", { class: "cursor", cx: item.x ?? stop.x, cy: item.y, r: 6 })),
    );
    return items;
  }
  svg.addEventListener("pointermove", (event) => {
    const place = svg.getBoundingClientRect();
    const x = ((event.clientX - place.left) / place.width) * box.width;
    const y = ((event.clientY - place.top) / place.height) * box.height;
    const far = (stop) => (across ? Math.abs(stop.x - x) : Math.hypot(stop.x - x, (stop.y - y) * (stop.tall || 1)));
    show(
      stops.reduce((best, stop) => (far(stop) < far(best) ? stop : best)),
      y,
    );
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: keyed.length - 1 };
    if (event.key === "Escape") leave();
    if (!(event.key in moves)) return;
    event.preventDefault();
    current = Math.max(0, Math.min(keyed.length - 1, moves[event.key]));
    const stop = keyed[current];
    show(stop, stop.y ?? box.height / 2);
    spoken.textContent = `${plain(stop.title)}: ${stop.items.map((item) => `${plain(item.label)} ${item.value}`).join(", ")}`;
  });
}
