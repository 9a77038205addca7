// Uses the page of a mock metadata service as people do: `node metadata.mjs URL SCREENSHOTS`. The mock has the VMs workers_0
// and workers_1, without requests so far; an event that has started stays active until it is ended.

import { createServer } from "node:http";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { browse, examine, listen, tell } from "./look.mjs";

const [url, directory] = process.argv.slice(2);
if (!url || !directory) {
  process.stderr.write("usage: node metadata.mjs URL SCREENSHOTS\n");
  process.exit(2);
}

const VIEWS = [1280, 390].flatMap((width) => ["light", "dark"].map((colorScheme) => ({ width, colorScheme })));

/** Somebody's names for a VM and for an event. */
const HOSTILE = {
  vm: "<img src=x onerror=\"document.title='owned'\">",
  description: "<script>document.title='owned'</script><b id=owned>Repair</b>",
};

const EVENTS = "metadata/scheduledevents?api-version=2020-07-01";

/** What a worker on a VM does. */
const asVm = (vm, init = {}) =>
  answered(fetch(`${url}/vm/${vm}/${EVENTS}`, { ...init, headers: { metadata: "true" } }));

/** What a command does. */
const command = (name, body) =>
  answered(fetch(`${url}/control/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  }));

async function answered(asked) {
  const answer = await asked;
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status} ${await answer.text()}`);
  return answer;
}

/** The texts of the elements that are found. */
const texts = (page, selector) => page.locator(selector).allInnerTexts();

const cardOf = (page, vm) => page.locator("#events > li", { hasText: vm });

async function open(browser, view, faults) {
  const page = await browser.newPage({
    viewport: { width: view.width, height: 900 },
    deviceScaleFactor: 1,
    colorScheme: view.colorScheme,
  });
  const heard = listen(page, (address) => address.startsWith(url));
  page.on("close", () => faults.push(...heard));
  await page.goto(url, { waitUntil: "load" });
  await page.locator("[data-vm]").first().waitFor();
  return page;
}

/** What is wrong with how the page looks as it is now. */
async function seenAs(page, name) {
  const screenshot = path.join(directory, `metadata-${name}.png`);
  const seen = await examine(page, {
    screenshot,
    apart: ".news, .head, .cards, .events, #drawing svg, #story, .lines, #fault",
    boxes: ".news p, .cards > li, .events > li, .lines > li, #story li, button",
  });
  return { ...seen, name, screenshot };
}

/** Looks in every view at a page that is opened now. */
async function look(browser, name) {
  const views = [];
  for (const view of VIEWS) {
    const faults = [];
    const page = await open(browser, view, faults);
    const seen = await seenAs(page, `${name}-${view.width}-${view.colorScheme}`);
    await page.close();
    views.push({ ...seen, faults: [...faults, ...seen.faults] });
  }
  return views;
}

/** An eviction from its announcement to its end, as a scenario and a worker's approval. */
async function scenario(page) {
  await page.getByLabel("Target VM").selectOption("workers_1");
  await page.getByLabel("Speed").selectOption("2");
  await page.getByText(", 2× real time").waitFor();
  await page.getByRole("button", { name: "Run preempt", exact: true }).click();
  const card = cardOf(page, "workers_1");
  await card.getByText("Scheduled", { exact: true }).waitFor();
  const scheduled = await card.innerText();
  const id = await card.getAttribute("data-event");

  await asVm("workers_1", { method: "POST", body: JSON.stringify({ StartRequests: [{ EventId: id }] }) });
  await card.getByText(/^by workers_1 at /).waitFor();
  await card.getByText("Started", { exact: true }).waitFor();
  const started = await card.innerText();
  await card.getByRole("button", { name: "End now" }).click();
  await card.waitFor({ state: "detached" });
  const focused = await page.evaluate(() => document.activeElement.id);

  const lane = page.locator(`#drawing [data-event="${id}"]`);
  const drawn = await lane.locator("rect:not([visibility]), circle").evaluateAll((all) => all.map((one) => one.getAttribute("class")));
  return { scheduled, started, focused, drawn, status: await page.locator("#status").innerText() };
}

/** An eviction by its button, which is withdrawn with the keyboard. */
async function eviction(page) {
  await page.getByLabel("Eviction notice").selectOption("10m");
  await page.getByRole("button", { name: "Evict workers_0" }).click();
  const card = cardOf(page, "workers_0").filter({ hasText: "Preempt" });
  await card.waitFor();
  const said = { card: await card.innerText(), vm: await page.locator("[data-vm=workers_0]").innerText() };
  await card.getByRole("button", { name: "Withdraw" }).focus();
  await page.keyboard.press("Enter");
  await card.waitFor({ state: "detached" });
  return said;
}

/** What is put into the page by whoever names things. */
async function hostility(page) {
  const event = { type: "Reboot", vms: [HOSTILE.vm, "workers_0"], description: HOSTILE.description };
  await command("announce", { ...event, notice: "168h" });
  const card = cardOf(page, HOSTILE.vm);
  await card.waitFor();
  await page.locator("#story", { hasText: HOSTILE.vm }).waitFor();
  return {
    description: await card.locator(".description").innerText(),
    elements: await page.locator("main img, main script, #owned").count(),
    title: await page.title(),
  };
}

