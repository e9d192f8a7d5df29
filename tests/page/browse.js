// Run by tests/page/run: what a person does with the page, and what must never happen.
"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { chromium } = require("playwright-core");

const { PAGE, ROUTER, TOKEN, PICTURES } = process.env;
const ODD = '<script>document.title="hacked"</script>';

const launch = () =>
  chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
    ],
  });

// A page of which every message and request is looked at.
async function open(browser, options, address = PAGE) {
  const context = await browser.newContext({ locale: "en-GB", timezoneId: "UTC", ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) wrong.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`error: ${error}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(`${address}/`)) wrong.push(`a request to ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    wrong.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.wrong = wrong;
  await page.goto(`${address}/`);
  await page.locator("#attention .verdict").first().waitFor();
  await page.waitForFunction(() => document.getElementById("count").textContent !== "");
  return page;
}

async function close(page) {
  assert.deepEqual(page.wrong, []);
  await page.context().close();
}

async function picture(page, name, options = {}) {
  if (PICTURES) await page.screenshot({ path: path.join(PICTURES, `${name}.png`), ...options });
}

const hasNoSidewaysScrolling = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);

const tests = {
  async "what there is, in words and figures"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 960 }, colorScheme: "light" });
    assert.match(await page.locator("#identity").innerText(), /^worker-1 · csi\.orlop\.io /);
    const pool = page.locator("#pools .card").first();
    assert.match(await pool.innerText(), /default[\s\S]*In service[\s\S]*34 volumes, 4 snapshots/);
    for (const row of ["Used", "Without sharing", "Promised"]) {
      assert.ok((await pool.locator("dt", { hasText: row }).count()) === 1, row);
    }
    assert.match(await pool.locator("svg[role=img]").first().getAttribute("aria-label"), /^Used [0-9.]+ MiB of 3\.9\d GiB: .* Free .* Floor /);
    assert.match(await pool.locator(".key").innerText(), /sharing saves/);
    assert.match(await page.locator("#attention").innerText(), /1 volume has a problem/);
    assert.equal(await page.locator("#count").innerText(), "34 volumes");
    assert.equal(await page.locator("#volumes tbody tr").count(), 25);
    // The line needs two measurements of the device.
    const busy = page.locator("#volumes tr", { hasText: "orders-database" }).filter({ hasNotText: "copy" });
    await busy.locator(".sparks polyline").first().waitFor({ timeout: 60000 });
    assert.match(await busy.innerText(), /[KM]iB\/s[\s\S]*IOPS/);
    assert.ok(await page.locator("#nodes-section").isHidden());
    await close(page);
  },

  async "a name that is a script stays a name"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.fill("#search", "<script");
    await page.waitForFunction(() => document.querySelectorAll("#volumes tbody tr").length === 1);
    assert.equal(await page.locator("#volumes tbody th a").innerText(), ODD);
    await page.locator("#volumes tbody th a").click();
    await page.locator("#one-title", { hasText: "script" }).waitFor();
    assert.equal(await page.locator("#one-title").innerText(), ODD);
    assert.equal(await page.title(), `${ODD} · Orlop`);
    assert.equal(await page.locator("main script, #volumes script").count(), 0);
    await close(page);
  },

  async "a volume with a problem says which"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.getByRole("link", { name: "Show them" }).click();
    await page.waitForFunction(() => document.querySelectorAll("#volumes tbody tr").length === 1);
    assert.ok(await page.locator("#abnormal").isChecked());
    const row = page.locator("#volumes tbody tr");
    assert.match(await row.innerText(), /lost-and-found[\s\S]*Data lost[\s\S]*its data is missing/);
    await row.getByRole("link").click();
    await page.locator("#one-health", { hasText: "BackingFileMissing" }).waitFor();
    await close(page);
  },

  async "snapshots, what they give back, and what changed"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 1100 }, colorScheme: "dark" });
    await page.fill("#search", "orders-database");
    await page.getByRole("link", { name: "orders-database", exact: true }).click();
    const tree = page.locator("#one-copies");
    await tree.getByText("monday").waitFor();
    const leaf = (name) => tree.locator(".leaf", { hasText: name }).first();
    // What was overwritten after it is Monday's alone.
    assert.match(await leaf("monday").innerText(), /deleting it gives back 2[0-9](\.\d+)? MiB/);
    assert.match(await leaf("wednesday").innerText(), /clean filesystem/);
    assert.match(await leaf("orders-database-copy").innerText(), /deleting it gives back nothing/);
    assert.match(await page.locator("#one-facts").innerText(), /Takes\s*[0-9.]+ MiB, [0-9.]+ MiB of it shared/);
    const nested = tree.locator("li", { hasText: "wednesday" }).locator("ul");
    assert.match(await nested.first().innerText(), /orders-database-copy[\s\S]*copy-before-tests/);
    assert.match(await page.locator("#base option:checked").innerText(), /^tuesday/);
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator("#strip svg .cell").first().waitFor();
    assert.match(await page.locator("#strip-text").innerText(), /6[0-9](\.\d+)? MiB of 512 MiB \(1[0-9](\.\d)? %\), in \d+ ranges/);
    assert.ok((await page.locator("#strip svg .cell").count()) >= 12);
    await page.selectOption("#base", "");
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator("#strip-text", { hasText: /2[0-9]{2}(\.\d+)? MiB of 512/ }).waitFor();
    await page.selectOption("#base", { index: 2 });
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator("#strip-text", { hasText: /6[0-9](\.\d+)? MiB of 512/ }).waitFor();
    await page.locator("#one-activity polyline").first().waitFor({ state: "attached", timeout: 60000 });
    await close(page);
  },

  async "everything by keyboard"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    const seen = [];
    for (let step = 0; step < 80; step += 1) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const element = document.activeElement;
        const style = getComputedStyle(element);
        return { id: element.id, text: element.innerText, href: element.getAttribute("href"), outline: style.outlineStyle, width: style.outlineWidth };
      });
      if (at.id !== "" || at.href) assert.ok(at.outline !== "none" && at.width !== "0px", `no focus is seen at ${JSON.stringify(at)}`);
      seen.push(at.id || at.text);
      if (at.text === "orders-database") break;
    }
    for (const wanted of ["search", "abnormal", "orders-database"]) assert.ok(seen.includes(wanted), `${wanted}: ${seen}`);
    // Drawn again, the link keeps the focus.
    await page.waitForResponse((answer) => answer.url().includes("/api/volumes?"), { timeout: 30000 });
    await page.waitForTimeout(200);
    assert.equal(await page.evaluate(() => document.activeElement.innerText), "orders-database");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement.id === "one-title");
    await page.goBack();
    await page.waitForFunction(() => !document.getElementById("everything").hidden && document.activeElement.id === "main");
    await close(page);
  },

  async "every control has a name, and landmarks are there"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll("button, input, select, a, svg[role=img], [role=img]")]
        .filter((it) => !(it.innerText || it.textContent || it.getAttribute("aria-label") || it.labels?.[0]?.innerText || "").trim())
        .map((it) => it.outerHTML));
    assert.deepEqual(nameless, []);
    for (const landmark of ["main", "header", "footer", "[role=search]"]) assert.equal(await page.locator(`body ${landmark}`).first().count(), 1, landmark);
    assert.equal(await page.locator("section:not([aria-labelledby])").count(), 0);
    assert.equal(await page.getAttribute("html", "lang"), "en");
    assert.equal(await page.locator("th:not([scope])").count(), 0);
    await close(page);
  },

  async "contrast is enough in light and dark"(browser) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(browser, { viewport: { width: 1280, height: 900 }, colorScheme });
      const low = await page.evaluate(contrastBelow, 4.5);
      assert.deepEqual(low, [], colorScheme);
      await page.locator("#volumes tbody th a").first().click();
      await page.locator("#one-copies > *").first().waitFor();
      assert.deepEqual(await page.evaluate(contrastBelow, 4.5), [], colorScheme);
      await close(page);
    }
  },

  async "the theme can be chosen, and is kept"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 }, colorScheme: "light" });
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await ground();
    const button = page.locator("#theme");
    await button.click();
    assert.equal(await button.innerText(), "Theme: light");
    await button.click();
    assert.equal(await button.innerText(), "Theme: dark");
    assert.notEqual(await ground(), light);
    await page.reload();
    await page.locator("#attention .verdict").first().waitFor();
    assert.notEqual(await ground(), light);
    assert.deepEqual(await page.evaluate(() => Object.keys(localStorage)), ["orlop-theme"]);
    await close(page);
  },

  async "a phone needs no sideways scrolling"(browser) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(browser, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme });
      assert.ok(await hasNoSidewaysScrolling(page), "the list");
      if (colorScheme === "dark") await picture(page, "page-phone");
      await page.fill("#search", "orders-database");
      await page.getByRole("link", { name: "orders-database", exact: true }).click();
      await page.getByRole("button", { name: "Compare" }).click();
      await page.locator("#strip svg .cell").first().waitFor();
      assert.ok(await hasNoSidewaysScrolling(page), "a volume");
      const small = await page.evaluate(() => [...document.querySelectorAll("button, input:not([type=checkbox]), select")].filter((it) => it.offsetParent && it.offsetHeight < 38).map((it) => it.outerHTML));
      assert.deepEqual(small, [], "to be touched");
      await close(page);
    }
  },

  async "pages of volumes, and a search"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    assert.equal(await page.locator("#range").innerText(), "1 to 25 of 34");
    assert.ok(await page.locator("#before").isDisabled());
    await page.locator("#after").click();
    await page.locator("#range", { hasText: "26 to 34 of 34" }).waitFor();
    assert.equal(await page.locator("#volumes tbody tr").count(), 9);
    await page.fill("#search", "pvc-0b7c-1");
    await page.locator("#count", { hasText: "10 of 34 volumes" }).waitFor();
    assert.ok(await page.locator("#pages").isHidden());
    await page.fill("#search", "nothing has this name");
    await page.getByText("None is as asked for.").waitFor();
    await close(page);
  },

  async "nothing changes without the token"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.fill("#search", "pvc-0b7c-07");
    await page.getByRole("link", { name: "pvc-0b7c-07" }).click();
    await page.locator("#one-title", { hasText: "pvc-0b7c-07" }).waitFor();
    assert.ok(await page.locator("#change-section").isHidden());
    await page.getByRole("button", { name: "Allow changes" }).click();
    assert.equal(await page.evaluate(() => document.activeElement.id), "token");
    await page.keyboard.type("not the token at all");
    await page.keyboard.press("Enter");
    await page.locator("#token-error", { hasText: "the token is missing or wrong" }).waitFor();
    // The browser reports the refusal; that is the one message that is expected.
    const refusals = page.wrong.splice(0).filter((it) => !it.includes("401"));
    assert.deepEqual(refusals, []);
    await page.fill("#token", TOKEN);
    await page.keyboard.press("Enter");
    await page.locator("#change-section").waitFor();
    await page.fill("#snapshot-name", "taken-by-hand");
    await page.getByRole("button", { name: "Take the snapshot" }).click();
    await page.locator("#notice", { hasText: "The snapshot taken-by-hand was taken." }).waitFor();
    await page.locator("#one-copies", { hasText: "taken-by-hand" }).waitFor();
    await page.fill("#limit-writes", "250");
    await page.fill("#limit-read-bytes", "64");
    await page.getByRole("button", { name: "Set the limits" }).click();
    await page.locator("#notice", { hasText: "The limits are set." }).waitFor();
    await page.locator("#one-facts", { hasText: "reading 64 MiB/s, writes 250/s" }).waitFor();
    await page.getByRole("button", { name: "Set the limits" }).click();
    await page.locator("#notice", { hasText: "The limits are as they were." }).waitFor();
    await page.fill("#limit-writes", "");
    await page.getByRole("button", { name: "Set the limits" }).click();
    await page.locator("#one-facts", { hasText: /I\/O limits\s*reading 64 MiB\/s$/ }).waitFor();
    await picture(page, "page-change", { fullPage: true });
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
    assert.ok(!kept.includes(TOKEN));
    await page.reload();
    await page.locator("#one-title", { hasText: "pvc-0b7c-07" }).waitFor();
    assert.ok(await page.locator("#change-section").isHidden(), "the token is forgotten");
    await close(page);
  },

  async "nothing is shown or changed in place of another volume"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.getByRole("button", { name: "Allow changes" }).click();
    await page.fill("#token", TOKEN);
    await page.keyboard.press("Enter");
    await page.locator("#notice", { hasText: "Changes are allowed" }).waitFor();
    await page.fill("#search", "pvc-0b7c-08");
    await page.locator("#count", { hasText: "1 of 34 volumes" }).waitFor();
    const other = (await page.locator("#volumes tbody th a").getAttribute("href")).slice("#/volume/".length);
    await page.fill("#search", "orders-database");
    await page.getByRole("link", { name: "orders-database", exact: true }).click();
    await page.locator("#change-section").waitFor();
    // Answers that are on their way while another volume is chosen.
    const held = [];
    const hold = (url) => page.route(url, (route) => held.push(route));
    await hold("**/api/blocks?**");
    await page.getByRole("button", { name: "Compare" }).click();
    await page.locator("#strip-text", { hasText: "Comparing" }).waitFor();
    await hold(`**/api/volumes/${other}`);
    await page.evaluate((id) => { location.hash = `#/volume/${id}`; }, other);
    // Long before the page gives an answer up.
    await page.locator("#one-title", { hasText: other }).waitFor({ timeout: 8000 });
    assert.ok(await page.locator("#change-section").isHidden(), "whose limits would be set?");
    assert.equal(await page.locator("#one-copies").innerText(), "");
    await page.unroute(`**/api/volumes/${other}`);
    while (held.length < 2) await page.waitForTimeout(50);
    await held[1].continue();
    await page.locator("#one-title", { hasText: "pvc-0b7c-08" }).waitFor();
    const answered = page.waitForResponse((answer) => answer.url().includes("/api/blocks"));
    await held[0].continue();
    await (await answered).finished();
    await page.waitForTimeout(500);
    assert.equal(await page.locator("#strip-text").textContent(), "");
    assert.equal(await page.locator("#strip > *").count(), 0);
    // What no daemon would link to.
    await page.evaluate(() => { location.hash = "#/volume/%"; });
    await page.locator("#one-title", { hasText: "%" }).waitFor();
    await page.locator("#offline", { hasText: "there is no volume with this id" }).waitFor();
    page.wrong.splice(0).forEach((it) => assert.match(it, /404/));
    await close(page);
  },

  async "a router shows its nodes, and which do not answer"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 800 }, colorScheme: "light" }, ROUTER);
    await page.locator("#nodes tbody tr", { hasText: "worker-1" }).waitFor({ timeout: 60000 });
    assert.match(await page.locator("#nodes tbody tr").innerText(), /worker-1[\s\S]*Answers[\s\S]*default/);
    assert.match(await page.locator("#attention").innerText(), /Address .*has not answered yet/);
    assert.match(await page.locator("#pools").innerText(), /has no pool/);
    assert.ok(await page.locator("#unlock").isHidden());
    assert.ok(await page.locator("#volumes-section").isHidden());
    await picture(page, "page-router");
    await close(page);
  },

  async "other sites cannot use it"(browser) {
    const context = await browser.newContext();
    const page = await context.newPage();
    // Another port of the same machine is another site, as a page of an attacker would be.
    await page.goto(`${ROUTER}/`);
    const outcome = await page.evaluate(async (address) => {
      try {
        return (await fetch(`${address}/api/volumes`)).status;
      } catch (error) {
        return String(error);
      }
    }, PAGE);
    assert.match(String(outcome), /TypeError/);
    await context.close();
  },

  async "a daemon that is gone is said to be gone"(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.context().setOffline(true);
    await page.locator("#offline", { hasText: "does not answer" }).waitFor({ timeout: 60000 });
    assert.ok((await page.locator("#volumes tbody tr").count()) > 0, "what was shown stays");
    await page.context().setOffline(false);
    await page.locator("#offline").waitFor({ state: "hidden", timeout: 60000 });
    page.wrong.splice(0);
    await close(page);
  },

  // Last, when there is something to see in the lines.
  async "pictures of it for the manual"(browser) {
    if (!PICTURES) return;
    const light = await open(browser, { viewport: { width: 1280, height: 960 }, colorScheme: "light" });
    await light.locator("#volumes .sparks polyline").first().waitFor({ state: "attached", timeout: 60000 });
    await picture(light, "page-light");
    await close(light);
    const dark = await open(browser, { viewport: { width: 1280, height: 1000 }, colorScheme: "dark" });
    await dark.fill("#search", "orders-database");
    await dark.getByRole("link", { name: "orders-database", exact: true }).click();
    await dark.getByRole("button", { name: "Compare" }).click();
    await dark.locator("#strip svg .cell").first().waitFor();
    await dark.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
    await picture(dark, "page-volume-dark", { fullPage: true });
    await close(dark);
  },
};

// Runs in the page: texts whose colour is too near to what is behind them.
function contrastBelow(least) {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const ground = rgba(getComputedStyle(at).backgroundColor);
      if (ground[3] === 255) return ground;
    }
    return [255, 255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((it) => it.nodeType === 3 && it.textContent.trim() !== "");
    if (!hasText || !element.offsetParent || element.disabled || element.closest("svg")) continue;
    const [one, other] = [luminance(rgba(getComputedStyle(element).color)), luminance(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < least) low.push(`${ratio.toFixed(2)}: ${element.outerHTML.slice(0, 120)}`);
  }
  return low;
}

async function main() {
  const browser = await launch();
  let failed = 0;
  const wanted = process.argv[2] ?? "";
  for (const [name, test] of Object.entries(tests).filter(([it]) => it.includes(wanted))) {
    try {
      await test(browser);
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error.stack}`);
    }
  }
  await browser.close();
  process.exit(failed === 0 ? 0 : 1);
}

main();
