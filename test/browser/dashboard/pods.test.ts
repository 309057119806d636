import { DatabaseSync } from "node:sqlite";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { encodePulse } from "../../../src/pods/pulse.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import {
  type DashboardServer,
  expectShown,
  faultsOf,
  isTooWide,
  openTab,
  startDashboard,
} from "./dashboard-server.ts";

const limitMs = 180_000;
const operator = "a-key-of-an-operator";
const viewer = "a-key-of-a-viewer";
let browser: Browser;
let server: DashboardServer;

beforeAll(async () => {
  browser = await launch();
  server = await startDashboard({
    server: {
      apiKeys: [
        { key: operator, name: "ops", role: "operator" },
        { key: viewer, name: "look", role: "viewer" },
      ],
    },
  });
}, limitMs);
afterAll(async () => {
  server?.open();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

async function openPods(key: string, options = {}) {
  const tab = await openTab(browser, `${server.url}/pods`, options);
  await tab.page.getByLabel("Key").fill(key);
  await tab.page.getByRole("button", { name: "Sign in" }).click();
  await tab.page.getByText("leads").waitFor();
  return tab;
}

const press = async (page: Page, ...keys: readonly string[]) => {
  for (const key of keys) await page.keyboard.press(key);
};

describe("the page of pods", { timeout: limitMs }, () => {
  test("drains a pod and undrains it by keys alone, which a viewer sees and can't", async () => {
    await server.put("gated", null, "claimed");
    const [own, other] = [await openPods(operator, { bypassCSP: true }), await openPods(viewer)];
    const { page } = own;
    const row = (on: Page) => on.getByRole("row", { name: /leads/ });
    await row(page)
      .getByText(/^1 of \d+/)
      .waitFor();
    await row(page).getByText(/MiB/).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    expect(await other.page.getByRole("button", { name: /rain/ }).count()).toBe(0);

    await page.getByRole("button", { name: /^Drain pod/ }).focus();
    await press(page, "Enter", "Tab", "Enter");
    await page.getByRole("status").getByText("takes no more work").waitFor();
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("H1");
    for (const on of [page, other.page]) {
      await row(on).getByText("draining", { exact: true }).waitFor();
      await row(on).getByText("1 task left").waitFor();
    }
    server.open();
    for (const on of [page, other.page])
      await row(on).getByText("nothing is left: it can be stopped").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await other.page.getByRole("link", { name: "Overview" }).click();
    await other.page.getByRole("link", { name: /is drained and takes no work/ }).click();
    await other.page.waitForURL("**/pods?find=*");
    await row(other.page).waitFor();

    await page.getByRole("button", { name: /^Undrain pod/ }).focus();
    await press(page, "Enter", "Tab", "Enter");
    await page.getByRole("status").getByText("takes work again").waitFor();
    for (const on of [page, other.page])
      await expectShown(row(on).getByText("it takes every task"));
    for (const tab of [own, other]) await leave(tab);
  });

  test("shows five hundred pods as their stream brings them, and finds one of them", async () => {
    const stop = keepUp(500);
    onTestFinished(stop);
    const tab = await openPods(operator, { bypassCSP: true });
    const { page } = tab;
    const rows = page.getByRole("table").getByRole("row");
    await expectSoon(() => rows.count(), 51);
    await page.getByText("501 pods up").waitFor();
    await expectSoon(() => page.getByText("leads", { exact: true }).count(), 1);
    await page.getByText("500 names").first().waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "Show 50 more of 451" }).click();
    await expectSoon(() => rows.count(), 101);
    expect(await isTooWide(page)).toBe(false);
    await page.getByRole("heading", { level: 1 }).focus();
    await press(page, "/");
    await page.keyboard.type("pod-0437");
    await press(page, "Enter");
    await page.waitForURL("**/pods?find=pod-0437");
    await expectSoon(() => rows.count(), 2);
    // From here on the stream alone tells of changes.
    await page.route("**/v1/fleet", (route) => route.abort());
    const file = new DatabaseSync(server.path, { timeout: 30_000 });
    file.exec("update flotilla_pod set drain = 1 where pod_id = 'pod-0437'");
    file.close();
    await page.getByText("draining", { exact: true }).waitFor();
    await page.unroute("**/v1/fleet");
    await page.reload();
    await expectSoon(() => rows.count(), 2);
    await page.goto(`${server.url}/pods?find=task-0499`);
    await expectSoon(() => rows.count(), 51);
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByRole("region", { name: "Counts" }).getByText("501").waitFor();
    await expectShown(page.getByRole("region", { name: "Verdict" }));
    expect(await page.getByRole("alert").count()).toBe(0);
    await leave(tab);
  });
});

/** Pods of one deploy with 500 handlers, which beat until they are taken away. */
function keepUp(count: number): () => void {
  const file = new DatabaseSync(server.path, { timeout: 30_000 });
  const names = Array.from({ length: 500 }, (_, at) => `task-${String(at).padStart(4, "0")}`);
  const metadata = JSON.stringify({ host: "worker", pid: 7, holds: 80, names });
  const pulse = encodePulse({
    claimed: 9_000,
    ended: { completed: 8_980 },
    chunks: 0,
    lagMs: 3,
    memoryBytes: 90_000_000,
    held: 20,
    leadsSinceMs: null,
    throttles: [{ name: "openai", key: "", inFlight: 4 }],
    running: [],
    logs: [],
  });
  const insert = file.prepare(
    "insert into flotilla_pod (pod_id, metadata, pulse) values (?, ?, ?)",
  );
  file.exec("begin immediate");
  for (let at = 0; at < count; at++)
    insert.run(`pod-${String(at).padStart(4, "0")}`, metadata, pulse);
  file.exec("commit");
  const beating = setInterval(() => {
    const nowMs = systemClock.now();
    file.exec(
      `update flotilla_pod set beat = beat + 1, last_heartbeat = ${nowMs} where pod_id like 'pod-%'`,
    );
  }, 1_000);
  return () => {
    clearInterval(beating);
    file.exec("delete from flotilla_pod where pod_id like 'pod-%'");
    file.close();
  };
}
