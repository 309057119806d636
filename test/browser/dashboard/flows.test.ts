import type { Browser, Page } from "playwright-core";
import { flow } from "flotilla";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { openStore } from "../../../src/store/open.ts";
import { rows, sql, table } from "../../../src/store/sql.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { hostileTexts } from "../hostile.ts";
import {
  type DashboardServer,
  expectShown,
  faultsOf,
  isTooWide,
  openTab,
  startDashboard,
} from "./dashboard-server.ts";

const limitMs = 180_000;
const operatorKey = "a-key-of-16-chars-or-more";
const viewerKey = "another-key-of-16-chars";
const tenantKey = "a-third-key-of-16-chars";
const bad = hostileTexts[0]!;

const parcel = flow("parcel", { version: 1 })
  .to("wrap", () => ({ wrapped: true }))
  .end();
const delivery = flow("delivery", { version: 2, backoff: { baseMs: 150 } })
  .to("reserve", () => ({ item: "book", price: 12 }))
  .to("charge", ({ attempt }) => {
    if (attempt === 1) throw new Error(`the bank says ${bad}`);
    return { price: 10, note: bad };
  })
  .sleep("cool", 150)
  .signal("approve", {})
  .children("parcels", () => [[parcel, null]])
  .end();
const refused = flow("refused", { version: 1, attempts: 1 })
  .to("check", () => {
    throw new Error("out of stock");
  })
  .end();
/** A machine of 500 states, whose runs wait at the fourth. */
const long = (() => {
  type Chain = {
    to(name: string, run: () => object): Chain;
    signal(name: string, options: object): Chain;
    end(): typeof parcel;
  };
  let chain = flow("long", { version: 1 }) as unknown as Chain;
  for (let at = 0; at < 500; at++)
    chain = at === 3 ? chain.signal("s3", {}) : chain.to(`s${at}`, () => ({}));
  return chain.end();
})();
const use = [parcel, delivery, refused, long];

