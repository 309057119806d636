import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import {
  type DashboardServer,
  expectShown,
  faultsOf,
  isTooWide,
  openTab,
  startDashboard,
  startStripping,
} from "./dashboard-server.ts";

const limitMs = 180_000;
let browser: Browser;
let server: DashboardServer;
let done: string;
let failed: string;
let waiting: string;

beforeAll(async () => {
  browser = await launch();
  server = await startDashboard();
  done = await server.put("mail", { to: "ada" }, "completed");
  failed = await server.put("broken", {}, "failed");
  await server.put("flaky", null, "completed");
  await server.put("gated", null, "claimed");
  await server.flotilla.runs.start("order", null as never);
  const { taskId } = await server.flotilla.enqueue("nowhere", { why: "no handler" } as never);
  waiting = taskId;
}, limitMs);
afterAll(async () => {
  server?.open();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

const pages = () => [
  { path: "/", heading: "Overview", text: "No pod that takes work has a handler for nowhere" },
  { path: "/tasks", heading: "Tasks", text: "no live pod has a handler for it" },
  { path: `/tasks/${done}`, heading: "mail", text: "greet" },
  { path: `/tasks/${failed}`, heading: "broken", text: "the recipient is unknown" },
  { path: "/failures", heading: "Failures", text: "the recipient is unknown" },
  { path: "/pods", heading: "Pods", text: "leads" },
  { path: "/nothing/like/this", heading: "There is no such page", text: "To the overview" },
];
const looks = {
  light: { colorScheme: "light", viewport: { width: 1_280, height: 800 } },
  dark: { colorScheme: "dark", viewport: { width: 1_280, height: 800 } },
  phone: {
    colorScheme: "light",
    viewport: { width: 390, height: 760 },
    isMobile: true,
    hasTouch: true,
  },
} as const;

describe("every page", { timeout: limitMs }, () => {
  test.each(Object.entries(looks))("is accessible and fits: %s", async (_, look) => {
    // The checker is a script, and the page allows none but its own.
    const tab = await openTab(browser, server.url, { ...look, bypassCSP: true });
    for (const { path, heading, text } of pages()) {
      await tab.page.goto(server.url + path);
      await tab.page.getByRole("heading", { level: 1, name: heading }).waitFor();
      await tab.page.getByText(text).first().waitFor();
      expect([path, await faultsOf(tab.page)]).toEqual([path, []]);
      expect([path, await isTooWide(tab.page)]).toEqual([path, false]);
    }
    const colour = await tab.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    expect(colour).toBe(look.colorScheme === "light" ? "rgb(255, 255, 255)" : "rgb(13, 20, 27)");
    await leave(tab);
  });

  test("opens by its address, stays on reload, and breaks no rule of its policy", async () => {
    const tab = await openTab(browser, server.url);
    for (const { path, heading, text } of pages()) {
      await tab.page.goto(server.url + path);
      await tab.page.getByText(text).first().waitFor();
      await tab.page.reload();
      await tab.page.getByRole("heading", { level: 1, name: heading }).waitFor();
      await tab.page.getByText(text).first().waitFor();
    }
    expect(tab.outside).toEqual([]);
    await leave(tab);
  });

  test.each(["/ops", "/a/b"])(
    "works below %s, behind a proxy that takes it off",
    async (prefix) => {
      const proxy = await startStripping(prefix, server.url);
      const tab = await openTab(browser, `${proxy.url}/`);
      for (const { path, text } of pages().slice(0, 6)) {
        await tab.page.goto(proxy.url + path);
        await tab.page.getByText(text).first().waitFor();
      }
      await tab.page.getByRole("navigation").getByRole("link", { name: "Tasks" }).click();
      await tab.page.getByRole("link", { name: "mail" }).first().click();
      await tab.page.getByRole("heading", { level: 1, name: "mail" }).waitFor();
      expect(new URL(tab.page.url()).pathname).toBe(`${prefix}/tasks/${done}`);
      await tab.page.reload();
      await expectShown(tab.page.getByText("greet").first());
      await leave(tab);
      proxy.close();
    },
  );
});

describe("the shell", { timeout: limitMs }, () => {
  test("has the page in sight among the pages, also where these are one line", async () => {
    const tab = await openTab(browser, `${server.url}/audit`, looks.phone);
    const { page } = tab;
    await page.getByRole("heading", { level: 1, name: "Audit" }).waitFor();
    const right = async (name: string) => {
      const box = await page
        .getByRole("navigation", { name: "Pages", exact: true })
        .getByRole("link", { name, exact: true })
        .boundingBox();
      return box!.x + box!.width;
    };
    await expectSoon(
      () => right("Audit"),
      (edge) => expect(edge).toBeLessThanOrEqual(looks.phone.viewport.width),
    );
    expect(await right("Overview")).toBeLessThan(0);
    await leave(tab);
  });

  test("keeps the filter in the address, through back, forward and reload", async () => {
    const tab = await openTab(browser, `${server.url}/tasks`);
    const { page } = tab;
    await page.getByLabel("Status", { exact: true }).selectOption("failed");
    await page.waitForURL("**/tasks?status=failed");
    await page.getByLabel("Name", { exact: true }).fill("broken");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/tasks?name=broken&status=failed");
    await page.getByRole("row", { name: /broken/ }).waitFor();
    await page.reload();
    await page.getByRole("row", { name: /broken/ }).waitFor();
    expect(await page.getByLabel("Status", { exact: true }).inputValue()).toBe("failed");
    await page.getByRole("link", { name: "broken" }).click();
    await page.getByRole("heading", { level: 1, name: "broken" }).waitFor();
    await page.goBack();
    await page.waitForURL("**/tasks?name=broken&status=failed");
    await page.getByRole("button", { name: "Clear" }).click();
    await page.waitForURL("**/tasks");
    await page.getByRole("row", { name: /mail/ }).waitFor();
    await page.goBack();
    await page.waitForURL("**/tasks?name=broken&status=failed");
    expect(await page.getByLabel("Status", { exact: true }).inputValue()).toBe("failed");
    await leave(tab);
  });

  test("is used by keys alone, and the focus is never lost", async () => {
    const tab = await openTab(browser, server.url);
    const { page } = tab;
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    // Together they lead somewhere, unless the second comes late.
    await until("the keys lead to the tasks", async () => {
      await page.keyboard.press("g");
      await page.keyboard.press("t");
      return new URL(page.url()).pathname === "/tasks";
    });
    await page.getByRole("row", { name: /mail/ }).waitFor();
    await expectSoon(focused, "Tasks");
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    const second = await focused();
    await page.keyboard.press("x");
    await page.getByText("1 task ticked").waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: second }).waitFor();
    await expectSoon(focused, second);
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    await page.keyboard.press("Escape");
    await expectSoon(() => page.getByRole("dialog").count(), 0);
    await page.keyboard.press("Control+k");
    await page.keyboard.type("fail");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Failures" }).waitFor();
    await expectSoon(focused, "Failures");
    await page.keyboard.press("Control+k");
    await page.keyboard.type(waiting);
    await page.keyboard.press("Enter");
    await expectShown(page.getByRole("heading", { level: 1, name: "nowhere" }));
    await leave(tab);
  });

  test("leads from the verdict to what it is about", async () => {
    const tab = await openTab(browser, server.url);
    // By name: running, ready, delayed, after others, at a limit, alone, failed, oldest wait.
    for (const name of [
      /^gated 1 Running: gated 0 0 0 0 0 0 –$/,
      /^nowhere 0 1 Ready: nowhere 0 0 0 0 0 \d.*s$/,
    ])
      await tab.page.getByRole("row", { name }).waitFor();
    await tab.page
      .getByRole("link", { name: /No pod that takes work has a handler for nowhere/ })
      .click();
    await tab.page.waitForURL("**/tasks?name=nowhere&state=ready");
    await expectShown(tab.page.getByText("no live pod has a handler for it"));
    await leave(tab);
  });

  test("says of an id that there is no such task, with a way on", async () => {
    const tab = await openTab(browser, `${server.url}/tasks/0198f3aa-0000-7000-8000-000000000000`);
    await tab.page.getByRole("alert").getByText("There is no task 0198f3aa").waitFor();
    await tab.page.getByRole("button", { name: "Try again" }).click();
    await expectShown(tab.page.getByRole("alert"));
    await leave(tab);
  });

  test("shows what is new without a reload", async () => {
    const tab = await openTab(browser, `${server.url}/tasks?name=later`);
    await tab.page.getByText("No task matches the filter.").waitFor();
    await server.flotilla.enqueue("later", null as never);
    await expectShown(tab.page.getByRole("row", { name: /later/ }));
    await leave(tab);
  });
});

