// What all charts share. They are drawn by Observable Plot (`Plot`, vendor/plot.js) as SVG in the page's own colours.
const colourOf = (style) => `var(--s${style.colour})`;
const fitsLog = (values) => values.some(known) && values.filter(known).every((value) => value > 0);
const valuesOf = (series) => series.flatMap((one) => [one.y, one.low ?? [], one.high ?? []]).flat();

const tickText = {
  percent: (value) => `${Number((100 * value).toPrecision(6))}%`,
  round: (value) => (Number.isInteger(value) ? String(value) : ""),
  number: (value) =>
    value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5)
      ? value.toExponential(0).replace("+", "")
      : String(Number(value.toPrecision(6))),
};
const ticksOf = (kind) => tickText[kind] || tickText.number;

// An axis of numbers, as Plot takes it. Of logarithmic ticks only those at 1, 2 and 5 of a decade are written.
const logText = (value) => (/^[125]e/.test(value.toExponential()) ? tickText.number(value) : "");
const axis = ({ kind, log = false, ...rest }) => ({
  type: log ? "log" : "linear",
  tickFormat: log ? logText : ticksOf(kind),
  tickSize: 0,
  labelArrow: "none",
  ...rest,
});
const across = (width, label, rest) => axis({ label, labelAnchor: "center", ticks: Math.max(2, width / 60), ...rest });
const upwards = (rest) => axis({ label: null, ticks: 5, grid: true, nice: true, ...rest });
const baseline = () => Plot.frame({ anchor: "bottom" });

// `label` is what a screen reader says. Plot's own style element goes: the page's policy allows one style, chart.css has its rules.
function chart({ label, ...options }) {
  const margins = { marginTop: 12, marginRight: 20, marginBottom: 42, marginLeft: 52 };
  const svg = Plot.plot({ ...margins, ariaLabel: label, ...options });
  svg.querySelector("style").remove();
  svg.setAttribute("role", "img");
  return svg;
}
const emptyChart = (width, height, label, words) => ({
  svg: chart({ width, height, label, marks: [Plot.text([words], { frameAnchor: "middle" })] }),
  stops: [],
});

// From zero to the largest value, or from the smallest where one is below zero, in round numbers.
function spanOf(values) {
  const all = values.filter(known),
    [low, high] = [Math.min(0, ...all), Math.max(0, ...all)];
  return low === high ? [0, 1] : Plot.nice(low, high, 10);
}

// A series as marks: its curve with gaps where a value is missing, and a dot for a value between two gaps. Either {x, y}
// and, where its uncertainty is known, {low, high}; or, of many small charts, `points`.
function curve({ x, y, low, high, points, style }, facet = {}) {
  points ??= x.map((round, i) => ({ round, y: y[i] ?? NaN, low: low?.[i] ?? NaN, high: high?.[i] ?? NaN }));
  const joined = (one, other) => other && other.i === one.i && known(other.y);
  const alone = points.filter((one, i) => known(one.y) && !joined(one, points[i - 1]) && !joined(one, points[i + 1]));
  const stroke = colourOf(style),
    at = { x: "round", ...facet };
  return [
    low ? Plot.areaY(points, { ...at, y1: "low", y2: "high", fill: stroke, fillOpacity: 0.18 }) : null,
    Plot.lineY(points, { ...at, y: "y", stroke, strokeWidth: 2, strokeDasharray: style.dash, className: "line" }),
    Plot.dot(alone, { ...at, y: "y", r: 3.5, fill: stroke }),
  ];
}
