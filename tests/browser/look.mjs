// Opens pages of ours in Chromium at several widths, in light and dark, and says what is wrong with how they look.
//
// What holds for every page is here; what only one page has is checked by that page's script.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";

const CHROMIUM = "/usr/bin/chromium";

// Without a sandbox, because containers run as root; the rest keeps Chromium from talking to anybody by itself.
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

const VIEWS = [
  { name: "1280", width: 1280, height: 900, colorScheme: "light" },
  { name: "1280-dark", width: 1280, height: 900, colorScheme: "dark" },
  { name: "400", width: 400, height: 800, colorScheme: "light" },
  { name: "400-dark", width: 400, height: 800, colorScheme: "dark" },
];

/** Smaller text than this many CSS pixels is not read. */
const TEXT_PX_MIN = 11;

/**
 * Looks at `url` in every view and keeps a screenshot of the whole page as `directory/name-view.png`.
 *
 * `apart` selects the elements in which no two texts may overlap, and `boxes` those that must be large enough for what is
 * in them. `inspect(page, view)` returns what the page's own test
 * wants to know; if it throws, that is a fault of that view.
 */
export async function look({ url, name, directory, apart, boxes, inspect }) {
  return browse(async (browser) => {
    const views = [];
    for (const view of VIEWS) {
      views.push(await see(browser, { url, name, directory, apart, boxes, inspect }, view));
    }
    return { url, browser: browser.version(), views };
  });
}

/** Does `act` with a browser, which is closed whatever comes of it. */
export async function browse(act) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  try {
    return await act(browser);
  } finally {
    await browser.close();
  }
}

async function see(browser, { url, name, directory, apart, boxes, inspect }, view) {
  const { width, height, colorScheme } = view;
  const page = await browser.newPage({ viewport: { width, height }, deviceScaleFactor: 1, colorScheme });
  const faults = listen(page, (address) => address === url || address.startsWith("data:"));
  await page.goto(url, { waitUntil: "load" });

  const screenshot = path.join(directory, `${name}-${view.name}.png`);
  const seen = await examine(page, { screenshot, apart, boxes });
  faults.push(...seen.faults);
  let inspected = null;
  try {
    inspected = await inspect(page, view);
  } catch (error) {
    faults.push(`inspection: ${error.message}`);
  }
  await page.close();
  return { name: view.name, screenshot, ...seen, faults, inspected };
}

/** Looks at the page as it is now, keeps a screenshot of all of it, and says what is wrong among `faults`. */
export async function examine(page, { screenshot, apart, boxes }) {
  await page.screenshot({ path: screenshot, fullPage: true });
  const seen = await page.evaluate(measure, { apart, boxes, textPxMin: TEXT_PX_MIN });
  seen.faults.push(...(await accessibility(page)));
  return seen;
}

/** Collects what a page that needs nobody but itself would never do; `isOwn` says which addresses that may ask for. */
export function listen(page, isOwn) {
  const faults = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`script: ${error.message}`));
  page.on("request", (request) => {
    if (!isOwn(request.url())) faults.push(`request: ${request.url()}`);
  });
  return faults;
}

/** Everything that can be measured inside the page. Runs there, so it may use nothing from here. */
async function measure({ apart, boxes, textPxMin }) {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) faults.push(`the page is ${root.scrollWidth} px wide in a window of ${innerWidth} px`);

  const images = [...document.images];
  for (const [number, image] of images.entries()) {
    await image.decode().catch(() => {});
    if (image.naturalWidth === 0) faults.push(`image ${number} could not be decoded`);
    if (!image.alt) faults.push(`image ${number} has no alternative text`);
  }

  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent.trim() || !node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 0);
    if (boxes.length === 0) continue;
    const px = Number.parseFloat(getComputedStyle(node.parentElement).fontSize);
    texts.push({ said: node.textContent.trim(), element: node.parentElement, boxes, px });
    if (px < textPxMin) faults.push(`"${node.textContent.trim()}" is ${px} px small`);
  }

  // A pixel is forgiven: boxes of lines touch.
  const overlap = (one, other) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 &&
    Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
  for (const [index, one] of texts.entries()) {
    const within = one.element.closest(apart);
    if (!within) continue;
    for (const other of texts.slice(index + 1)) {
      if (!within.contains(other.element)) continue;
      const both = one.boxes.some((a) => other.boxes.some((b) => overlap(a, b)));
      if (both) faults.push(`"${one.said}" and "${other.said}" overlap`);
    }
  }
  for (const element of document.querySelectorAll(boxes)) {
    if (element.scrollWidth > element.clientWidth + 1) faults.push(`"${element.innerText}" runs out of its box`);
  }
  return {
    title: document.title,
    lang: root.lang,
    images: images.length,
    texts: texts.length,
    smallestTextPx: Math.min(...texts.map((text) => text.px)),
    faults,
  };
}

/** What axe finds: contrast, names, headings, tables. */
async function accessibility(page) {
  const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
  return violations.flatMap((violation) =>
    violation.nodes.map((node) => `accessibility: ${violation.help}: ${node.target.join(" ")}: ${node.failureSummary}`),
  );
}

/** Prints what was seen as JSON, and ends with 1 if anything is wrong with it. */
export function tell(seen) {
  process.stdout.write(`${JSON.stringify(seen)}\n`);
  process.exitCode = seen.views.some((view) => view.faults.length > 0) ? 1 : 0;
}
