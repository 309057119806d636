import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { task } from "flotilla";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { openStore } from "../../../src/store/open.ts";
import { sql, table } from "../../../src/store/sql.ts";
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
let browser: Browser;
let server: DashboardServer;

const pay = task("pay", { input: z.object({ amount: z.number() }) }, ({ input }) => input.amount);

beforeAll(async () => {
  browser = await launch();
  server = await startDashboard({ use: [pay] });
}, limitMs);
afterAll(async () => {
  server?.open();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

const delayed = async (name: string, inputs: readonly unknown[], more: object = {}) => {
  const made = await server.flotilla.tasks.enqueueMany(name, inputs as never, {
    delayMs: 3_600_000,
    ...more,
  });
  return made.map(({ taskId }) => taskId);
};
const looks = [
  { colorScheme: "light", viewport: { width: 1_280, height: 800 } },
  { colorScheme: "dark", viewport: { width: 1_280, height: 800 } },
  { colorScheme: "light", viewport: { width: 390, height: 760 }, isMobile: true, hasTouch: true },
] as const;
/** What is wrong with the page in each theme and on a phone. */
const faultsInLooks = async (page: Page) => {
  const faults: string[] = [];
  for (const { colorScheme, viewport } of looks) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(viewport);
    faults.push(...(await faultsOf(page)));
    if (await isTooWide(page)) faults.push(`too wide at ${viewport.width}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(looks[0].viewport);
  return faults;
};

/** Without waiting for it to be there, or to stand still in a page that grows. */
const pressIfThere = (button: Locator): Promise<void> =>
  button.evaluateAll((all) => (all as HTMLElement[]).forEach((each) => each.click()));

describe("the list of tasks", { timeout: limitMs }, () => {
  test("is filtered by all that there is, and keeps it in the address", async () => {
    const [seven] = await delayed("order", [{ order: { id: 7 } }, { order: { id: 8 } }]);
    const keyed = await server.flotilla.enqueue("order", { order: { id: 9 } } as never, {
      key: "order-9",
      delayMs: 3_600_000,
    });
    const tab = await openTab(browser, `${server.url}/tasks`, { bypassCSP: true });
    const { page } = tab;
    const rows = page.getByRole("row", { name: /order/ });
    const more = page.getByLabel("More filters");
    await more.fill("key:order-9");
    await more.press("Enter");
    await page.waitForURL("**/tasks?key=order-9");
    await expectSoon(() => rows.count(), 1);
    await expectShown(page.locator(`[title="${keyed.taskId}"]`).first());
    await page.getByLabel("Name", { exact: true }).fill("order");
    await page.getByLabel("Name", { exact: true }).press("Enter");
    await page.getByRole("button", { name: "Remove key order-9" }).click();
    await page.waitForURL("**/tasks?name=order");
    await page.getByLabel("Created").selectOption("last hour");
    await more.fill("payload.order.id:7");
    await more.press("Enter");
    await page.waitForURL(/payload\.order\.id=7/);
    await expectSoon(() => rows.count(), 1);
    await expectShown(page.locator(`[title="${seven}"]`).first());
    await page.reload();
    await expectShown(page.getByRole("button", { name: "Remove payload.order.id 7" }));
    await expectSoon(() => rows.count(), 1);
    await page.goBack();
    await expectSoon(() => rows.count(), 3);
    await more.fill("nme:mail");
    await more.press("Enter");
    await expectShown(page.getByRole("alert").getByText("nme: is no filter"));
    expect(await faultsInLooks(page)).toEqual([]);
    const offers = await page.locator("datalist option[value='pod:']").count();
    expect(offers).toBe(0);
    await more.fill("");
    await expectSoon(() => page.locator("datalist option[value='pod:']").count(), 1);
    await more.fill("pod:");
    await expectSoon(() => page.locator("datalist option[value^='pod:']").count(), 1);
    await leave(tab);
  });

  test("says a sentence of a filter that can't be, and has a way on", async () => {
    const deep = Array.from({ length: 50 }, () => "a").join(".");
    const tab = await openTab(browser, `${server.url}/tasks`);
    const { page } = tab;
    const asked: string[] = [];
    page.on("request", (each) => asked.push(each.url()));
    for (const [query, sentence] of [
      [`name=${"x".repeat(10_000)}`, "Name must be 1 to 200 characters"],
      ["colour=red", "Tasks have no filter colour"],
      ["cursor=made-up", "Tasks have no filter cursor"],
      ["name=a&sinceMs=1&payload.__proto__=7", "must be a path"],
      ["name=a&sinceMs=1&payload.a%22b=7", "must be a path"],
      ["name=a&sinceMs=1&payload.a%25=7", "must be a path"],
      [`name=a&sinceMs=1&payload.${deep}=7`, "must be a path of 1 to 5 names"],
      ["payload.id=7", "Payload needs `name` and `sinceMs`"],
      ["sinceMs=yesterday", "sinceMs must be a whole number"],
      ["version=last", "version must be a whole number"],
      ["status=odd", "There is no status odd"],
    ] as const) {
      await page.goto(`${server.url}/tasks?${query}`);
      await page.getByRole("alert").filter({ hasText: sentence }).waitFor();
      expect(await page.getByRole("row").count()).toBe(0);
    }
    await page.getByRole("button", { name: "Clear" }).click();
    await page.waitForURL("**/tasks");
    await expectShown(page.getByRole("row").first());
    await page.goto(`${server.url}/tasks?colour=red&status=pending`);
    expect(await page.getByRole("button", { name: "All that match" }).count()).toBe(0);
    await page.getByRole("button", { name: "Leave it out" }).click();
    await page.waitForURL("**/tasks?status=pending");
    await expectShown(page.getByRole("row").first());
    // What isn't understood is asked of no server.
    expect(asked.filter((url) => /\/v1\/tasks\?.*(colour|cursor=made|odd)/.test(url))).toEqual([]);
    await leave(tab);
  });

  test("is acted on as a whole, with a count first, and stopped half-way", async () => {
    for (let at = 0; at < 6; at++)
      await delayed(
        "filler",
        Array.from({ length: 10_000 }, (_, nth) => nth),
      );
    await delayed("few", [1, 2, 3], { tenant: "acme" });
    const tab = await openTab(browser, `${server.url}/tasks?name=few`, { bypassCSP: true });
    const { page } = tab;
    const dialog = page.getByRole("dialog", { name: "All that match" });
    await page.getByRole("button", { name: "All that match" }).focus();
    await page.keyboard.press("Enter");
    await dialog.getByText("3 tasks match.").waitFor();
    expect(await faultsInLooks(page)).toEqual([]);
    await dialog.getByLabel("Retry").check();
    await dialog.getByText("No task matches that this could be done to.").waitFor();
    expect(await dialog.getByRole("button", { name: "Retry 0" }).isDisabled()).toBe(true);
    await dialog.getByLabel("Cancel").check();
    await dialog.getByLabel("Reason, for the audit").fill("a wrong import");
    await dialog.getByRole("button", { name: "Cancel 3" }).click();
    await dialog.getByText("3 tasks done").waitFor();
    await dialog.getByRole("button", { name: "Done" }).click();
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("H1");
    await expectSoon(() => page.getByRole("row", { name: /cancelled/ }).count(), 3);
    await page
      .getByRole("checkbox", { name: /^Tick few/ })
      .first()
      .check();
    await page.getByRole("button", { name: "All that match" }).click();
    await dialog.getByLabel("Retry").check();
    await dialog.getByLabel("Forget their stored steps").check();
    await dialog.getByRole("button", { name: "Retry 3" }).click();
    await dialog.getByText("3 tasks done").waitFor();
    await dialog.getByRole("button", { name: "Done" }).click();
    expect((await server.flotilla.bulk.list({ limit: 1 })).bulks[0]).toMatchObject({
      action: "retry",
      fromStart: true,
      reason: null,
    });
    // What is ticked is ticked among what is shown.
    await expectShown(page.getByRole("region", { name: "Ticked tasks" }));
    await page.getByLabel("Status", { exact: true }).selectOption("pending");
    await page.waitForURL("**status=pending**");
    await page.getByLabel("Status", { exact: true }).selectOption("");
    await expectSoon(() => page.getByRole("checkbox", { name: /^Tick few/ }).count(), 3);
    expect(await page.getByRole("region", { name: "Ticked tasks" }).count()).toBe(0);

    await page.goto(`${server.url}/tasks?name=filler`);
    await page.getByRole("button", { name: "All that match" }).click();
    await dialog.getByText("More than 10,000 tasks match").waitFor();
    await dialog.getByRole("button", { name: "Cancel 10,000+" }).click();
    await dialog.getByText(/[1-9][\d,]* of 10,000\+ done/).waitFor();
    await dialog.getByRole("button", { name: "Stop" }).click();
    await dialog.getByText(/of 10,000\+ done, stopped/).waitFor();
    await dialog.getByRole("button", { name: "Done" }).click();
    // What another page has begun is seen here as well.
    await expectShown(page.getByRole("region", { name: "Acts on many" }));
    const { bulks } = await server.flotilla.bulk.list({ limit: 1 });
    expect(bulks[0]).toMatchObject({ state: "stopped", action: "cancel" });
    expect(bulks[0]!.done).toBeGreaterThan(0);
    expect(bulks[0]!.done).toBeLessThan(60_000);
    const { entries } = await server.flotilla.audit.list({ action: "bulk.start" });
    expect(entries.at(-1)).toMatchObject({ reason: "a wrong import", count: 3 });

    await page.goto(`${server.url}/tasks?name=absent`);
    await page.getByText("No task matches the filter so far.").waitFor();
    await expectShown(page.getByText("Looked back to"));
    await expectSoon(async () => {
      await pressIfThere(page.getByRole("button", { name: "Look further back" }));
      return page.getByText("No task matches the filter.").count();
    }, 1);
    await leave(tab);
  });
});

describe("one task", { timeout: limitMs }, () => {
  test("says why it waits, as it changes, with evidence and what to do", async () => {
    const { taskId } = await server.flotilla.enqueue("nowhere", null as never);
    const tab = await openTab(browser, `${server.url}/tasks/${taskId}`, { bypassCSP: true });
    const { page } = tab;
    const why = page.getByRole("region", { name: "Why it waits" });
    await why
      .getByText(/no live pod has a handler|No worker|no pod/i)
      .first()
      .waitFor();
    await why.getByText("Evidence").first().click();
    await expectShown(why.getByText("live pods"));
    expect(await faultsInLooks(page)).toEqual([]);
    await server.flotilla.tasks.pause("nowhere", { reason: "a deploy" });
    await why
      .getByText(/paused/)
      .first()
      .waitFor();
    // In the order of the verdict: what has to be done first is first.
    const { reasons } = await server.flotilla.tasks.why(taskId);
    expect(reasons.length).toBeGreaterThan(1);
    const shown = await why.locator(".reason-sentence").allTextContents();
    expect(shown.map((text) => text.toLowerCase())).toEqual(
      reasons.map(({ sentence }) => expect.stringContaining(sentence.toLowerCase())),
    );
    await server.flotilla.tasks.resume("nowhere");
    await expectSoon(() => why.getByText(/is paused|are paused/).count(), 0);
    await server.flotilla.tasks.cancel(taskId);
    await expectSoon(() => why.count(), 0);
    await leave(tab);
  });

  test("runs as a copy with another payload, which its schema checks", async () => {
    const original = await server.put("pay", { amount: 7 }, "completed");
    const tab = await openTab(browser, `${server.url}/tasks/${original}`, { bypassCSP: true });
    const { page } = tab;
    await page.getByRole("button", { name: "Run a copy" }).focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Run a copy" });
    const field = dialog.getByLabel("Payload, as JSON");
    expect(JSON.parse(await field.inputValue())).toEqual({ amount: 7 });
    const refused = async (payload: string, sentence: string | RegExp) => {
      await field.fill(payload);
      await dialog.getByRole("button", { name: "Run the copy" }).click();
      await dialog.getByRole("alert").getByText(sentence).waitFor();
      expect(await field.getAttribute("aria-invalid")).toBe("true");
    };
    await refused("{", "This isn't JSON");
    await refused('{"amount": 9007199254740993}', "9007199254740993 has more digits");
    await refused('{"amount": "much"}', /amount/);
    expect(await faultsInLooks(page)).toEqual([]);
    await field.fill('{"amount": 8}');
    await dialog.getByRole("button", { name: "Run the copy" }).dblclick();
    await page.waitForURL((url) => !url.pathname.endsWith(original));
    await page.getByText("A copy of").waitFor();
    await expectShown(page.getByText("completed").first());
    const { tasks } = await server.flotilla.tasks.list({ name: "pay" });
    expect(tasks.map(({ payload }) => payload)).toEqual([{ amount: 8 }, { amount: 7 }]);
    const copy = new URL(page.url()).pathname;
    await page.getByRole("link", { name: original }).click();
    await page.waitForURL(`**/tasks/${original}`);
    await page.getByText("Copied to").getByRole("link", { name: "pay" }).click();
    await page.waitForURL(`**${copy}`);
    await leave(tab);
  });

  test("shows all of its events, page by page, however many there are", async () => {
    const [taskId] = await delayed("nowhere", [1]);
    const events = 2_300;
    const database = await openStore(`sqlite:${server.path}`);
    const store = (from: number, upTo: number) =>
      database.write([
        sql`insert into ${table("task_event")} (task_id, seq, type, attempt)
          with recursive numbers(n) as (
            select ${from} union all select n + 1 from numbers where n < ${upTo})
          select ${taskId!}, n, 'snoozed', n from numbers`,
      ]);
    await store(10, events);
    const tab = await openTab(browser, `${server.url}/tasks/${taskId}`);
    const { page } = tab;
    await page.getByRole("heading", { name: "First 1,000 events" }).click();
    const shown = page.locator(".events > li");
    const more = page.getByRole("button", { name: /more event|^Show more$/ });
    const last = (attempt: number) => shown.getByText(`attempt ${attempt}`, { exact: true });
    await until("the last event is shown", async () => {
      if ((await last(events).count()) > 0) return true;
      // While a page of them is read there is none, and that may begin at any moment.
      await pressIfThere(more);
      return false;
    });
    // Another one comes while the page is open, of a task that goes on.
    await store(events + 1, events + 1);
    await page.getByRole("button", { name: "Look for later ones" }).click();
    await expectShown(last(events + 1));
    await database.close();
    await leave(tab);
  });

  test("shows what it comes after, and what that comes after", async () => {
    const first = await server.flotilla.enqueue("nowhere", 1 as never);
    const second = await server.flotilla.enqueue("nowhere", 2 as never, { after: [first] });
    const third = await server.flotilla.enqueue("nowhere", 3 as never, { after: [second] });
    const tab = await openTab(browser, `${server.url}/tasks/${third.taskId}`, { bypassCSP: true });
    const { page } = tab;
    await page.getByText("After 1 task:").waitFor();
    await page.getByRole("button", { name: "nowhere comes after 1 task" }).click();
    await expectShown(page.locator(`.after-list .after-list a[title="${first.taskId}"]`));
    expect(await faultsInLooks(page)).toEqual([]);
    await page.locator(`.after-list a[title="${second.taskId}"]`).click();
    await page.waitForURL(`**/tasks/${second.taskId}`);
    await page.getByText("Before 1 task:").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.locator(`.after-list a[title="${third.taskId}"]`).click();
    await page.waitForURL(`**/tasks/${third.taskId}`);
    await leave(tab);
  });
});

describe("failures", { timeout: limitMs }, () => {
  test("are resolved, ignored and reopened, and a redrive halts with the error that came back", async () => {
    await server.put("broken", { message: "no route to host" }, "failed");
    await server.put("broken", { message: "no route to host" }, "failed");
    await server.put("broken", { message: "out of paper" }, "failed");
    const tab = await openTab(browser, `${server.url}/failures`, { bypassCSP: true });
    const { page } = tab;
    const group = (text: string) => page.getByRole("listitem").filter({ hasText: text });
    const act = async (text: string, name: RegExp, confirm: string, said: string) => {
      await group(text).getByRole("button", { name }).click();
      await page.getByRole("dialog").getByRole("button", { name: confirm, exact: true }).click();
      await page.getByRole("status").getByText(said).waitFor();
    };
    await act("out of paper", /^Resolve/, "Resolve", "The error is resolved.");
    await expectShown(group("out of paper").getByText("resolved", { exact: true }));
    await page.getByLabel("State").selectOption("resolved");
    await page.waitForURL("**/failures?state=resolved");
    await expectSoon(() => group("no route to host").count(), 0);
    await server.put("broken", { message: "out of paper" }, "failed");
    await page.getByLabel("State").selectOption("");
    await expectShown(group("out of paper").getByText("came back"));

    await group("out of paper")
      .getByRole("button", { name: /^Ignore/ })
      .click();
    await page.getByLabel("Ignore it").selectOption("for an hour");
    expect(await faultsInLooks(page)).toEqual([]);
    await page.getByRole("dialog").getByRole("button", { name: "Ignore", exact: true }).click();
    await page.getByRole("status").getByText("The error is ignored.").waitFor();
    await expectSoon(() => group("out of paper").count(), 0);
    await page.getByRole("button", { name: "1 error ignored, with 2 tasks" }).click();
    await page.waitForURL("**/failures?state=ignored");
    await expectShown(group("out of paper").getByText(/until in 5\d min/));
    await act("out of paper", /^Reopen/, "Reopen", "The error is open again.");

    await page.goto(`${server.url}/failures`);
    await act("no route to host", /^Redrive/, "Redrive", "The redrive has begun.");
    await expectShown(page.getByText("halted", { exact: true }));
    const halted = page.getByRole("listitem").filter({ hasText: "halted" });
    await expectShown(halted.getByRole("link", { name: "its task" }));
    expect(await halted.locator(".canary-task.of-wrong").count()).toBe(1);
    expect(await faultsInLooks(page)).toEqual([]);
    await halted.getByRole("link", { name: "its task" }).click();
    await page.getByRole("link", { name: /^the redrive/ }).click();
    await page.waitForURL("**/failures?redrive=*");
    const chosen = page.getByRole("region", { name: /^The redrive/ });
    await expectShown(chosen.getByText("halted", { exact: true }));
    await chosen.getByRole("link", { name: "Leave it out" }).click();
    await expectSoon(() => chosen.count(), 0);
    await leave(tab);
  });
});
