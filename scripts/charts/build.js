// Writes the charting library into the package: one script, and the licences of all that is inside it.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const to = "../../src/fedfdp/report/assets/vendor";
const { metafile } = await build({
  entryPoints: ["plot.js"],
  outfile: `${to}/plot.js`,
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "iife",
  globalName: "Plot",
  target: "es2020",
  legalComments: "none",
  metafile: true,
});
const inside = Object.values(metafile.outputs)[0].inputs;
const folders = Object.keys(inside)
  .filter((path) => inside[path].bytesInOutput && path.startsWith("node_modules/"))
  .map((path) => path.match(/^node_modules\/(@[^/]+\/)?[^/]+/)[0]);
const parts = [...new Set(folders)].sort().map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
});
const head = "plot.js is Observable Plot with the parts of d3 that it uses, made by scripts/charts/build.js.\n\n";
writeFileSync(`${to}/plot.LICENSE.txt`, head + parts.join(`\n${"-".repeat(80)}\n\n`));
