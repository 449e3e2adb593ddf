// Whether joining pays: each holder with the run's model and with one of its own, at the same ε.
drawings.joining = (run) => {
  const j = run.joining;
  if (!j)
    return [
      paragraph(
        "Not compared yet: `fedfdp joining` with this run's folder trains every holder by itself at the same ε.".replaceAll("`", ""),
        "soft",
      ),
    ];
  const kind = j.measure === "accuracy" ? "percent" : "number";
  const parts = [paragraph(`${j.recommendation[0].toUpperCase()}${j.recommendation.slice(1)}.`, "lead")];
  const many = j.holders.length;
  parts.push(
    j.worse_off.length
      ? warning(`Worse off than alone: ${j.worse_off.length} of ${many} (${cut(j.worse_off.join(", "), 200)}).`)
      : paragraph(`None of ${many} holders is worse off than alone.`),
    tableView({
      title: `${j.measure === "accuracy" ? "Accuracy" : "Loss"} of each holder, joined and alone, ${run.name}`,
      columns: [
        { name: "holder", kind: "text" },
        { name: "joined", kind },
        { name: "alone", kind },
        { name: "test records", kind: "text" },
        { name: "advice", kind: "text" },
      ],
      rows: j.holders.map((h) => [h.name, h.joined, h.alone, h.records === null ? "–" : String(h.records), h.advice]),
    }),
  );
  return parts;
};
