import { DatabaseSync } from "node:sqlite";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../../src/base/contract/movable-clock.ts";
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
} from "./dashboard-server.ts";

const limitMs = 180_000;
const adminKey = "a-key-of-16-chars-or-more";
const viewerKey = "another-key-of-16-chars";
const tenantKey = "a-third-key-of-16-chars";
const manyNames = 2_000;
const scheduleId = "nightly/mail";
const schedulePath = `/schedules/${encodeURIComponent(scheduleId)}`;
const scope = "key/gated/ada";
const ofTenant = "tenant/globex";

let browser: Browser;
let server: DashboardServer;
let holder: string;

beforeAll(async () => {
  browser = await launch();
  const apiKeys = [
    { key: adminKey, name: "ops", role: "admin" },
    { key: viewerKey, name: "look", role: "viewer" },
    { key: tenantKey, name: "acme", role: "admin", tenant: "acme" },
  ] as const;
  server = await startDashboard({ server: { apiKeys } });
}, limitMs);
afterAll(async () => {
  server?.open();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

/** A tab of a person that has signed in. */
async function openAs(key: string, path: string, options: BrowserContextOptions = {}) {
  const tab = await openTab(browser, server.url + path, options);
  await tab.page.getByLabel("Key").fill(key);
  await tab.page.getByRole("button", { name: "Sign in" }).click();
  await tab.page.getByRole("heading", { level: 1 }).waitFor();
  return tab;
}

/** A task of each of many names, as another program stores them. */
function storeNames(path: string): void {
  const database = new DatabaseSync(path, { timeout: 30_000 });
  database.exec(`
    insert into flotilla_task (name, payload)
    with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n < ${manyNames - 1})
    select printf('name-%04d', n), 'null' from numbers`);
  database.close();
}

const focused = (page: Page) => page.evaluate(() => document.activeElement?.tagName);
const pathOf = (page: Page) => {
  const { pathname, search } = new URL(page.url());
  return pathname + search;
};

describe("an empty store", { timeout: limitMs }, () => {
  test("shows the commands that fill the queues and the schedules", async () => {
    const tab = await openAs(adminKey, "/queues", { bypassCSP: true });
    const { page } = tab;
    await page.getByText("flotilla enqueue").waitFor();
    await page.getByText("flotilla limits set").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.goto(`${server.url}/schedules`);
    await page.getByText("flotilla schedules add").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await leave(tab);
  });
});

describe("a busy fleet", { timeout: limitMs }, () => {
  beforeAll(async () => {
    const { flotilla } = server;
    const held = async (concurrencyKey: string) => {
      const { taskId } = await flotilla.enqueue("gated", null as never, { concurrencyKey });
      await until("it runs", async () => (await flotilla.tasks.get(taskId))?.status === "claimed");
      await flotilla.enqueue("gated", null as never, { concurrencyKey });
      return taskId;
    };
    holder = await held("ada");
    await held(hostileTexts[0]!);
    await until("others wait", async () => {
      const limits = await flotilla.tasks.limits.list();
      return limits.filter(({ blocked }) => blocked === 1).length === 2;
    });
    storeNames(server.path);
    await flotilla.enqueue("unhandled", null as never, { tenant: "<b>acme</b>" });
    await flotilla.tasks.limits.set(ofTenant, 3);
    await flotilla.tasks.pause("quiet", { reason: hostileTexts[2]! });
    await flotilla.schedules.put(scheduleId, {
      name: "mail",
      input: { to: hostileTexts[0]!, turned: confusingTexts[0]! },
      pattern: "0 3 * * 1-5",
      zone: "Europe/Berlin",
    });
    await flotilla.schedules.put("poll", { name: "unhandled", everyMs: 3_600_000 });
  }, limitMs);

  test("shows its names in pages, and a name is paused and resumed by keys alone", async () => {
    const tab = await openAs(adminKey, "/queues");
    const { page } = tab;
    await page.getByText(/^1 to 50 of 2,00\d names$/).waitFor();
    expect(await page.getByRole("row").count()).toBeLessThan(150);
    await page.getByRole("link", { name: "Next page" }).click();
    await page.waitForURL("**/queues?page=2");
    await page.getByText(/^51 to 100 of/).waitFor();
    await page.getByRole("heading", { level: 1 }).focus();
    await page.keyboard.press("/");
    await page.keyboard.type("gate");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/queues?name=gate");
    const row = page.getByRole("row", { name: /gated/ }).first();
    await row.getByRole("link", { name: "2 Running: gated" }).waitFor();

    await page.getByRole("button", { name: "Pause gated" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Pause this name?" }).waitFor();
    await page.keyboard.type(hostileTexts[0]!);
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("gated is paused.").waitFor();
    await expectSoon(() => page.getByRole("dialog").count(), 0);
    expect(await focused(page)).toBe("H1");
    await expectShown(row.getByText(`by key/ops: ${hostileTexts[0]!}`));
    expect(await server.flotilla.tasks.paused()).toMatchObject([
      { name: "gated", by: "key/ops", reason: hostileTexts[0] },
      { name: "quiet", by: "program" },
    ]);

    await page.getByRole("button", { name: "Resume gated" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Resume this name?" }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("gated goes on.").waitFor();
    await expectShown(page.getByRole("button", { name: "Pause gated" }));

    await page.getByLabel("Only names").selectOption("paused");
    await page.waitForURL("**/queues?name=gate&only=paused");
    await page.getByText("No name matches the filter.").waitFor();
    await page.goBack();
    await page.waitForURL("**/queues?name=gate");
    await page.goto(`${server.url}/queues?only=paused&page=9&name=${"x".repeat(10_000)}&more=1`);
    await expectShown(page.getByRole("row", { name: /quiet/ }));
    await leave(tab);
  });

  test("says that everything is paused, by whom and why, until it is resumed", async () => {
    const tab = await openAs(adminKey, "/queues");
    const { page } = tab;
    await page.getByRole("button", { name: "Pause everything" }).click();
    const dialog = page.getByRole("dialog", { name: "Pause everything?" });
    await dialog.getByLabel("Reason, for other operators").fill("the database moves");
    await dialog.getByRole("button", { name: "Pause" }).click();
    const card = page.getByRole("region", { name: "Everything is paused" });
    await card.getByText("by key/ops: the database moves").waitFor();
    await card.getByRole("button", { name: "Resume everything" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await expectSoon(() => card.count(), 0);
    expect((await server.flotilla.tasks.paused()).map(({ name }) => name)).toEqual(["quiet"]);
    await leave(tab);
  });

  test("shows who holds the slots of a limit, leads there, and lets it be raised", async () => {
    const tab = await openAs(adminKey, "/queues");
    const { page } = tab;
    const limit = page.getByRole("row", { name: /gated\/ada/ });
    await limit.getByRole("link", { name: "gated/ada" }).click();
    await page.waitForURL(`**/queues?scope=${encodeURIComponent(scope)}`);
    const holders = page.getByRole("list", { name: "Tasks that hold the slots" });
    await holders.getByRole("link", { name: /gated/ }).waitFor();
    expect(await holders.getByRole("link").getAttribute("href")).toContain(holder);
    await limit.getByRole("button", { name: `Set the limit of ${scope}` }).click();
    const dialog = page.getByRole("dialog", { name: "Set this limit?" });
    await dialog.getByLabel(/^Slots/).fill("2");
    await dialog.getByRole("button", { name: "Set" }).click();
    await page.getByRole("status").getByText("The limit is 2.").waitFor();
    await expectSoon(() => holders.getByRole("link").count(), 2);
    await holders.locator(`[title="${holder}"]`).click();
    await page.getByRole("heading", { level: 1, name: "gated" }).waitFor();
    await page.goBack();
    await holders.getByRole("link").first().waitFor();
    await page.goto(`${server.url}/queues?scope=nonsense`);
    await expectShown(page.getByRole("alert").getByText("A limit's scope must be"));
    await leave(tab);
  });

  test("shows schedules in words, and one that is fired now with what came of it", async () => {
    const tab = await openAs(adminKey, "/schedules");
    const { page } = tab;
    await page.getByRole("row", { name: /poll no live pod has a handler for unhandled/ }).waitFor();
    await page.getByText("every hour", { exact: true }).waitFor();
    await page.getByText("Monday to Friday at 03:00, Europe/Berlin").waitFor();
    await page.getByRole("link", { name: scheduleId }).click();
    await page.waitForURL(`**${schedulePath}`);
    const times = page.getByRole("list", { name: "Next times" }).getByRole("listitem");
    await expectSoon(() => times.count(), 5);
    for (const text of await times.allTextContents()) expect(text).toContain("03:00:00");
    await page.getByText("U+202E").waitFor();

    await page.getByRole("button", { name: "Fire now" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Fire this schedule now?" }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page
      .getByRole("status")
      .getByText(/^The task .* is stored\./)
      .waitFor();
    const firing = page.getByRole("row", { name: /by hand/ });
    await firing.getByText("completed").waitFor();
    await firing.getByRole("link", { name: /mail/ }).click();
    await page.getByRole("heading", { level: 1, name: "mail" }).waitFor();
    await page.goBack();

    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
    await page.getByText("if it were resumed now").waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await page.reload();
    await page.getByRole("row", { name: /by hand/ }).waitFor();

    await page.getByRole("link", { name: "Audit", exact: true }).last().click();
    await page.waitForURL(`**/audit?subject=${encodeURIComponent(scheduleId)}`);
    const acts = page.getByRole("list", { name: "Acts, newest first" }).getByRole("listitem");
    await acts.filter({ hasText: "fired the schedule" }).waitFor();
    expect((await acts.allTextContents()).map((text) => text.split(" details")[0])).toMatchObject([
      expect.stringContaining("key/ops resumed the schedule"),
      expect.stringContaining("key/ops paused the schedule"),
      expect.stringContaining("key/ops fired the schedule"),
      expect.stringContaining("program stored the schedule"),
    ]);
    await leave(tab);
  });

  test("says of a schedule that it isn't there, or was deleted while a person looked", async () => {
    await server.flotilla.schedules.put("brief", { name: "mail", everyMs: 3_600_000 });
    const tab = await openAs(adminKey, "/schedules/none");
    const { page } = tab;
    await page.getByText("There is no schedule of this id.").waitFor();
    await page.goto(`${server.url}/schedules/brief`);
    await page.getByRole("button", { name: "Delete" }).waitFor();
    await server.flotilla.schedules.remove("brief");
    await page.getByText("This schedule was deleted.").waitFor();
    expect(await page.getByRole("button", { name: "Fire now" }).count()).toBe(0);
    await server.flotilla.schedules.put("brief", { name: "mail", everyMs: 3_600_000 });
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete it" }).click();
    await page.getByRole("status").getByText("The schedule is deleted.").waitFor();
    await page.getByText("This schedule was deleted.").waitFor();
    expect(await server.flotilla.schedules.get("brief")).toBeUndefined();
    await page.goto(`${server.url}/schedules/%3Cimg%20src%3Dx%3E`);
    await page.getByRole("alert").getByText("A schedule's id is 1 to 200 letters").waitFor();
    await page.goto(`${server.url}${schedulePath}?cursor=made-up`);
    await expectShown(page.getByRole("link", { name: "Newest" }));
    await leave(tab);
  });

  test("keeps who did what, with filters in the address and links to what it was about", async () => {
    const tab = await openAs(adminKey, "/audit");
    const { page } = tab;
    const acts = page.getByRole("list", { name: "Acts, newest first" }).getByRole("listitem");
    const act = (text: string) => acts.filter({ hasText: text }).first();
    await act("key/ops signed in").waitFor();
    await act(`program paused quiet`).getByText(hostileTexts[2]!).waitFor();

    await page.getByLabel("Action").selectOption("limits.set");
    await page.waitForURL("**/audit?action=limits.set");
    await act(`program set the limit of ${ofTenant}`).waitFor();
    await act(ofTenant).getByText("details").click();
    const valueOf = (name: string) =>
      act(ofTenant).getByRole("group", { name, exact: true }).textContent();
    await expectSoon(
      () => valueOf("after"),
      (text) => expect(text).toMatch(/limit\W*3\b/),
    );
    expect(await valueOf("before")).not.toMatch(/limit\W*3\b/);
    await act(ofTenant).getByRole("link", { name: ofTenant, exact: true }).click();
    await page.waitForURL(`**/queues?scope=${encodeURIComponent(ofTenant)}`);
    await page.getByText("No task holds a slot.").waitFor();
    await page.goBack();
    await page.waitForURL("**/audit?action=limits.set");

    await page.getByLabel("Actor").fill("key/none");
    await page.keyboard.press("Enter");
    await page.getByText("No act matches the filter.").waitFor();
    await page.getByRole("link", { name: "Show all acts" }).click();
    await page.waitForURL("**/audit");
    await page.getByLabel("from", { exact: true }).fill("2100-01-01T00:00");
    await page.keyboard.press("Enter");
    await page.getByText("No act matches the filter.").waitFor();
    expect(pathOf(page)).toMatch(/^\/audit\?since=2(100|099)/);
    await page.reload();
    await page.getByText("No act matches the filter.").waitFor();

    await page.goto(`${server.url}/audit?cursor=made-up`);
    await page.getByRole("alert").getByText("Cursor must be the `next`").waitFor();
    await page.getByRole("link", { name: "Newest" }).click();
    await page.waitForURL("**/audit");
    await acts.first().waitFor();
    await page.goto(`${server.url}/audit?subject=${"x".repeat(10_000)}&since=soon&more=%00`);
    await acts.first().waitFor();
    await page.goto(`${server.url}/audit?actor=program&action=names.pause&subject=quiet`);
    await expectSoon(() => acts.count(), 1);
    await act("paused").getByRole("link", { name: "quiet" }).click();
    await page.waitForURL("**/queues?name=quiet");
    await leave(tab);
  });

  test.each([
    ["light", { colorScheme: "light", viewport: { width: 1_280, height: 800 } }],
    ["dark", { colorScheme: "dark", viewport: { width: 1_280, height: 800 } }],
    ["phone", { colorScheme: "light", viewport: { width: 390, height: 760 }, hasTouch: true }],
  ] as const)("is accessible, fits and is text alone: %s", async (_, look) => {
    const tab = await openAs(adminKey, "/queues", { ...look, bypassCSP: true });
    const { page } = tab;
    const seen = [
      [`/queues?only=blocked&scope=${encodeURIComponent(scope)}`, "since"],
      ["/queues?only=paused", "by program"],
      ["/schedules", "Monday to Friday"],
      [schedulePath, "by hand"],
      ["/audit", "signed in"],
    ] as const;
    for (const [path, text] of seen) {
      await page.goto(server.url + path);
      await page.getByText(text).first().waitFor();
      const details = page.getByText("details", { exact: true });
      if ((await details.count()) > 0) await details.first().click();
      expect([path, await faultsOf(page)]).toEqual([path, []]);
      expect([path, await isTooWide(page)]).toEqual([path, false]);
      const inserted = await page.evaluate(
        () => document.querySelectorAll("#root :is(img, iframe, object, script, style, b)").length,
      );
      expect([path, inserted]).toEqual([path, 0]);
    }
    expect(await page.evaluate(() => (globalThis as { hit?: string }).hit)).toBeUndefined();
    expect(tab.outside).toEqual([]);
    await leave(tab);
  });

  test("lets a viewer look and do nothing, and shows it no audit", async () => {
    const tab = await openAs(viewerKey, "/queues");
    const { page } = tab;
    const texts = [
      ["/queues", "1 name is paused"],
      ["/schedules", "Monday to Friday"],
      [schedulePath, "by hand"],
      ["/audit", "The audit is for administrators."],
    ] as const;
    for (const [path, text] of texts) {
      await page.goto(server.url + path);
      await page.getByText(text).first().waitFor();
      for (const name of [/^Pause/, /^Resume/, /^Set/, /^Fire/, /^Delete/])
        expect([path, await page.getByRole("button", { name }).count()]).toEqual([path, 0]);
      expect(await page.getByRole("link", { name: "Audit", exact: true }).count()).toBe(0);
    }
    await page.goto(server.url + schedulePath);
    await expectShown(page.getByText("which payloads:read shows"));
    await leave(tab);
  });

  test("tells a caller of one tenant that these pages are about all", async () => {
    const tab = await openAs(tenantKey, "/queues");
    const { page } = tab;
    await page.getByText("Queues are of all tenants together.").waitFor();
    for (const path of ["/schedules", schedulePath]) {
      await page.goto(server.url + path);
      await page.getByText("Schedules are of all tenants together.").waitFor();
    }
    await page.goto(`${server.url}/audit`);
    await page.getByText("The audit is for administrators.").waitFor();
    for (const name of ["Queues", "Schedules", "Audit"])
      expect(await page.getByRole("link", { name, exact: true }).count()).toBe(0);
    await page.getByRole("link", { name: "Tasks", exact: true }).click();
    await expectShown(page.getByRole("heading", { level: 1, name: "Tasks" }));
    // Nor are there keys that lead there, or choices of the palette.
    await page.keyboard.press("g");
    await page.keyboard.press("p");
    await page.keyboard.press("?");
    const keys = page.getByRole("dialog", { name: "Keys" });
    await keys.getByText("go to Tasks").waitFor();
    for (const name of ["Queues", "Schedules", "Throttles", "Pods", "Audit"])
      expect(await keys.getByText(`go to ${name}`).count()).toBe(0);
    expect(pathOf(page)).toBe("/tasks");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("0198f3aa-0000-7000-8000-000000000000");
    const found = page.getByRole("listbox", { name: "Found" });
    await found.getByText("open this task").waitFor();
    expect(await found.getByText("open this pod").count()).toBe(0);
    await leave(tab);
  });
});
