// From values to places: scales, the ticks people expect, and the frame of axes around a chart.
function scale(low, high, from, to, log) {
  const at = log ? Math.log10 : (value) => value;
  const [a, b] = [at(low), at(high)];
  return (value) => from + ((at(value) - a) / (b - a || 1)) * (to - from);
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((nice) => nice * power >= rough * 0.999) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const decades = Math.log10(high / low),
    ticks = [];
  const parts = decades > 4 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 3, 5];
  const stride = Math.max(1, Math.ceil(decades / 7));
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (power % stride) continue;
    for (const part of parts) {
      const tick = Number(`${part}e${power}`);
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, 4);
}

// The range that shows all values with some air; `within` is where values can be at all.
function span(values, { log = false, within = [-Infinity, Infinity], include = [] } = {}) {
  const all = values.filter(known).concat(include);
  if (!all.length) return log ? [0.1, 1] : [0, 1];
  let low = Math.min(...all),
    high = Math.max(...all);
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.06, high * (high / low) ** 0.06];
  const air = (high - low) * 0.06 || Math.abs(high) * 0.1 || 0.5;
  return [Math.max(within[0], low - air), Math.min(within[1], high + air)];
}
const fitsLog = (values) => values.some(known) && values.filter(known).every((value) => value > 0);

const tickText = {
  percent: (value) => `${Number((100 * value).toPrecision(6))}%`,
  number: (value) =>
    value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5)
      ? value.toExponential(0).replace("+", "")
      : String(Number(value.toPrecision(6))),
};

// Draws axes into `svg` and returns where values lie. An axis is {label, range, log, kind}.
function axes(svg, width, height, x, y) {
  const box = { left: 52, right: width - 20, top: 10, bottom: height - 42 };
  const at = {
    x: scale(x.range[0], x.range[1], box.left, box.right, x.log),
    y: scale(y.range[0], y.range[1], box.bottom, box.top, y.log),
    box,
  };
  const ticks = (axis, room) =>
    (axis.log ? logTicks(...axis.range) : linearTicks(...axis.range, room)).filter(
      (tick) => axis.kind !== "round" || Number.isInteger(tick),
    );
  for (const tick of ticks(y, 5)) {
    svg.append(
      sv("line", { class: "grid", x1: box.left, x2: box.right, y1: at.y(tick), y2: at.y(tick) }),
      sv(
        "text",
        { class: "tick", x: box.left - 6, y: at.y(tick) + 4, "text-anchor": "end" },
        (tickText[y.kind] || tickText.number)(tick),
      ),
    );
  }
  for (const tick of ticks(x, Math.max(2, Math.floor((box.right - box.left) / 50)))) {
    svg.append(
      sv("line", { class: "axis", x1: at.x(tick), x2: at.x(tick), y1: box.bottom, y2: box.bottom + 4 }),
      sv(
        "text",
        { class: "tick", x: at.x(tick), y: box.bottom + 17, "text-anchor": "middle" },
        (tickText[x.kind] || tickText.number)(tick),
      ),
    );
  }
  svg.append(
    sv("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    sv("text", { class: "tick", x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label),
  );
  return at;
}
