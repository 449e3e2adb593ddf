// The live page of a run: made once, then filled again with every state that the server sends.
const query = new URLSearchParams(location.search),
  token = new URLSearchParams(location.hash.slice(1)).get("stop");
const words = {
  running: "running",
  stopping: "stopping after this round",
  stopped: "stopped as asked",
  interrupted: "interrupted",
  failed: "failed",
  diverged: "diverged, and given up",
  lost: "gone without a word",
  finished: "finished",
  "not running": "not running",
};
const going = (run) => run.state === "running" || run.state === "stopping";
const clock = (seconds) => {
  if (!known(seconds)) return null;
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
};
const share = (used, budget) => (known(used) && known(budget) && budget > 0 ? used / budget : null);
const most = (values) => Math.max(...values.filter(known));

const page = {
  title: el("bdi", {}, "fedfdp watch"),
  about: el("p", {}, "waiting for news"),
  state: el("p", { id: "state", class: "state", role: "status" }),
  link: el("p", { id: "link", class: "note", role: "alert", hidden: true }),
  alarms: el("div", { id: "alarms", "aria-live": "polite" }),
  bar: el("progress", { id: "progress", max: 1, value: 0, "aria-label": "rounds done" }),
  pace: el("p", { id: "pace", class: "lead" }),
  picker: el("select", { id: "picker", "aria-label": "The run that is shown" }),
  stop: el("button", { type: "button", id: "stop", hidden: true }, "Stop after this round …"),
  report: el("a", { id: "report", href: "report" }, "Full report"),
  cards: el("dl", { class: "cards" }),
  curves: el("div", { class: "figures" }),
  holders: el("div", { id: "holders" }),
  losses: el("div", { id: "losses" }),
};
const dialog = el(
  "dialog",
  { "aria-labelledby": "stop-title" },
  el("h2", { id: "stop-title" }, "Stop the run?"),
  paragraph(
    "It ends after the round that it is in. Nothing that was paid for is lost: it can be resumed where it ended.",
  ),
  el(
    "div",
    { class: "answers" },
    el("button", { type: "button", id: "keep", autofocus: true, onclick: () => dialog.close() }, "Keep running"),
    el(
      "button",
      { type: "button", id: "confirm", class: "grave", onclick: () => askToStop() },
      "Stop after this round",
    ),
  ),
);
let shown = null, // the state that the page shows
  parts = null; // figures and table of the run, and for what they were made

const fresh = (element, text) => {
  if (element.textContent !== text) element.textContent = text; // or a screen reader would say it again
};

function askToStop() {
  dialog.close();
  const address = `stop?run=${encodeURIComponent(shown.id)}`;
  send(address).then((said) => page.state.replaceChildren(said));
}

async function send(address) {
  try {
    const answer = await window.fetch(address, { method: "POST", headers: { "X-Fedfdp-Token": token } });
    return (await answer.json()).said;
  } catch {
    return "the server cannot be reached: the run was not asked to stop";
  }
}

// What a run reached so far, what it has spent, and how fast it goes.
function showCards(run) {
  const at = (name) => last(run.history[name] || []),
    reached = shownIn("line", run.task).filter((metric) => known(at(metric.name))),
    rows = reached.map((metric) => [
      told(metric.title, [run]),
      form[metric.form](at(metric.name)),
      told(metric.about, [run]),
    ]);
  const used = run.spent ? most(run.spent.epsilon) : null,
    part = run.spent ? most(run.spent.epsilon.map((one, i) => share(one, run.spent.budget[i]))) : null;
  rows.push([
    "ε spent",
    run.private ? form.number(used) : "none",
    run.private
      ? known(part) && Number.isFinite(part)
        ? `${(100 * part).toFixed(0)} % of the budget, at the holder nearest to its own`
        : "by the holder that spent most"
      : "this run is not private",
  ]);
  if (known(run.took_part))
    rows.push(["took part", `${run.took_part} of ${run.clients.names.length}`, "in the last round"]);
  page.cards.replaceChildren(
    ...rows.map(([name, value, small]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, small))),
    ),
  );
}

function showProgress(run) {
  const parts = [`Round ${run.round ?? 0} of ${run.rounds ?? "?"}`],
    left = clock(run.left);
  if (left && run.state === "running") parts.push(`about ${left} left`);
  if (known(run.pace)) parts.push(`${run.pace < 10 ? run.pace.toFixed(2) : run.pace.toFixed(0)} s a round`);
  fresh(page.pace, parts.join(" · "));
  page.bar.value = run.rounds ? Math.min(1, (run.round ?? 0) / run.rounds) : 0;
  fresh(page.state, `${words[run.state]}${run.resume ? `; continue with: ${plain(run.resume)}` : ""}`);
  page.state.dataset.state = run.state;
  page.stop.hidden = run.state !== "running" || !token;
  const texts = run.alarms.map((alarm) => `${alarm.kind}: ${plain(alarm.text)}`);
  if (JSON.stringify(texts) !== page.alarms.dataset.shown) {
    page.alarms.dataset.shown = JSON.stringify(texts);
    page.alarms.replaceChildren(...texts.map((text) => el("p", { class: "note alarm" }, text)));
  }
}