/** A fault is added by the form, and stays for the screenshots; one that is none is refused with the mock's own words. */
async function faulty(browser, page) {
  const add = async (on, { kind, requests, lasts }) => {
    await on.getByLabel("Kind", { exact: true }).selectOption(kind);
    await on.getByLabel("Requests", { exact: true }).fill(requests);
    await on.getByLabel("Duration", { exact: true }).fill(lasts);
    await on.getByRole("button", { name: "Add fault" }).click();
  };
  await add(page, { kind: "410", requests: "", lasts: "1h" });
  await add(page, { kind: "hang", requests: "2", lasts: "" });
  await page.locator("#faults > li", { hasText: "hang" }).waitFor();
  const standing = await texts(page, "#faults > li");
  await page.getByRole("button", { name: "Clear fault 2, hang" }).click();
  await page.locator("#faults > li", { hasText: "hang" }).waitFor({ state: "detached" });

  // Not listened to: browsers write refusals to the console.
  const other = await browser.newPage();
  await other.goto(url);
  await other.locator("[data-vm]").first().waitFor();
  await add(other, { kind: "hang", requests: "", lasts: "soon" });
  await other.locator("#refusal:not(:empty)").waitFor();
  const refused = await other.locator("#refusal").innerText();
  await other.context().setOffline(true);
  await other.locator("#alert:not(:empty)").waitFor();
  const away = await other.locator("#alert").innerText();
  const view = await seenAs(other, "away");
  await other.context().setOffline(false);
  await other.locator("#alert:empty").waitFor({ state: "attached" });
  await other.close();
  return { standing, refused, away, view };
}

/** How many times the page asks in three seconds while nobody looks, and that it goes on when somebody does. */
async function unseen(page) {
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  let asked = 0;
  const count = () => { asked += 1; };
  await hide(true);
  // What was asked before is answered, and another round may be about to begin.
  await page.waitForTimeout(1500);
  page.on("request", count);
  await page.waitForTimeout(3000);
  page.off("request", count);
  await Promise.all([page.waitForRequest(/control\/state$/), hide(false)]);
  return asked;
}

/** A set that is too large to look through, and one of nobody. */
async function sets(page) {
  const names = Array.from({ length: 12 }, (_, number) => `spare_${number}`);
  for (const name of names) await command("vms", { name });
  await page.locator("[data-vm=spare_11]").waitFor();
  await page.getByLabel("Find a VM").fill("E_7");
  await page.locator("[data-vm=workers_0]").waitFor({ state: "detached" });
  const found = { vms: await texts(page, "#vms h3"), more: await page.locator("#vms-more").innerText() };
  await page.getByLabel("Find a VM").fill("");
  for (const name of [...names, "workers_0", "workers_1"]) {
    await answered(fetch(`${url}/control/vms/${name}`, { method: "DELETE" }));
  }
  await page.locator("#set-hint", { hasText: "There are no VMs" }).waitFor();
  return { ...found, hint: await page.locator("#set-hint").innerText(), cards: await page.locator("#vms > li").count() };
}

/** What a page of another site gets that has the browser send a request that the mock would otherwise accept. */
async function otherSite(browser) {
  const site = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<title>other</title>"));
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${site.address().port}/`);
    const answers = [];
    page.on("response", (answer) => answer.url().startsWith(url) && answers.push(answer.status()));
    await page.evaluate(async (url) => {
      await fetch(`${url}/control/restart`, { method: "POST", mode: "no-cors", body: "null" });
      await fetch(`${url}/control/state`, { mode: "no-cors" });
    }, url);
    await page.close();
    return answers;
  } finally {
    site.close();
  }
}

await mkdir(directory, { recursive: true });
const seen = await browse(async (browser) => {
  const faults = [];
  const views = await look(browser, "quiet");
  const page = await open(browser, VIEWS[0], faults);
  const quiet = { vms: await texts(page, "#vms > li"), hint: await page.locator("#set-hint").innerText() };
  await asVm("workers_0");
  await page.locator("[data-vm=workers_0].polling").waitFor();
  const asked = await page.locator("[data-vm=workers_0]").innerText();
  const shown = { quiet, asked, scenario: await scenario(page), eviction: await eviction(page) };
  shown.hostility = await hostility(page);
  const { view, ...rest } = await faulty(browser, page);
  shown.faulty = rest;
  shown.lines = await texts(page, "#story li span");
  await page.getByRole("button", { name: "Run rebalance-then-preempt" }).click();
  await page.locator("#running > li").waitFor();
  views.push(view, await seenAs(page, "live"), ...(await look(browser, "busy")));
  shown.polledUnseen = await unseen(page);
  shown.sets = await sets(page);
  await page.close();
  shown.otherSite = await otherSite(browser);
  return { url, browser: browser.version(), views, faults, shown };
});
tell(seen);
