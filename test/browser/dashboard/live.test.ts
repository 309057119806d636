import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { FlotillaError } from "../../../src/base/errors.ts";
import { serveBeside } from "../../../src/server/contract/test-server.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { startProxy } from "../proxy.ts";
import { type DashboardServer, expectShown, openTab, startDashboard } from "./dashboard-server.ts";

const limitMs = 180_000;
type Topic = { readonly names?: Readonly<Record<string, { readonly running: number }>> };
let browser: Browser;
let server: DashboardServer;

beforeAll(async () => {
  browser = await launch();
  server = await startDashboard();
}, limitMs);
afterAll(async () => {
  server?.open();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

/** Waits until the page has its stream of topics. */
const watched = (page: Page, topic: string) =>
  page.waitForResponse(
    (answer) => answer.url().includes("/v1/watch?") && answer.url().includes(topic),
  );

/** Waits until a server has sent something of a topic to all that watch it. */
async function untilSent(url: string, topic: string, has: (data: Topic) => boolean): Promise<void> {
  await until(`${topic} is sent`, async () => {
    const enough = new AbortController();
    const { body } = await fetch(`${url}/v1/watch?topics=${topic}`, { signal: enough.signal });
    let sent = "";
    for await (const bytes of body!) {
      sent += Buffer.from(bytes).toString();
      if (sent.includes("\n\n") && sent.includes("event: snapshot")) break;
    }
    enough.abort();
    const line = sent.split("\n").find((each) => each.startsWith("data: "));
    return has((JSON.parse(line!.slice(6)) as { data: Topic }).data);
  });
}

/** Looks like a tab that another one covers, or like one in front again. */
const show = (page: Page, state: "hidden" | "visible") =>
  page.evaluate((visibility) => {
    Object.defineProperty(document, "visibilityState", { value: visibility, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);

const tile = (page: Page, name: string) =>
  page.getByRole("region", { name: "Counts" }).getByRole("link").filter({ hasText: name });
const running = (page: Page) => page.locator(".status", { hasText: "running" });

describe("a page in sight", { timeout: limitMs }, () => {
  test("shows counts as the stream brings them, and reads no route for them", async () => {
    const tab = await openTab(browser, "about:blank");
    const { page } = tab;
    const open = watched(page, "overview");
    await page.goto(server.url);
    await open;
    await tile(page, "0Running").waitFor();
    await page.route(/\/v1\/(?!watch)|\/$/, (route) => route.abort());
    const taskId = await server.put("gated", null, "claimed");
    await tile(page, "1Running").waitFor();
    await server.flotilla.tasks.cancel(taskId);
    await expectShown(tile(page, "0Running"));
    await leave(tab);
  });

  test("shows the end of a task within a second of its own clock, in its page and in a list", async () => {
    const taskId = await server.put("gated", null, "claimed");
    const tabs = await Promise.all(
      [`/tasks/${taskId}`, "/tasks?name=gated&status=claimed"].map(async (path) => {
        const tab = await openTab(browser, "about:blank");
        await tab.page.clock.install();
        const open = watched(tab.page, path.includes("?") ? "overview" : "task");
        await tab.page.goto(server.url + path);
        await open;
        await running(tab.page).first().waitFor();
        return tab;
      }),
    );
    // From here on no time passes for the pages that this test doesn't let pass.
    for (const { page } of tabs)
      await page.clock.pauseAt(await page.evaluate(() => Date.now() + 20_000));
    await server.flotilla.tasks.cancel(taskId);
    // How often a server looks is its own affair: it looks less often where a look takes long.
    const isOver = (data: Topic) => JSON.stringify(data).includes('"cancelled"');
    await untilSent(server.url, `task:${taskId}`, isOver);
    await untilSent(server.url, "overview", ({ names }) => !names!["gated"]?.running);
    for (const { page } of tabs) {
      let isRead = false;
      page.on("request", (each) => (isRead ||= each.url().includes("/v1/tasks")));
      let [passedMs, looks] = [0, 0];
      await expectSoon(async () => {
        // Polls come later than that. What was sent arrives in real time, of which there is plenty.
        if (passedMs < 1_000 && ++looks % 10 === 0) {
          await page.clock.runFor(50);
          passedMs += 50;
        }
        return isRead;
      }, true);
      await page.clock.resume();
      await expectSoon(() => running(page).count(), 0);
    }
    for (const tab of tabs) await leave(tab);
  });

  test("asks for nothing while it is hidden, and is as new as the others when it is back", async () => {
    const tab = await openTab(browser, "about:blank");
    const { page } = tab;
    const open = watched(page, "overview");
    await page.goto(`${server.url}/tasks?name=unseen`);
    await open;
    await page.getByText("No task matches the filter.").waitFor();
    const ended = page.waitForEvent("requestfailed", (each) => each.url().includes("/v1/watch?"));
    await show(page, "hidden");
    await ended;
    await server.flotilla.enqueue("unseen", null as never);
    const again = watched(page, "overview");
    await show(page, "visible");
    await again;
    await expectShown(page.getByRole("row", { name: /unseen/ }));
    await leave(tab);
  });

  test("goes on with the next server when its own stops in the middle of the stream", async () => {
    await using next = await serveBeside(server, {});
    let port = server.port;
    const proxy = await startProxy(() => port);
    const url = `http://127.0.0.1:${proxy.port}`;
    const tabs = await Promise.all(
      [`${url}/tasks?name=moved`, url].map(async (address) => {
        const tab = await openTab(browser, "about:blank");
        const open = watched(tab.page, "overview");
        await tab.page.goto(address);
        await open;
        return tab;
      }),
    );
    await tabs[0]!.page.getByText("No task matches the filter.").waitFor();
    await tile(tabs[1]!.page, "Pods up").waitFor();
    const again = tabs.map(({ page }) => watched(page, "overview"));
    ({ port } = next);
    proxy.cut();
    await Promise.all(again);
    await server.flotilla.enqueue("moved", null as never);
    await tabs[0]!.page.getByRole("row", { name: /moved/ }).waitFor();
    await expectShown(tabs[1]!.page.getByRole("link", { name: /handler for moved/ }));
    for (const tab of tabs) {
      await expectSoon(() => tab.page.getByRole("alert").count(), 0);
      await leave(tab);
    }
    await proxy.close();
  });

  test("says that the store is away as soon as the stream does, and goes on when it is back", async () => {
    const tab = await openTab(browser, `${server.url}/pods`);
    const { page } = tab;
    await page.getByText("leads").waitFor();
    const away = new FlotillaError("store_unavailable", "connect ECONNREFUSED 10.0.0.7:5432");
    const pods = vi.spyOn(server.flotilla.pages, "fleet").mockRejectedValue(away);
    onTestFinished(() => pods.mockRestore());
    await page.getByRole("alert").getByText("What is shown is as it was").waitFor();
    await page.getByText("leads").waitFor();
    expect(await page.getByText("10.0.0.7").count()).toBe(0);
    pods.mockRestore();
    await expectSoon(() => page.getByRole("alert").count(), 0);
    await leave(tab);
  });

  test("watches for all its parts in one stream, and changes it when they change", async () => {
    const tab = await openTab(browser, "about:blank");
    const { page } = tab;
    const opened: string[][] = [];
    page.on("request", (each) => {
      const { pathname, searchParams } = new URL(each.url());
      if (pathname === "/v1/watch") opened.push(searchParams.get("topics")!.split(","));
    });
    await page.goto(server.url);
    await until("the stream of the overview", () => opened.length === 1);
    expect(opened[0]).toEqual([
      "acts",
      "approvals",
      "failures",
      "overview",
      "pods",
      "schedules",
      "throttles",
    ]);
    await page.getByRole("navigation").getByRole("link", { name: "Pods" }).click();
    await page.getByText("leads").waitFor();
    await until("the stream of the pods", () => opened.length === 2);
    expect(opened[1]).toEqual(["pods"]);
    await leave(tab);
  });
});