// A row for each holder: how the model serves it, what it has spent and, across machines, how its node stands.
const holderColumns = (run) => [
  ["holder", "text", (i) => run.clients.names[i]],
  ...(run.standing
    ? [
        ["node", "text", (i) => run.standing[i].state],
        ["why", "text", (i) => run.standing[i].why || ""],
      ]
    : []),
  ["records", "count", (i) => run.clients.train?.[i] ?? null],
  ...Object.values(metrics)
    .filter((metric) => metric.by_client && run.clients[metric.name]?.flat().some(known))
    .map((metric) => [
      told(metric.title, [run]),
      metric.form,
      (i) => (last(run.clients[metric.name]) || [])[i] ?? null,
    ]),
  ...(run.spent
    ? [
        ["ε so far", "epsilon", (i) => run.spent.epsilon[i]],
        [run.standing ? "ε by its policy" : "budget", "count", (i) => run.spent.budget[i]],
        ["used", "percent", (i) => share(run.spent.epsilon[i], run.spent.budget[i])],
      ]
    : []),
];
const holderRows = (run) => run.clients.names.map((_, i) => holderColumns(run).map(([, , value]) => value(i)));

// Figures and table are made for one run and one set of metrics; with every other state they are only filled again.
function makeParts(run) {
  let index = 0;
  const styles = new Map(),
    linesOf = (group, of) =>
      group.map(({ name, curve }) => {
        if (!styles.has(name)) styles.set(name, styleOf(index++));
        return { label: curve.label, x: of.history.round, y: of.history[name], style: styles.get(name) };
      });
  const budgets = run.spent ? run.spent.budget.filter(known) : [],
    lowest = budgets.length ? Math.min(...budgets) : null;
  const limits = lowest === null ? {} : { epsilon: { value: lowest, label: `budget ${lowest}` } };
  const curves = curveFigures([run], { limits, ownLegend: true, linesOf: (group) => linesOf(group, run) });
  const losses = multiplesFigure({
    title: `${run.standing ? "Loss" : "Test loss"} of each holder by round`,
    note: "The highest first; all on the same axes, from zero.",
    names: run.clients.names,
    rounds: run.clients.round,
    rows: run.clients.loss,
    kind: "number",
    worstFirst: -1,
  });
  const table = tableView({
    title: "Holders",
    columns: holderColumns(run).map(([name, kind]) => ({ name, kind })),
    rows: holderRows(run),
  });
  page.curves.replaceChildren(...curves.map((one) => one.node));
  page.holders.replaceChildren(table);
  page.losses.replaceChildren(losses.node);
  return (of) => {
    for (const one of curves) one.update(linesOf(one.group, of));
    losses.update({ rounds: of.clients.round, rows: of.clients.loss });
    table.update(holderRows(of));
  };
}

const kindOf = (run) =>
  JSON.stringify([
    run.folder,
    run.task,
    run.clients.names,
    holderColumns(run).map(([name]) => name),
    Object.keys(run.history).filter((name) => run.history[name].some(known)),
  ]);

function show(state) {
  shown = state;
  const run = state.run;
  fresh(page.title, run ? plain(state.id) : "fedfdp watch");
  page.report.hidden = !run;
  showPicker(state);
  if (!run) {
    fresh(page.state, state.notice || "There is no run here yet: it is shown as soon as it begins.");
    page.state.dataset.state = "";
    return;
  }
  document.title = `${run.round ?? 0}/${run.rounds ?? "?"} ${plain(state.id)} · fedfdp watch`;
  page.report.href = `report?run=${encodeURIComponent(state.id)}`;
  fresh(page.about, `${form.text(run.method)} on ${form.text(run.data)}, ${run.clients.names.length} holders`);
  showProgress(run);
  showCards(run);
  const kind = kindOf(run);
  if (!run.history.round.length) return;
  if (parts?.kind === kind) parts.fill(run);
  else parts = { kind, fill: makeParts(run) };
}

function showPicker(state) {
  page.picker.hidden = state.runs.length < 2;
  const texts = state.runs.map((run) => `${plain(run.name)} (${run.state}, ${run.round ?? "?"}/${run.rounds ?? "?"})`);
  if (document.activeElement === page.picker || page.picker.dataset.shown === JSON.stringify([texts, state.id])) return;
  page.picker.dataset.shown = JSON.stringify([texts, state.id]);
  page.picker.replaceChildren(
    ...state.runs.map((run, i) => el("option", { value: run.name, selected: run.name === state.id }, texts[i])),
  );
}

page.picker.addEventListener("change", () => {
  query.set("run", page.picker.value);
  location.search = query.toString(); // what follows the # stays
});
page.stop.addEventListener("click", () => dialog.showModal());

function listen() {
  const news = new EventSource(`events${location.search}`);
  news.addEventListener("message", (event) => {
    page.link.hidden = true;
    show(JSON.parse(event.data));
  });
  news.addEventListener("error", () => {
    page.link.textContent =
      shown?.run && !going(shown.run)
        ? "The run has ended, and so has what served this page. It comes back by itself if the run is resumed with --watch."
        : "Not connected: what you see is old. The page tries again every second.";
    page.link.hidden = false;
    if (news.readyState === EventSource.CLOSED) setTimeout(listen, 1000); // the browser gave up; we don't
  });
}

document.body
  .querySelector(".skip")
  .after(
    el(
      "header",
      {},
      el("div", {}, el("h1", {}, page.title), page.about),
      el("div", { class: "tools" }, page.picker, themeButton()),
    ),
    el(
      "main",
      { id: "main", tabindex: "-1" },
      page.link,
      el(
        "section",
        { "aria-label": "Progress" },
        page.state,
        page.bar,
        page.pace,
        el("div", { class: "acts" }, page.stop, page.report),
      ),
      page.alarms,
      page.cards,
      page.curves,
      el("section", {}, page.holders, page.losses),
    ),
    el(
      "footer",
      {},
      paragraph(
        token
          ? "Whoever has this address, with what follows the #, can stop the run."
          : "This address can only look. The one that was printed in the terminal can also stop the run.",
      ),
      paragraph(`fedfdp ${facts.version}. ε so far is for display; what may be claimed is in the privacy statement.`),
    ),
    dialog,
  );
listen();