let browser: Browser;
let server: DashboardServer;
beforeAll(async () => {
  browser = await launch();
  server = await startDashboard({ use });
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

const start = async (name: string, options: object = {}, of = server) =>
  (await of.flotilla.runs.start(name, null as never, options)).runId;
const runOf = (runId: string) => server.flotilla.runs.get(runId);
/** Starts a run that waits for its signal. */
const waiting = async (name = "delivery", options: object = {}, of = server) => {
  const runId = await start(name, options, of);
  await until("the run waits", async () => {
    const run = await of.flotilla.runs.get(runId);
    return run?.doing?.type === "waiting_for_signal";
  });
  return runId;
};
const stateRow = (page: Page, name: string) =>
  page
    .getByRole("table", { name: /^States/ })
    .getByRole("row")
    .filter({
      has: page.getByRole("rowheader", { name: new RegExp(`^${name}\\b`) }),
    });

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

describe("the pages of flows and runs", { timeout: limitMs }, () => {
  test("show a run that moves along its machine, and signal it by keys alone", async () => {
    const tab = await openTab(browser, `${server.url}/flows`);
    const { page } = tab;
    await page.getByRole("row", { name: /^delivery v2 · 1 pod/ }).waitFor();
    await page.getByRole("link", { name: "delivery" }).click();
    await page.getByRole("heading", { level: 1, name: "delivery" }).waitFor();
    await expectShown(stateRow(page, "approve").getByText("waits for a signal"));
    await page.getByText("There are no runs yet.").waitFor();
    const runId = await waiting();
    // It is on the machine without a reload: as a count, and as what is drawn.
    await expectShown(stateRow(page, "approve").getByText("1 waiting"));
    await expectSoon(() => page.locator(".run-dot").count(), 1);
    const place = () =>
      page.locator(".run-dot").evaluate((dot) => (dot as SVGElement).style.transform);
    const placed = await place();
    await page.getByRole("link", { name: runId.slice(-12) }).click();
    await page.getByRole("heading", { level: 1, name: "delivery" }).waitFor();
    const axis = page.getByRole("region", { name: "Attempts and waits" });
    for (const name of [
      /^reserve attempt completed/,
      /^charge attempt failed/,
      /^charge backoff/,
      /^charge attempt 2 completed/,
      /^cool sleeps completed/,
      /^approve waits for its signal until now/,
    ])
      await expectShown(axis.getByRole("row", { name }));

    await page.getByRole("button", { name: "Signal" }).focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Send a signal to this run?" });
    expect(await dialog.getByLabel("Signal").inputValue()).toBe("approve");
    await dialog.getByLabel("Payload, as JSON").focus();
    await page.keyboard.type("{by: ada}");
    await dialog.getByText("This isn't JSON:").waitFor();
    await page.keyboard.press("Control+a");
    await page.keyboard.type('{"id": 12345678901234567890}');
    await dialog.getByText("write it as text, in quotes").waitFor();
    await dialog.getByRole("button", { name: "Send" }).click();
    await dialog.getByRole("alert").waitFor();
    expect((await runOf(runId))?.doing?.type).toBe("waiting_for_signal");
    await dialog.getByLabel("Payload, as JSON").fill('{"by":"ada"}');
    await dialog.getByRole("button", { name: "Send" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("The signal approve is sent.").waitFor();
    await page.getByText("completed", { exact: true }).first().waitFor();
    await expectShown(axis.getByRole("row", { name: /^parcel completed/ }));
    // The state before and after, what it led to, and its result.
    const changed = page.getByRole("listitem").filter({ hasText: /^charge/ });
    await expectShown(changed.getByRole("group", { name: "price before" }).getByText("12"));
    await expectShown(changed.getByRole("group", { name: "price after" }).getByText("10"));
    await expectShown(page.getByRole("group", { name: "the result" }).getByText("ada").first());
    await page
      .getByText("Started", { exact: false })
      .getByRole("link", { name: "parcel" })
      .first()
      .click();
    await page.getByRole("heading", { level: 1, name: "parcel" }).waitFor();
    await page.getByText("Started by run").getByRole("link").click();
    await page.waitForURL(`**/runs/${runId}`);
    await page.goBack();
    await page.goBack();
    await page.goBack();
    await page.getByRole("table", { name: /^States/ }).waitFor();
    await expectSoon(() => page.locator(".run-dot").count(), 0);
    expect(placed).toMatch(/^translate\(/);
    await leave(tab);
  });

  test.each(Object.entries(looks))("are accessible and fit: %s", async (_, look) => {
    const runId = await waiting();
    const ended = await start("refused");
    await until("it failed", async () => (await runOf(ended))?.status === "failed");
    const pages = [
      { path: "/flows", text: "delivery" },
      { path: "/flows/delivery?at=approve", text: "1 waiting" },
      { path: `/runs/${runId}`, text: "waits for the signal approve" },
      { path: `/runs/${ended}`, text: "out of stock" },
    ];
    // The checker is a script, and the page allows none but its own.
    const tab = await openTab(browser, server.url, { ...look, bypassCSP: true });
    for (const { path, text } of pages) {
      await tab.page.goto(server.url + path);
      await tab.page.getByText(text).first().waitFor({ state: "attached" });
      expect([path, await faultsOf(tab.page)]).toEqual([path, []]);
      expect([path, await isTooWide(tab.page)]).toEqual([path, false]);
    }
    await leave(tab);
    await server.flotilla.runs.cancel(runId);
  });

  test("keep version, state and filter in the address, and page through runs", async () => {
    for (let at = 0; at < 55; at++) await start("nowhere", { tenant: at === 7 ? "acme" : "other" });
    const tab = await openTab(browser, `${server.url}/flows/nowhere`);
    const { page } = tab;
    await page.getByText("No live pod has this flow").waitFor({ state: "detached" });
    await page.getByText("No live pod has told what this flow is made of").waitFor();
    const list = page.getByRole("region", { name: /^Runs, newest first/ });
    await expectSoon(() => list.getByRole("row").count(), 51);
    await page.getByRole("link", { name: "Older runs" }).click();
    await page.waitForURL("**cursor=**");
    await expectSoon(() => list.getByRole("row").count(), 6);
    await page.reload();
    await expectSoon(() => list.getByRole("row").count(), 6);
    await page.getByLabel("Tenant").fill("acme");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/flows/nowhere?tenant=acme");
    await expectSoon(() => list.getByRole("row").count(), 2);
    await page.getByLabel("Status", { exact: true }).selectOption("failed");
    await page.getByText("No run matches the filter.").waitFor();
    await page.goBack();
    await expectSoon(() => list.getByRole("row").count(), 2);
    await page
      .getByRole("navigation", { name: "Versions" })
      .getByRole("link", { name: /Not begun/ })
      .click();
    await page.waitForURL("**version=0**");
    await expectSoon(() => list.getByRole("row").count(), 2);
    await page.goto(`${server.url}/flows/nowhere?cursor=made-up`);
    await page.getByRole("alert").waitFor();
    await page.getByRole("link", { name: "Show all runs" }).click();
    await expectSoon(() => list.getByRole("row").count(), 51);
    await leave(tab);
  });
});

describe("acts on runs", { timeout: limitMs }, () => {
  test("cancel one by keys alone, and resume it where it stopped", async () => {
    const runId = await waiting();
    const tab = await openTab(browser, `${server.url}/runs/${runId}`);
    const { page } = tab;
    await page.getByRole("button", { name: "Cancel" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Cancel this run?" }).waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await expectSoon(async () => (await runOf(runId))?.status, "cancelled");
    // The page is told of it after that.
    await expectSoon(() => page.evaluate(() => document.activeElement?.tagName), "H1");
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await page.getByRole("status").getByText("The run goes on.").waitFor();
    await expectSoon(async () => (await runOf(runId))?.doing?.type, "waiting_for_signal");
    await expectShown(page.getByText("started over at", { exact: false }));
    await server.flotilla.runs.cancel(runId);
    await leave(tab);
  });

  test("signal and cancel all that match, with a count first and what came of it", async () => {
    const all = await Promise.all(Array.from({ length: 5 }, () => waiting("long")));
    const ticked = await waiting("long");
    const url = `${server.url}/flows/long?at=s3`;
    const tab = await openTab(browser, url, { bypassCSP: true });
    const { page } = tab;
    await expectShown(stateRow(page, "s3").getByText("6 waiting"));
    await page.getByRole("checkbox", { name: new RegExp(ticked.slice(-12)) }).check();
    await page.getByRole("button", { name: "Act on 1 …" }).click();
    const one = page.getByRole("dialog", { name: "1 ticked run" });
    await one.getByRole("button", { name: "Cancel 1" }).click();
    await one.getByText("1 run done").waitFor();
    await expectShown(one.getByText("What became of each"));
    await one.getByRole("button", { name: "Done" }).click();
    await expectSoon(async () => (await runOf(ticked))?.status, "cancelled");

    const dialog = page.getByRole("dialog", { name: "All that match" });
    const act = (name: RegExp) => dialog.getByRole("radio", { name });
    await page.getByRole("button", { name: "All that match" }).click();
    await dialog.getByText("5 runs match.").waitFor();
    await act(/^Resume/).check();
    await dialog.getByText("No run matches that this could be done to.").waitFor();
    await dialog.getByLabel("As version of the flow").fill("0.5");
    await dialog.getByRole("alert").getByText("A version is a whole number").waitFor();
    const [preview] = await Promise.all([
      page.waitForRequest((each) => each.url().endsWith("/v1/bulk/preview")),
      dialog.getByLabel("As version of the flow").fill("1"),
    ]);
    expect(preview.postDataJSON()).toEqual({
      action: "resume",
      filter: { name: "long", at: "s3" },
      as: 1,
    });
    await act(/^Signal/).check();
    await dialog.getByText("5 runs match.").waitFor();
    const signal = dialog.getByRole("combobox", { name: "Signal" });
    await signal.fill("no name");
    await dialog.getByRole("button", { name: "Signal 5" }).click();
    await dialog.getByRole("alert").getByText("A signal's name is").waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await signal.fill("unknown");
    await dialog.getByRole("button", { name: "Signal 5" }).click();
    await dialog.getByText("5 runs done").waitFor();
    await page.goto(`${server.url}/runs/${all[0]}`);
    await expectShown(page.getByRole("heading", { name: "Signals that it hasn't used" }));

    // Of another version there is none.
    await page.goto(`${url}&version=0`);
    await page.getByRole("button", { name: "All that match" }).click();
    await dialog.getByText("No run matches that this could be done to.").waitFor();
    await page.goto(`${url}&version=1`);
    await page.getByRole("button", { name: "All that match" }).click();
    await dialog.getByRole("button", { name: "Cancel 5" }).click();
    await dialog.getByText("5 runs done").waitFor();
    await dialog.getByRole("button", { name: "Done" }).click();
    await page.reload();
    const acts = page.getByRole("region", { name: "Acts on many" });
    await expectShown(acts.getByText("Cancelled all of long that match: 5 runs done"));
    await expectShown(stateRow(page, "s3"));
    for (const runId of all)
      await expectSoon(async () => (await runOf(runId))?.status, "cancelled");
    await leave(tab);
  });

  test("resume a run that was set aside, once its version can read it", async () => {
    const runId = await waiting("long");
    const database = await openStore(`sqlite:${server.path}`);
    const move = (to: string) =>
      database.write([sql`update ${table("task")} set cursor = ${to} where task_id = ${runId}`]);
    await move("gone");
    await server.flotilla.runs.signal(runId, "s3");
    await until("it is set aside", async () => (await runOf(runId))?.doing?.type === "set_aside");
    const tab = await openTab(browser, `${server.url}/flows/long`);
    const { page } = tab;
    await page.getByText("Runs also stand at names that this version doesn't have").waitFor();
    await page.getByRole("link", { name: "1 run set aside" }).first().click();
    await page.waitForURL(`**/runs/${runId}`);
    await expectShown(page.getByText("set aside:", { exact: false }).first());
    await move("s499");
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await expectSoon(async () => (await runOf(runId))?.status, "completed");
    await database.close();
    await leave(tab);
  });
});

describe("large and hostile", { timeout: limitMs }, () => {
  test("machines of 500 states are folded, and unfold by keys", async () => {
    const runId = await waiting("long");
    const tab = await openTab(browser, `${server.url}/flows/long`);
    const { page } = tab;
    const states = page.getByRole("table", { name: /^States/ }).getByRole("row");
    await expectShown(stateRow(page, "s3").getByText("1 waiting"));
    expect(await states.count()).toBeLessThan(12);
    const folded = page.getByRole("button", { name: "496 states without runs" });
    await folded.focus();
    await page.keyboard.press("Enter");
    await expectSoon(() => states.count(), 503);
    await page.getByRole("link", { name: "s250" }).click();
    await page.waitForURL("**at=s250**");
    await page.getByText("No run matches the filter.").waitFor();
    await server.flotilla.runs.cancel(runId);
    await leave(tab);
  });

  test("a run with 50,000 events opens with its last ones, and leads to earlier ones", async () => {
    const runId = await waiting();
    const database = await openStore(`sqlite:${server.path}`);
    const [{ last }] = (await database.read(
      sql`select max(seq) as last from ${table("task_event")} where task_id = ${runId}`,
    )) as [{ last: number }];
    for (let from = 0; from < 50_000; from += 5_000) {
      const some = Array.from({ length: 5_000 }, (_, at) => {
        const seq = Number(last) + 1 + from + at;
        const detail = { transition: `t${from + at}`, startedAtMs: seq, set: { [`f${at}`]: at } };
        return [runId, seq, 1_800_000_000_000 + seq * 10, "complete", JSON.stringify(detail)];
      });
      await database.write([
        sql`insert into ${table("task_event")} (task_id, seq, at, type, attempt, detail)
          select task_id, seq, at, type, 1, detail from ${rows(
            { task_id: "text", seq: "integer", at: "integer", type: "text", detail: "text" },
            some,
          )} given`,
      ]);
    }
    await database.close();
    const tab = await openTab(browser, `${server.url}/runs/${runId}`);
    const { page } = tab;
    await page.getByText("The last 200 events are shown.").waitFor();
    await expectShown(page.getByRole("row", { name: /^t49999 / }));
    expect(await page.evaluate(() => document.querySelectorAll("*").length)).toBeLessThan(15_000);
    await page.getByRole("link", { name: "Earlier events" }).click();
    await page.waitForURL("**before=**");
    await expectShown(page.getByRole("row", { name: /^t49700 / }));
    await page.getByRole("link", { name: "Newest events" }).click();
    await expectShown(page.getByRole("row", { name: /^t49999 / }));
    await server.flotilla.runs.cancel(runId);
    await leave(tab);
  });

  test("names, keys and messages are text and nothing else", async () => {
    const { runId } = await server.flotilla.runs.start("__proto__", { [bad]: bad } as never, {
      key: bad,
      tenant: "<b>acme</b>",
    });
    const failing = await waiting();
    await server.flotilla.runs.signal(failing, "approve", { [bad]: "\u202e001" });
    const tab = await openTab(browser, server.url);
    const { page } = tab;
    const paths = ["/flows", "/flows/__proto__", `/runs/${runId}`, `/runs/${failing}`];
    for (const path of [...paths, "/flows/constructor"]) {
      await page.goto(server.url + path);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page
        .getByText(/__proto__|delivery|There is no flow constructor/)
        .first()
        .waitFor();
      const inserted = await page.evaluate(
        () =>
          document.querySelectorAll(
            "#root :is(img, iframe, object, script, style, b, form[action])",
          ).length,
      );
      expect([path, inserted]).toEqual([path, 0]);
      expect(await page.evaluate(() => (globalThis as { hit?: string }).hit)).toBeUndefined();
      expect(await isTooWide(page)).toBe(false);
    }
    expect(tab.outside).toEqual([]);
    await leave(tab);
  });

  test("an id that there isn't, of a run or a flow, is told with a way on", async () => {
    const tab = await openTab(browser, `${server.url}/runs/0198f3aa-0000-7000-8000-000000000000`);
    const { page } = tab;
    await page.getByRole("alert").getByText("There is no run 0198f3aa").waitFor();
    await page.getByRole("link", { name: "To the flows" }).click();
    await page.getByRole("heading", { level: 1, name: "Flows" }).waitFor();
    await page.goto(`${server.url}/flows/${encodeURIComponent("a/../<b>%")}`);
    await page.getByRole("alert").getByText("There is no flow").waitFor();
    await expectShown(page.getByRole("button", { name: "Try again" }));
    await leave(tab);
  });
});

describe("a server with keys", { timeout: limitMs }, () => {
  test("shows a viewer no act and no payload, and a tenant its own runs alone", async () => {
    const apiKeys = [
      { key: operatorKey, name: "ops", role: "operator" },
      { key: viewerKey, name: "look", role: "viewer" },
      { key: tenantKey, name: "acme", role: "operator", tenant: "acme" },
    ] as const;
    await using closed = await startDashboard({ server: { apiKeys }, use });
    const mine = await waiting("delivery", { tenant: "acme" }, closed);
    const other = await waiting("delivery", { tenant: "rival" }, closed);
    const signIn = async (page: Page, key: string) => {
      await page.getByLabel("Key").fill(key);
      await page.getByRole("button", { name: "Sign in" }).click();
    };
    const viewer = await openTab(browser, `${closed.url}/runs/${mine}`);
    await signIn(viewer.page, viewerKey);
    await viewer.page.getByRole("heading", { name: "Input" }).waitFor();
    expect(await viewer.page.getByText("book").count()).toBe(0);
    for (const path of [`/runs/${mine}`, "/flows/delivery"]) {
      await viewer.page.goto(closed.url + path);
      await viewer.page.getByText("approve").first().waitFor();
      for (const name of [/Signal/, /Resume/, /Cancel/, /All that match/])
        expect(await viewer.page.getByRole("button", { name }).count()).toBe(0);
      expect(await viewer.page.getByRole("checkbox").count()).toBe(0);
    }
    await leave(viewer);

    const tenant = await openTab(browser, `${closed.url}/flows`);
    const { page } = tenant;
    await signIn(page, tenantKey);
    const shown = (runId: string) => page.getByRole("link", { name: runId.slice(-12) });
    await expectShown(shown(mine));
    expect(await shown(other).count()).toBe(0);
    // Those before fifty later ones are a page further.
    for (let at = 0; at < 50; at++) await start("refused", { tenant: "acme" }, closed);
    await expectSoon(() => shown(mine).count(), 0);
    await page.getByRole("link", { name: "Older runs" }).click();
    await expectShown(shown(mine));
    expect(new URL(page.url()).searchParams.has("cursor")).toBe(true);
    await page.reload();
    await expectShown(shown(mine));
    await page.getByRole("link", { name: "Newest runs" }).click();
    await page.waitForURL("**/flows");
    await page.goto(`${closed.url}/flows/delivery`);
    await expectShown(shown(mine));
    expect(await shown(other).count()).toBe(0);
    await page.goto(`${closed.url}/runs/${other}`);
    await page.getByRole("alert").getByText("There is no run").waitFor();
    await page.goto(`${closed.url}/flows/delivery`);
    await page.getByRole("button", { name: "All that match" }).click();
    const dialog = page.getByRole("dialog", { name: "All that match" });
    await dialog.getByRole("button", { name: "Cancel 1" }).click();
    await dialog.getByText("1 run done").waitFor();
    expect((await closed.flotilla.runs.get(other))?.status).toBe("open");
    await leave(tenant);
  });
});
