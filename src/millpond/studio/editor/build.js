// Bundles the editor and collects the licences of its packages.  The first line of the bundle has a digest of
// what it was built from, by which a test knows whether it is up to date.

import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const INPUTS = ["build.js", "editor.js", "package-lock.json"];
const digest = createHash("sha256");
for (const file of INPUTS) digest.update(readFileSync(file));

const { metafile } = await build({
  entryPoints: ["editor.js"],
  outfile: "../static/editor.js",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  banner: { js: `// Built from ../editor (sha256 ${digest.digest("hex")}); licences: LICENSES.txt` },
});

const used = new Set(
  Object.keys(metafile.inputs)
    .map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1])
    .filter(Boolean),
);
const licences = [...used].sort().map((name) => {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
});
const rule = `\n${"-".repeat(80)}\n\n`;
const head = "editor.js contains these packages.\n";
writeFileSync("../static/LICENSES.txt", [head, ...licences].join(rule));