describe("a long list", { timeout: limitMs }, () => {
  test("draws the rows in sight, and loads the next ones when they are scrolled to", async () => {
    const inputs = Array.from({ length: 350 }, (_, at) => at);
    await server.flotilla.enqueueMany("many", inputs as never);
    const oldest = (await server.flotilla.tasks.list({ name: "many", limit: 1_000 })).tasks.at(-1)!;
    const tab = await openTab(browser, `${server.url}/tasks?name=many`);
    const { page } = tab;
    const rows = page.getByRole("row", { name: /many/ });
    await rows.first().waitFor();
    expect(await rows.count()).toBeLessThan(80);
    await page.getByText("live", { exact: true }).waitFor();
    const last = page.locator(`[title="${oldest.taskId}"]`);
    await expectSoon(async () => {
      await page.locator(".task-rows").evaluate((list) => list.scrollTo(0, list.scrollHeight));
      return last.count();
    }, 1);
    expect(await rows.count()).toBeLessThan(80);
    // What is loaded by hand isn't replaced under the eyes of a person.
    await expectShown(page.getByRole("button", { name: "Read again" }));
    await leave(tab);
  });
});

describe("a person who wants no motion", { timeout: limitMs }, () => {
  test("gets none", async () => {
    const tab = await openTab(browser, `${server.url}/tasks`, { reducedMotion: "reduce" });
    await tab.page.getByText("live", { exact: true }).waitFor();
    const moving = await tab.page.evaluate(
      () =>
        [...document.querySelectorAll("*")].filter((each) =>
          ["", "::before", "::after"].some((part) => {
            const { animationName, transitionDuration } = getComputedStyle(each, part);
            return animationName !== "none" || !/^0s(?:, 0s)*$/.test(transitionDuration);
          }),
        ).length,
    );
    expect(moving).toBe(0);
    await leave(tab);
  });
});

describe("an empty store", { timeout: limitMs }, () => {
  test("shows the command that fills each page", async () => {
    await using fresh = await startDashboard();
    const tab = await openTab(browser, fresh.url, { bypassCSP: true });
    const { page } = tab;
    await page.getByText("All is well: 1 pod up").waitFor();
    await page.getByText("flotilla enqueue").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.goto(`${fresh.url}/tasks`);
    await page.getByText("flotilla enqueue").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.goto(`${fresh.url}/failures`);
    await page.getByText("No task has failed.").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await leave(tab);
  });
});
