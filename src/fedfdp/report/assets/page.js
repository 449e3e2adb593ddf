// The page: what compares the runs where there are several, then one run, chosen by the reader.
const view = ({ name, title }, of) =>
  el(
    "section",
    { id: name, "aria-labelledby": `${name}-title` },
    el("h2", { id: `${name}-title` }, title),
    drawings[name](of),
  );

function start() {
  const single = el("div", { id: "run" }),
    comparing = several ? facts.sections.filter((section) => section.compares) : [],
    ofOne = facts.sections.filter((section) => !section.compares);
  const show = (index) => single.replaceChildren(...ofOne.map((section) => view(section, runs[index])));
  const picker = el(
    "select",
    { id: "picker", onchange: (event) => show(Number(event.target.value)) },
    runs.map((run, i) => el("option", { value: i }, plain(labelOf(run)))),
  );
  const title = several ? `${runs.length} runs` : plain(runs[0].name);
  const comparison = several
    ? [
        ...comparing.map((section) => view(section, runs)),
        el("div", { class: "chooser" }, el("label", { for: "picker" }, "The run below:"), picker),
      ]
    : [];
  show(0);
  document.body.querySelector(".skip").after(
    el(
      "header",
      {},
      el("div", {}, el("h1", {}, el("bdi", {}, title)), paragraph("Federated learning: accuracy, fairness, privacy")),
      themeButton(),
    ),
    el(
      "nav",
      { "aria-label": "Sections" },
      el(
        "ul",
        {},
        [...comparing, ...ofOne].map(({ name, title }) => el("li", {}, el("a", { href: `#${name}` }, title))),
      ),
    ),
    el("main", { id: "main", tabindex: "-1" }, comparison, single),
    el(
      "footer",
      {},
      paragraph(
        `Made by fedfdp ${facts.version} from the run folders alone. Everything is inside this file; it loads nothing.`,
      ),
    ),
  );
}
start();
