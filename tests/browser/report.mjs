// Looks at the demo's report: `node report.mjs REPORT.html SCREENSHOTS`.

import { mkdir } from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { look, tell } from "./look.mjs";

const [report, directory] = process.argv.slice(2);
if (!report || !directory) {
  process.stderr.write("usage: node report.mjs REPORT.html SCREENSHOTS\n");
  process.exit(2);
}

/** What a reader must be able to find. */
async function inspect(page) {
  return page.evaluate(() => {
    const size = (element) => {
      const { width, height } = element.getBoundingClientRect();
      return { width: Math.round(width), height: Math.round(height) };
    };
    const lanes = [...document.querySelectorAll("[data-vm]")];
    return {
      headline: document.querySelector("h1").innerText,
      figures: [...document.querySelectorAll(".figure .big")].map((figure) => figure.innerText),
      lanes: lanes.map((lane) => ({ vm: lane.dataset.vm, ...size(lane.querySelector(".life")) })),
      bars: [...document.querySelectorAll(".bar")].filter((bar) => size(bar).width >= 3).length,
      dots: document.querySelectorAll(".plot .dot").length,
    };
  });
}

await mkdir(directory, { recursive: true });
const url = pathToFileURL(path.resolve(report)).href;
const name = path.basename(report, ".html");
tell(await look({ url, name, directory, apart: ".figures, .axis, .plot", boxes: ".figure", inspect }));
