// What every part uses: elements made of text, never of markup; numbers as people read them; downloads.
const facts = JSON.parse(document.getElementById("facts").textContent);
const svgNamespace = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;
const known = (value) => typeof value === "number" && Number.isFinite(value);
const last = (list) => list[list.length - 1];
const runs = facts.runs,
  several = runs.length > 1;
const labelOf = (run) => (several ? `${run.number} ${run.name}` : run.name);
const drawings = {}; // by a section's name: run → elements; of a section that compares, runs → elements

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const sv = (tag, attributes, ...children) => fill(document.createElementNS(svgNamespace, tag), attributes, children);

// A name that somebody gave: kept from changing the direction of the text around it, and cut where room is short.
const given = (name) => el("bdi", {}, plain(name));
const plain = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ");
const cut = (text, length) => {
  const signs = Array.from(plain(text));
  return signs.length > length ? signs.slice(0, length - 1).join("") + "…" : signs.join("");
};

const form = {
  text: (value) => (value === null || value === undefined ? "–" : plain(value)),
  count: (value) => (known(value) ? String(value) : "–"),
  percent: (value) => (known(value) ? (100 * value).toFixed(2) + "\u00a0%" : "–"),
  epsilon: (value) => (known(value) ? value.toFixed(4) : "–"),
  delta: (value) => (known(value) ? (value < 1e-3 ? value.toExponential() : String(value)) : "–"),
  seconds: (value) => (known(value) ? value.toFixed(1) : "–"),
  number: (value) => {
    if (!known(value)) return "–";
    if (value === 0) return "0";
    return Math.abs(value) < 1e-2 || Math.abs(value) >= 1e4 ? value.toExponential(2) : value.toFixed(4);
  },
};

const paragraph = (text, kind) => el("p", { class: kind }, text);
const warning = (text) => el("p", { class: "note", role: "note" }, text);
const list = (lines) =>
  el(
    "ul",
    { class: "plain" },
    lines.map((line) => el("li", {}, plain(line))),
  );

const slug = (text) =>
  plain(text)
    .toLowerCase()
    .replace(/ψ/g, "psi")
    .replace(/ε/g, "epsilon")
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60) || "report";

function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

let ids = 0;
const freshId = (stem) => `${stem}-${++ids}`;
const root = document.documentElement;
const system = window.matchMedia("(prefers-color-scheme: dark)");

function themeButton() {
  const button = el("button", { type: "button", id: "theme" });
  const show = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light mode" : "Dark mode";
    button.setAttribute("aria-label", dark ? "Switch to light mode" : "Switch to dark mode");
  };
  const follow = (event) => show(event.matches);
  system.addEventListener("change", follow);
  button.addEventListener("click", () => {
    system.removeEventListener("change", follow);
    show(root.dataset.theme !== "dark");
  });
  show(system.matches);
  return button;
}
