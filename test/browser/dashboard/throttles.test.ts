import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { task, throttle } from "flotilla";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { dayMs, hourMs, minuteMs } from "../../../src/base/durations.ts";
import { startOf } from "../../../src/series/fold.ts";
import { storeCounts } from "../../../src/series/sql.ts";
import { openStore } from "../../../src/store/open.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { confusingTexts, hostileTexts } from "../hostile.ts";
import {
  type DashboardServer,
  expectShown,
  faultsOf,
  isTooWide,
  openTab,
  startDashboard,
  type Tab,
} from "./dashboard-server.ts";

const limitMs = 180_000;
const adminKey = "a-key-of-16-chars-or-more";
const viewerKey = "another-key-of-16-chars";
const hostileNames = [hostileTexts[0]!, hostileTexts[9]!, confusingTexts[0]!, "a/b ü?&#%20", ".."];
const hostileKey = `"><b>key</b> \u202e`;
const shownMinutes = 40;
const hourNow = () => Math.floor(Date.now() / hourMs);

let browser: Browser;
let server: DashboardServer;
let downstream: Server;
/** How many calls the API takes at once. More are refused with 429. */
let capacity = 1_000;
let isDone = false;

beforeAll(async () => {
  browser = await launch();
  let active = 0;
  downstream = createServer((_, response) => {
    if (active >= capacity) return void response.writeHead(429).end("too many");
    active++;
    systemClock.after(40, () => {
      active--;
      response.end("done");
    });
  });
  await new Promise<void>((resolve) => downstream.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(downstream.address() as AddressInfo).port}/`;
  const api = throttle("api");
  const calling = task("calling", {}, async () => {
    const call = async () => {
      while (!isDone) await (await api.fetch(url)).text();
    };
    await Promise.all(Array.from({ length: 16 }, call));
  });
  const touching = task("touching", {}, async () => {
    for (const name of hostileNames) await throttle(name).run(() => null, { key: hostileKey });
  });
  const apiKeys = [
    { key: adminKey, name: "ops", role: "admin" },
    { key: viewerKey, name: "look", role: "viewer" },
  ] as const;
  server = await startDashboard({ use: [calling, touching], server: { apiKeys } });
  await countMinutes();
  await server.put("touching", null, "completed");
  await server.flotilla.enqueue("calling", null as never);
  await until("all throttles are known", async () => {
    const { throttles } = await server.flotilla.throttles.list();
    return throttles.length > hostileNames.length;
  });
}, limitMs);
afterAll(async () => {
  isDone = true;
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
  downstream?.close();
});

/** Stores what pods would have counted in the minutes before, with a gap. */
async function countMinutes(): Promise<void> {
  const database = await openStore(`sqlite:${server.path}`);
  const nowAt = startOf(systemClock.now(), minuteMs);
  const times = Array.from({ length: shownMinutes }, (_, back) => back + 1).filter(
    (back) => back < 12 || back > 18,
  );
  const rows = times.flatMap((back) => {
    const wave = Math.round(20 + 15 * Math.sin(back / 4));
    const buckets = [0, 0, 0, 0, 0, wave, wave * 3, wave * 6, wave, 2];
    const durations = { sumMs: wave * 900, buckets };
    const counted = {
      task: {
        counts: { completed: wave * 11, failed: back % 9 === 0 ? 6 : 0, retry: back % 4 },
        wait: durations,
        run: durations,
        gauges: { oldestMs: wave * 1_000 },
      },
      "task:broken": { counts: { failed: back % 3 } },
      agent: { counts: { completed: wave }, wait: durations, run: durations },
      "throttle:api": {
        counts: {
          success: wave * 10,
          throttled: back % 7,
          inputTokens: wave * 4_000,
          outputTokens: wave * 700,
          costMillionths: wave * 9_000,
        },
        gauges: { bound: wave + 4, inFlight: wave, waiting: back % 5 },
        run: durations,
      },
    };
    return Object.entries(counted).map(([subject, counts]) => ({
      span: minuteMs,
      at: nowAt - back * minuteMs,
      subject,
      pod: "pod-of-before",
      counts: JSON.stringify(counts),
    }));
  });
  await database.write(storeCounts(rows));
  await database.close();
}

async function openAs(
  key: string,
  path: string,
  options: BrowserContextOptions = {},
): Promise<Tab> {
  const tab = await openTab(browser, server.url + path, options);
  await tab.page.getByLabel("Key").fill(key);
  await tab.page.getByRole("button", { name: "Sign in" }).click();
  await tab.page.getByRole("heading", { level: 1 }).waitFor();
  await tab.page.getByRole("navigation", { name: "Pages", exact: true }).waitFor();
  return tab;
}

const plotOf = (page: Page, name: string | RegExp): Locator => page.getByRole("figure", { name });
const pixelsOf = (plot: Locator) =>
  plot
    .locator("canvas")
    .evaluate((canvas) => (canvas as unknown as { toDataURL(): string }).toDataURL());

describe("a throttle", { timeout: limitMs }, () => {
  // The other tests look at what has become of it.
  afterAll(() => {
    isDone = true;
  });

  test("is seen to be learned, and to fall at 429s, with the cause of each change", async () => {
    capacity = 1_000;
    const tab = await openAs(adminKey, "/throttles");
    const { page } = tab;
    await page.getByRole("link", { name: "api", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "api" }).waitFor();
    const changes = page.getByRole("region", { name: "Changes of the limit" });
    await changes.getByRole("row", { name: /begins at 2 its first use/ }).waitFor();
    await changes
      .getByRole("row", { name: /rose from .* nothing was refused/ })
      .first()
      .waitFor();
    const limitPlot = plotOf(page, "Limit, calls in flight and waiting");
    await limitPlot.locator("canvas").waitFor();
    const refused = page.locator(".tile").filter({ hasText: "429s so far" });
    await refused.getByText(/^0$/).waitFor();
    let loads = 0;
    page.on("load", () => loads++);
    capacity = 1;
    await changes
      .getByRole("row", { name: /fell from .* calls were refused, as with 429/ })
      .first()
      .waitFor();
    await expectSoon(
      () => refused.textContent(),
      (text) => expect(text).toMatch(/^[1-9]/),
    );
    expect(loads).toBe(0);
    // The same is at the end of the plot, and in its table.
    await limitPlot.getByText("as a table").click();
    await expectShown(limitPlot.getByText(/the limit fell from .*: calls were refused/).first());
    const holders = page.getByText("Who holds a permit").first();
    await holders.click();
    await page
      .getByRole("region", { name: "Who holds a permit" })
      .getByRole("link", { name: /calling/ })
      .first()
      .click();
    await expectShown(page.getByRole("heading", { level: 1, name: "calling" }));
    expect(tab.outside).toEqual([]);
    await leave(tab);
  });

  test("is pinned and unpinned, with a limit that is checked, by keys", async () => {
    const tab = await openAs(adminKey, "/throttles/api", { bypassCSP: true });
    const { page } = tab;
    const pinned = async () => (await server.flotilla.throttles.get("api"))?.pinned;
    await page.getByRole("button", { name: "Pin" }).focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Pin this limit?" });
    await dialog.waitFor();
    const field = dialog.getByLabel("Limit");
    for (const text of ["", "-1", "1.5", "100001", "<b>"]) {
      await field.fill(text);
      await page.keyboard.press("Enter");
      await dialog.getByRole("alert").getByText("A whole number from 0 to 100,000.").waitFor();
    }
    expect(await faultsOf(page)).toEqual([]);
    expect(await pinned()).toBeUndefined();
    await field.fill("3");
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("The limit is pinned at 3.").waitFor();
    await expectSoon(pinned, 3);
    await expectShown(page.getByText("Pinned at 3: nothing is learned"));
    await expectShown(page.getByRole("row", { name: /it was pinned .*ops/ }).first());
    // The list of all says the same, and which pod has it.
    await page.getByRole("link", { name: "All throttles" }).click();
    const inList = page.getByRole("row").filter({
      has: page.getByRole("link", { name: "api", exact: true }),
    });
    await inList.getByRole("cell", { name: "3 pinned", exact: true }).waitFor();
    await inList.getByTitle(server.pod.podId).waitFor();
    await page.goBack();
    await page.getByRole("button", { name: "Unpin" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Unpin this limit?" }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("The limit is learned again").waitFor();
    await expectSoon(pinned, undefined);
    const { entries } = await server.flotilla.audit.list({ action: "throttles.pin" });
    expect(entries).toHaveLength(1);
    await leave(tab);
  });

  test("is shown to a viewer, who can't act; one that isn't there says so, with a way on", async () => {
    const tab = await openAs(viewerKey, "/throttles/api");
    const { page } = tab;
    await page.getByRole("region", { name: "Changes of the limit" }).waitFor();
    expect(await page.getByRole("button", { name: /pin/i }).count()).toBe(0);
    await page.goto(`${server.url}/throttles/nothing?key=x&span=2y`);
    await page.getByText("There is no throttle nothing.").waitFor();
    await page.getByRole("link", { name: "All throttles" }).click();
    await expectShown(page.getByRole("link", { name: "api", exact: true }));
    await leave(tab);
  });

  test("may have any name: it is text and nothing else", async () => {
    const tab = await openAs(viewerKey, "/throttles");
    const { page } = tab;
    await page.getByText(hostileNames[0]!).first().waitFor();
    await page.getByText("U+202E").first().waitFor();
    for (const name of hostileNames.slice(0, 4)) {
      const { throttles } = await server.flotilla.throttles.list();
      expect(throttles.map((each) => each.name)).toContain(name);
      const key = encodeURIComponent(hostileKey);
      await page.goto(`${server.url}/throttles/${encodeURIComponent(name)}?key=${key}`);
      await page.getByRole("row", { name: /begins at/ }).waitFor();
      const inserted = "#root :is(img, iframe, object, script, style, b, form[action])";
      expect(await page.locator(inserted).count()).toBe(0);
      expect(await page.evaluate(() => (globalThis as { hit?: string }).hit)).toBeUndefined();
      expect(await isTooWide(page)).toBe(false);
    }
    expect(tab.outside).toEqual([]);
    await leave(tab);
  });

  test("that is among many is on a page of the list, and without any there is how to begin", async () => {
    const tab = await openAs(viewerKey, "/throttles");
    const { page } = tab;
    const { throttles } = await server.flotilla.throttles.list({ limit: 1 });
    let answer = { throttles, next: "a cursor" as string | null };
    await tab.context.route("**/v1/throttles?*", (route) => route.fulfill({ json: answer }));
    await page.getByRole("link", { name: "More" }).click();
    await page.waitForURL("**/throttles?cursor=a+cursor");
    await page.getByRole("link", { name: "To the first" }).waitFor();
    answer = { throttles: [], next: null };
    await page.getByRole("link", { name: "To the first" }).click();
    await page.waitForURL("**/throttles");
    await page.getByText("No throttle has been used.").waitFor();
    await expectShown(page.getByText('const api = throttle("openai");'));
    await leave(tab);
  });
});

describe("plots", { timeout: limitMs }, () => {
  test("are read by keys and as tables, follow the theme, and keep their span in the address", async () => {
    const tab = await openAs(viewerKey, "/throttles/api", { colorScheme: "light" });
    const { page } = tab;
    const calls = plotOf(page, "Calls per minute");
    await calls.locator("canvas").waitFor();
    const slider = calls.getByRole("slider");
    await slider.focus();
    await page.keyboard.press("End");
    await page.keyboard.press("ArrowLeft");
    const before = await slider.getAttribute("aria-valuetext");
    expect(before).toMatch(/succeeded [\d,]+, failed \d+, 429 \d+/);
    await page.keyboard.press("PageDown");
    await expectSoon(
      () => slider.getAttribute("aria-valuetext"),
      (text) => expect(text).not.toBe(before),
    );
    await calls.getByText("as a table").click();
    // The gap has no rows, nor has a minute before the first.
    await expectSoon(
      () => calls.getByRole("row").count(),
      (count) => {
        expect(count).toBeGreaterThan(shownMinutes - 10);
        expect(count).toBeLessThan(shownMinutes + 2);
      },
    );
    for (const name of ["Tokens per minute", "Money per minute", /^Latency/])
      await plotOf(page, name).locator("canvas").waitFor();
    const light = await pixelsOf(calls);
    await page.emulateMedia({ colorScheme: "dark" });
    await expectSoon(
      () => pixelsOf(calls),
      (dark) => expect(dark).not.toBe(light),
    );
    await page.getByRole("button", { name: "7 d" }).click();
    await page.waitForURL("**/throttles/api?span=7d");
    await plotOf(page, "Calls per hour").locator("canvas").waitFor();
    await page.reload();
    await expectShown(plotOf(page, "Calls per hour").locator("canvas"));
    await page.goBack();
    await page.waitForURL("**/throttles/api");
    await expectShown(plotOf(page, "Calls per minute").locator("canvas"));
    // A browser's clock that is wrong changes nothing: the server's counts.
    await page.clock.setSystemTime(systemClock.now() + 2 * dayMs);
    await page.reload();
    await expectShown(plotOf(page, "Calls per minute").locator("canvas"));
    // What is drawn follows the width of its page.
    await page.setViewportSize({ width: 600, height: 800 });
    await expectSoon(() => isTooWide(page), false);
    await leave(tab);
  });

  test("of the overview lead to the lists behind them", async () => {
    const failedHour = hourNow();
    await server.put("broken", {}, "failed");
    const tab = await openAs(adminKey, "/");
    const { page } = tab;
    const links = {
      "Tasks ended per minute": "/tasks?status=completed",
      "Failures per minute": "/failures",
      "Wait, from due to begun": "/tasks?status=pending",
      "Run time": "/tasks?status=claimed",
      "Oldest wait": "/queues",
      "First token of answers": "/sessions",
      "Use of throttles": "/throttles",
    };
    for (const [name, path] of Object.entries(links)) {
      const plot = plotOf(page, name);
      await plot.locator("canvas").waitFor();
      await plot.getByText("as a table").click();
      await plot.getByRole("row").nth(3).waitFor();
      expect(await plot.getByRole("link").getAttribute("href")).toBe(path);
    }
    await plotOf(page, "Failures per minute").getByRole("link").click();
    await page.getByRole("heading", { level: 1, name: "Failures" }).waitFor();
    // A group shows its last day, and opened the same as a plot, and the trend of its name.
    const trend = page.getByRole("img", { name: "1 failed in the last 24 hours, " });
    const told = await trend.getAttribute("aria-label");
    // At the turn of an hour it is of the one before.
    const mayHaveTurned = () => hourNow() !== failedHour;
    expect(told).toMatch(mayHaveTurned() ? /, [01] in this hour$/ : /, 1 in this hour$/);
    await page.getByRole("link", { name: "the recipient is unknown" }).click();
    await plotOf(page, /^Failures of broken per hour/)
      .locator("canvas")
      .waitFor();
    const ofGroup = plotOf(page, "Failed with this error per hour");
    await ofGroup.locator("canvas").waitFor();
    await ofGroup.getByText("as a table").click();
    await expectSoon(() => ofGroup.getByRole("row").count(), 25);
    const ofHour = (nth: number) =>
      ofGroup.getByRole("row").nth(nth).getByText("1", { exact: true });
    await expectShown(mayHaveTurned() ? ofHour(24).or(ofHour(23)) : ofHour(24));
    await leave(tab);
  });

  test.each([
    ["light", { colorScheme: "light", viewport: { width: 1_280, height: 800 } }],
    ["dark", { colorScheme: "dark", viewport: { width: 1_280, height: 800 } }],
    [
      "phone",
      {
        colorScheme: "light",
        viewport: { width: 390, height: 760 },
        isMobile: true,
        hasTouch: true,
      },
    ],
  ] as const)("and the pages around them are accessible and fit: %s", async (name, look) => {
    // The checker is a script, and the page allows none but its own.
    const tab = await openAs(viewerKey, "/", { ...look, bypassCSP: true });
    const { page } = tab;
    for (const [path, text] of [
      ["/", "Tasks ended per minute"],
      ["/throttles", "In flight"],
      ["/throttles/api", "Changes of the limit"],
    ] as const) {
      await page.goto(server.url + path);
      await page.getByText(text).first().waitFor();
      if (path !== "/throttles") await page.locator("canvas").first().waitFor();
      // A table takes long to check, and is the same everywhere.
      if (path === "/throttles/api" && name === "light")
        await page.getByText("as a table").first().click();
      expect([path, await faultsOf(page)]).toEqual([path, []]);
      expect([path, await isTooWide(page)]).toEqual([path, false]);
    }
    await leave(tab);
  });
});
