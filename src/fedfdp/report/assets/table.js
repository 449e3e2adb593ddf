// A table is {title, columns: [{name, kind}], rows}. On the page it can be sorted; as CSV it has every digit, as LaTeX
// the digits that are shown. The first column names the row.
const isText = (column) => column.kind === "text";

function csv(table) {
  const field = (value, kind) => {
    if (value === null || value === undefined) return "";
    if (kind !== "text") return String(value);
    let text = String(value);
    // A spreadsheet would compute what starts like a formula.
    if (/^[=+\-@\t\r]/.test(text) && !/^[-+]?[\d.]+(e[-+]?\d+)?$/i.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  };
  const lines = [table.columns.map((column) => field(column.name, "text"))];
  for (const row of table.rows) lines.push(row.map((value, i) => field(value, table.columns[i].kind)));
  return lines.map((line) => line.join(",") + "\r\n").join("");
}

const texSigns = {
  "\\": "\\textbackslash{}",
  "{": "\\{",
  "}": "\\}",
  "&": "\\&",
  "%": "\\%",
  $: "\\$",
  "#": "\\#",
  _: "\\_",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
  "<": "\\textless{}",
  ">": "\\textgreater{}",
  '"': "''",
  Ψ: "$\\Psi$",
  ε: "$\\varepsilon$",
  δ: "$\\delta$",
  σ: "$\\sigma$",
  λ: "$\\lambda$",
  η: "$\\eta$",
  "±": "$\\pm$",
  "≤": "$\\leq$",
  "×": "$\\times$",
  "–": "--",
  "\u00a0": "\\,",
};
const tex = (text) => Array.from(plain(text), (sign) => texSigns[sign] || sign).join("");

function latex(table) {
  const line = (cells) => "  " + cells.join(" & ") + " \\\\";
  const cell = (value, kind) =>
    tex(form[kind](value)).replace(
      /^(-?[\d.]+)e([+-])(\d+)$/,
      (_, mantissa, sign, power) => `$${mantissa}\\times10^{${sign === "-" ? "-" : ""}${power}}$`,
    );
  return [
    "% needs \\usepackage{booktabs}",
    "\\begin{table}",
    "  \\centering",
    `  \\caption{${tex(table.title)}}`,
    `  \\begin{tabular}{${table.columns.map((column) => (isText(column) ? "l" : "r")).join("")}}`,
    "  \\toprule",
    line(table.columns.map((column) => tex(column.name))),
    "  \\midrule",
    ...table.rows.map((row) => line(row.map((value, i) => cell(value, table.columns[i].kind)))),
    "  \\bottomrule",
    "  \\end{tabular}",
    "\\end{table}",
    "",
  ].join("\n");
}

function tableView(table) {
  const body = el("tbody");
  let sorted = { column: -1, up: true };
  const heads = table.columns.map((column, i) => {
    const button = el("button", { type: "button", onclick: () => sortBy(i) }, column.name);
    return el("th", { scope: "col", class: isText(column) ? "text" : null }, button);
  });
  function rows() {
    const order = table.rows.map((row, i) => [row, i]);
    const { column, up } = sorted;
    if (column >= 0) {
      order.sort(([a], [b]) => {
        const x = a[column],
          y = b[column];
        if (x === null || x === undefined || y === null || y === undefined) return (x ?? null) === null ? 1 : -1; // the unknown last
        const less =
          typeof x === "number" && typeof y === "number"
            ? x - y
            : String(x).localeCompare(String(y), undefined, { numeric: true });
        return up ? less : -less;
      });
    }
    body.replaceChildren(
      ...order.map(([row, at]) =>
        el(
          "tr",
          { class: (table.marked || []).includes(at) ? "best" : null },
          row.map((value, i) => {
            const column = table.columns[i],
              text = form[column.kind](value);
            const classes = isText(column) ? "text" : null;
            return i === 0
              ? el("th", { scope: "row", class: classes }, el("bdi", {}, text))
              : el("td", { class: classes, "data-head": plain(column.name) }, isText(column) ? el("bdi", {}, text) : text);
          }),
        ),
      ),
    );
  }
  function sortBy(column) {
    sorted = { column, up: sorted.column === column ? !sorted.up : true };
    heads.forEach((head, i) =>
      i === column
        ? head.setAttribute("aria-sort", sorted.up ? "ascending" : "descending")
        : head.removeAttribute("aria-sort"),
    );
    rows();
  }
  rows();
  const save = (label, ending, type, made) =>
    el(
      "button",
      {
        type: "button",
        class: `save-${ending}`,
        "aria-label": `Download “${plain(table.title)}” as ${label}`,
        onclick: () => download(`${slug(table.title)}.${ending}`, type, made(table)),
      },
      label,
    );
  const box = el(
    "div",
    { class: "tablebox" },
    el(
      "div",
      { class: "bar" },
      el("span"),
      el(
        "div",
        { class: "tools" },
        save("CSV", "csv", "text/csv;charset=utf-8", csv),
        save("LaTeX", "tex", "text/x-tex;charset=utf-8", latex),
      ),
    ),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": plain(table.title) },
      // On a narrow screen the cells of a row with many columns stand below each other, each beside its head.
      el("table", { class: table.columns.length > 4 ? "wide" : null }, el("caption", {}, el("bdi", {}, plain(table.title))), el("thead", {}, el("tr", {}, heads)), body),
    ),
  );
  box.update = (next) => {
    table.rows = next;
    rows();
  };
  return box;
}
