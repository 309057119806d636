import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { startProxy } from "../proxy.ts";
import {
  type DashboardServer,
  expectShown,
  faultsOf,
  openTab,
  startDashboard,
  startStripping,
} from "./dashboard-server.ts";

const limitMs = 180_000;
const rebound = "evil.example";
const key = "a-key-of-16-chars-or-more";
const viewerKey = "another-key-of-16-chars";
const tenantKey = "a-third-key-of-16-chars";

let browser: Browser;
let server: DashboardServer;

beforeAll(async () => {
  browser = await launch([`--host-resolver-rules=MAP ${rebound} 127.0.0.1`]);
  server = await startDashboard();
}, limitMs);
afterAll(async () => {
  server?.open();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

const statusOf = async (taskId: string) => (await server.flotilla.tasks.get(taskId))?.status;
const audited = async (action: string) => {
  const { entries } = await server.flotilla.audit.list({ action });
  return entries.length;
};

describe("acts", { timeout: limitMs }, () => {
  test("a failed task is retried from its page, by mouse, once for two clicks", async () => {
    const taskId = await server.put("broken", {}, "failed");
    const before = await audited("tasks.retry");
    const tab = await openTab(browser, `${server.url}/tasks/${taskId}`, { bypassCSP: true });
    const { page } = tab;
    await page.getByRole("button", { name: "Retry" }).click();
    const dialog = page.getByRole("dialog", { name: "Retry this task?" });
    await dialog.waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await dialog.getByRole("button", { name: "Retry" }).dblclick();
    await page.getByRole("status").getByText("The task waits to run again.").waitFor();
    await expectSoon(() => page.getByRole("dialog").count(), 0);
    // The button may be gone by then, and the focus isn't.
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("H1");
    expect(await audited("tasks.retry")).toBe(before + 1);
    await leave(tab);
  });

  test("a running task is cancelled by keys alone, and asks first", async () => {
    const taskId = await server.put("gated", null, "claimed");
    const tab = await openTab(browser, `${server.url}/tasks/${taskId}`);
    const { page } = tab;
    await page.getByRole("button", { name: "Cancel" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Cancel this task?" }).waitFor();
    await page.keyboard.press("Escape");
    await expectSoon(() => page.getByRole("dialog").count(), 0);
    expect(await statusOf(taskId)).toBe("claimed");
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Cancel");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Cancel this task?" }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText("cancelled", { exact: true }).first().waitFor();
    await expectSoon(() => statusOf(taskId), "cancelled");
    await leave(tab);
  });

  test("ticked tasks are acted on by one request, and each says what became of it", async () => {
    const ids = await Promise.all(
      Array.from({ length: 5 }, async () => {
        const { taskId } = await server.flotilla.enqueue("unhandled", null as never);
        return taskId;
      }),
    );
    const url = `${server.url}/tasks?name=unhandled`;
    const tab = await openTab(browser, url, { bypassCSP: true });
    const { page } = tab;
    const ticks = page.getByRole("checkbox", { name: /^Tick unhandled/ });
    await expectSoon(() => ticks.count(), 5);
    const before = await audited("bulk.start");
    const sent: string[] = [];
    page.on("request", (each) => {
      const { pathname } = new URL(each.url());
      if (each.method() === "POST" && pathname !== "/v1/bulk/preview") sent.push(pathname);
    });
    await ticks.nth(0).check();
    await ticks.nth(2).check();
    const shown = page.locator(".cell-id");
    const [done, meanwhile] = [
      (await shown.nth(0).getAttribute("title"))!,
      (await shown.nth(2).getAttribute("title"))!,
    ];
    await page.getByRole("button", { name: "Act on 2 …" }).click();
    const two = page.getByRole("dialog", { name: "2 ticked tasks" });
    await two.getByText("2 tasks match.").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await server.flotilla.tasks.cancel(meanwhile);
    await two.getByRole("button", { name: "Cancel 2" }).dblclick();
    await two.getByText("1 task done").waitFor();
    await two.getByText("1 of 2 tasks left as they were").waitFor();
    const outcomes = two.getByRole("listitem");
    await expectShown(outcomes.filter({ hasText: "left: it is cancelled" }));
    await expectShown(
      outcomes.filter({ has: page.locator(`[title="${done}"]`) }).getByText("cancelled"),
    );
    expect(await faultsOf(page)).toEqual([]);
    await two.getByRole("button", { name: "Done" }).click();
    expect(sent).toEqual(["/v1/bulk"]);
    expect(await audited("bulk.start")).toBe(before + 1);
    const statuses = await Promise.all(ids.map(statusOf));
    expect(statuses.filter((each) => each === "cancelled")).toHaveLength(2);
    expect(await page.getByRole("region", { name: "Ticked tasks" }).count()).toBe(0);
    await page.getByRole("checkbox", { name: /^Tick all/ }).check();
    await page.getByRole("button", { name: "Act on 5 …" }).click();
    const five = page.getByRole("dialog", { name: "5 ticked tasks" });
    await five.getByRole("button", { name: "Cancel 3" }).click();
    await expectShown(five.getByText("3 tasks done"));
    expect(await Promise.all(ids.map(statusOf))).toEqual(ids.map(() => "cancelled"));
    await leave(tab);
  });

  test("a group of failures is redriven once it is mended, and another discarded", async () => {
    await using own = await startDashboard();
    await own.put("broken", { message: "no route to host" }, "failed");
    await own.put("broken", { message: "no route to host" }, "failed");
    const other = await own.put("broken", { message: "out of paper" }, "failed");
    const tab = await openTab(browser, `${own.url}/failures`, { bypassCSP: true });
    const { page } = tab;
    const group = (text: string) => page.getByRole("listitem").filter({ hasText: text });
    await group("out of paper").getByRole("link", { name: "out of paper" }).click();
    await page.waitForURL("**/failures?group=*");
    await page.getByRole("row", { name: /out of paper/ }).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await group("out of paper").getByRole("button", { name: "All that match" }).click();
    const all = page.getByRole("dialog", { name: "All that match" });
    await all.getByText("1 task matches.").waitFor();
    expect(await all.getByRole("radio").count()).toBe(2);
    await all.getByRole("button", { name: "Keep as it is" }).click();
    await group("out of paper")
      .getByRole("button", { name: /^Discard/ })
      .click();
    await page.getByRole("dialog").getByRole("button", { name: "Discard" }).click();
    await page.getByRole("status").getByText("1 task discarded.").waitFor();
    await expectSoon(async () => (await own.flotilla.tasks.get(other))?.status, "cancelled");
    own.mend();
    await group("no route to host")
      .getByRole("button", { name: /^Redrive/ })
      .click();
    await page.getByRole("dialog").getByRole("button", { name: "Redrive" }).click();
    await page.getByRole("status").getByText("The redrive has begun.").waitFor();
    await page.getByText("No task has failed.").waitFor();
    await expectShown(page.getByText("2 succeeded"));
    await leave(tab);
  });

  test("an act that the server refuses says why, and another tab's act is seen", async () => {
    const { taskId } = await server.flotilla.enqueue("unhandled", null as never);
    await server.flotilla.tasks.cancel(taskId);
    const tab = await openTab(browser, `${server.url}/tasks/${taskId}`);
    const { page } = tab;
    await page.getByRole("button", { name: "Retry" }).click();
    await server.flotilla.tasks.retry(taskId);
    await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click();
    await page.getByRole("alert").getByText("only failed and cancelled tasks can be").waitFor();
    await page.keyboard.press("Escape");
    await expectShown(page.getByRole("button", { name: "Cancel" }));
    await leave(tab);
  });
});

describe("the server", { timeout: limitMs }, () => {
  test("without keys tells a page under a name that leads here why it sees nothing", async () => {
    const tab = await openTab(browser, `http://${rebound}:${server.port}/tasks`);
    await expectShown(
      tab.page.getByRole("alert").getByText("This server listens on loopback only"),
    );
    expect(await tab.page.getByRole("row").count()).toBe(0);
    // The browser itself complains of a policy that counts for HTTPS and localhost alone.
    await tab.context.close();
  });

  test("that is away is told by a banner, and the page goes on when it is back", async () => {
    const proxy = await startProxy(() => server.port);
    const url = `http://127.0.0.1:${proxy.port}`;
    const tab = await openTab(browser, `${url}/pods`);
    const { page } = tab;
    await page.getByText("leads").waitFor();
    proxy.block(true);
    proxy.cut();
    await page.getByRole("alert").getByText("The server can't be reached").waitFor();
    await page.getByText("leads").waitFor();
    proxy.block(false);
    await expectSoon(() => page.getByRole("alert").count(), 0);
    await leave(tab);
    await proxy.close();
  });
});

async function signIn(page: Page, with_: string): Promise<void> {
  await page.getByLabel("Key").fill(with_);
  await page.getByRole("button", { name: "Sign in" }).click();
}

describe("a server with keys", { timeout: limitMs }, () => {
  let closed: DashboardServer;
  let failed: string;
  beforeAll(async () => {
    const apiKeys = [
      { key, name: "ops", role: "operator" },
      { key: viewerKey, name: "look", role: "viewer" },
      { key: tenantKey, name: "acme", role: "viewer", tenant: "acme" },
    ] as const;
    closed = await startDashboard({ server: { apiKeys } });
    failed = await closed.put("broken", { secretless: "visible" }, "failed");
  }, limitMs);
  afterAll(async () => {
    closed?.open();
    await closed?.[Symbol.asyncDispose]();
  });

  test("leads a stranger to the sign-in and back to the page", async () => {
    const tab = await openTab(browser, `${closed.url}/tasks?status=failed`);
    const { page } = tab;
    await page.waitForURL("**/sign-in?next=*");
    await signIn(page, key);
    await page.waitForURL("**/tasks?status=failed");
    // What has ended is deleted by administrators.
    await page.getByRole("button", { name: "All that match" }).click();
    const all = page.getByRole("dialog", { name: "All that match" });
    await all.getByText("1 task matches.").waitFor();
    expect(await all.getByRole("radio").count()).toBe(1);
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "broken" }).click();
    await page.getByRole("button", { name: "Retry" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Retry" }).click();
    await expectShown(page.getByRole("status").getByText("The task waits to run again."));
    await leave(tab);
  });

  test("leads to the sign-in and back behind a proxy that takes a prefix off", async () => {
    const proxy = await startStripping("/ops", closed.url);
    const tab = await openTab(browser, `${proxy.url}/tasks?status=failed`);
    await tab.page.waitForURL("**/ops/sign-in?next=*");
    await signIn(tab.page, key);
    await tab.page.waitForURL("**/ops/tasks?status=failed");
    await expectShown(tab.page.getByRole("heading", { level: 1, name: "Tasks" }));
    await leave(tab);
    proxy.close();
  });

  test("shows a viewer everything but payloads, and no act", async () => {
    const tab = await openTab(browser, closed.url);
    const { page } = tab;
    await signIn(page, viewerKey);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.goto(`${closed.url}/tasks/${failed}`);
    await page.getByRole("heading", { name: "Payload" }).waitFor();
    expect(await page.getByText("visible").count()).toBe(0);
    for (const path of [`/tasks/${failed}`, "/tasks", "/tasks?name=broken", "/failures", "/pods"]) {
      await page.goto(closed.url + path);
      // Only what is shown can have acts.
      const shown = path === "/pods" ? page.getByText("leads") : page.getByText("broken");
      await shown.first().waitFor();
      await expectSoon(() => page.locator(".loading").count(), 0);
      const acts = [
        /^Retry/,
        /^Cancel/,
        /^Redrive/,
        /^Discard/,
        /^Resume/,
        /^Resolve/,
        /^Ignore/,
        /^Drain/,
      ];
      for (const name of [...acts, /^Reopen/, /^All that match/, /^Run a copy/])
        expect(await page.getByRole("button", { name }).count()).toBe(0);
      expect(await page.getByRole("checkbox").count()).toBe(0);
    }
    await leave(tab);
  });

  test("shows a caller of one tenant its part, and no page about all", async () => {
    await closed.flotilla.enqueue("unhandled", null as never, { tenant: "acme" });
    const tab = await openTab(browser, `${closed.url}/tasks`);
    const { page } = tab;
    const watched: (string | null)[] = [];
    page.on("request", (each) => {
      const { pathname, searchParams } = new URL(each.url());
      if (pathname === "/v1/watch") watched.push(searchParams.get("topics"));
    });
    await signIn(page, tenantKey);
    await page.getByRole("row", { name: /unhandled/ }).waitFor();
    expect(await page.getByRole("row", { name: /broken/ }).count()).toBe(0);
    // It is told of what is new there, and of nothing that concerns all.
    await expectSoon(async () => watched.at(-1), "acts,newest");
    await closed.flotilla.enqueue("new-one", null as never, { tenant: "acme" });
    await page.getByRole("row", { name: /new-one/ }).waitFor();
    expect(await page.getByRole("link", { name: "Pods" }).count()).toBe(0);
    await page.getByRole("link", { name: "Overview" }).click();
    await expectShown(page.getByText("Nothing has failed."));
    await leave(tab);
  });

  test("ends a sign-in with a banner, and leaves the page as it was", async () => {
    const tab = await openTab(browser, `${closed.url}/tasks/${failed}`);
    const { page } = tab;
    await signIn(page, key);
    await page.getByRole("heading", { name: "Payload" }).waitFor();
    await tab.context.clearCookies();
    await expectShown(page.getByRole("alert").getByText("The sign-in has ended."));
    await page.getByRole("heading", { name: "Payload" }).waitFor();
    await page.getByRole("link", { name: "Sign in again" }).click();
    await signIn(page, key);
    await page.waitForURL(`**/tasks/${failed}`);
    await leave(tab);
  });
});
