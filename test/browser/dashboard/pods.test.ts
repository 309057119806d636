import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
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

  test("stays readable with five hundred pods, and finds one of them", async () => {
    const tab = await openPods(operator, { bypassCSP: true });
    const { page } = tab;
    const { pods } = (await (
      await fetch(`${server.url}/v1/pods`, { headers: { Authorization: `Bearer ${operator}` } })
    ).json()) as { pods: object[] };
    const many = Array.from({ length: 500 }, (_, at) => ({
      ...pods[0],
      podId: `pod-${String(at).padStart(4, "0")}`,
      birthMs: 1_000 + at,
      logs: at < 4 ? Array.from({ length: 16 }, (__, log) => 16 * at + log) : [],
    }));
    // As a server answers that has so many, and whose stream a proxy doesn't let through.
    await page.route("**/v1/watch?*", (route) => route.abort());
    await page.route("**/v1/pods", (route) => route.fulfill({ json: { pods: many } }));
    await page.goto(`${server.url}/pods`);
    const rows = page.getByRole("table").getByRole("row");
    await expectSoon(() => rows.count(), 51);
    await page.getByText("500 pods up").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "Show 50 more of 450" }).click();
    await expectSoon(() => rows.count(), 101);
    expect(await isTooWide(page)).toBe(false);
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { level: 1 }).focus();
    await press(page, "/");
    await page.keyboard.type("pod-0437");
    await press(page, "Enter");
    await page.waitForURL("**/pods?find=pod-0437");
    await expectSoon(() => rows.count(), 2);
    await page.reload();
    await expectSoon(() => rows.count(), 2);
    await page.getByRole("button", { name: "Clear" }).click();
    await expectSoon(() => rows.count(), 51);
    await page
      .getByRole("button", { name: /^Drain pod/ })
      .first()
      .click();
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await expectShown(page.getByRole("alert").getByText(/There is no pod/));
    await tab.context.close();
  });
});
