// Bundles the dashboard's libraries into src/qo/service/page/vendor, with their licences and a manifest.
//
// Run by `make vendor`, after a version in package.json was changed; then commit what it wrote. It needs node and npm.
// Users and tests need neither: tests/dashboard/test_files.py compares the files with the manifest.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "../../src/qo/service/page/vendor");
const folder = mkdtempSync(join(tmpdir(), "qo-vendor-"));

try {
  cpSync(here, folder, { recursive: true });
  execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: folder, stdio: "inherit" });
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  await bundle();
  await cutFont();
  writeManifest();
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function bundle() {
  const { build } = await import(pathToFileURL(join(folder, "node_modules/esbuild/lib/main.js")).href);
  await build({
    absWorkingDir: folder,
    entryPoints: ["preact.js", "drag.js", "uplot.js"],
    outdir: target,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    legalComments: "none", // the licences are in LICENSES.txt, whole
    define: { "process.env.NODE_ENV": '"production"' },
  });
  cpSync(join(folder, "node_modules/uplot/dist/uPlot.min.css"), join(target, "uplot.css"));
}

/** Inter with the letters of Western Europe and the signs of the page. Other letters come from the reader's own fonts. */
async function cutFont() {
  const { default: cut } = await import(pathToFileURL(join(folder, "node_modules/subset-font/index.js")).href);
  const letters = [...Array(0x100).keys()].filter((code) => code >= 0x20 && !(code >= 0x7f && code < 0xa0));
  const signs = "–—‘’“”…•·×−›‹→";
  const whole = readFileSync(join(folder, "node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2"));
  const variationAxes = { wght: { min: 400, max: 800 } };
  const font = await cut(whole, String.fromCharCode(...letters) + signs, { targetFormat: "woff2", variationAxes });
  writeFileSync(join(target, "inter.woff2"), font);
}

function writeManifest() {
  const lock = JSON.parse(readFileSync(join(folder, "package-lock.json"), "utf8"));
  const bundled = Object.entries(lock.packages)
    .filter(([path, entry]) => path.startsWith("node_modules/") && !entry.dev && !entry.optional)
    .map(([path, entry]) => ({ name: path.slice("node_modules/".length), ...entry }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
  const licences = bundled.map(({ name, version, license }) => {
    const package_ = join(folder, "node_modules", name);
    const file = readdirSync(package_).find((each) => /^licen[cs]e/i.test(each));
    const text = file ? readFileSync(join(package_, file), "utf8").trim() : `Licensed under ${license}.`;
    return `${name} ${version}\n${"=".repeat(78)}\n${text}\n`;
  });
  writeFileSync(join(target, "LICENSES.txt"), licences.join("\n\n"));
  const manifest = {
    made_by: "make vendor",
    libraries: Object.fromEntries(bundled.map(({ name, version, license }) => [name, { version, license }])),
    sha256: Object.fromEntries(readdirSync(target).sort().map((name) => [name, sha256(join(target, name))])),
  };
  writeFileSync(join(target, "manifest.json"), JSON.stringify(manifest, null, 2) + "\n");
}

function sha256(file) {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}
