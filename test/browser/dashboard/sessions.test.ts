import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { agent, type Chunk, textOf } from "flotilla";
import { systemClock } from "../../../src/base/clock.ts";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { openStore } from "../../../src/store/open.ts";
import { sql, table } from "../../../src/store/sql.ts";
import { parked } from "../../../src/tasks/sql/task-state.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { confusingTexts, hostileChunks, hostileTexts } from "../hostile.ts";
import { startProxy } from "../proxy.ts";
import {
  type DashboardServer,
  expectShown,
  faultsOf,
  isTooWide,
  openTab,
  startDashboard,
} from "./dashboard-server.ts";

const limitMs = 180_000;
const viewerKey = "a-key-of-a-viewer-16-chars";
const operatorKey = "a-key-of-an-operator-16-chars";
const looks = {
  light: { colorScheme: "light", viewport: { width: 1_280, height: 800 } },
  dark: { colorScheme: "dark", viewport: { width: 1_280, height: 800 } },
  phone: { colorScheme: "light", viewport: { width: 390, height: 760 }, isMobile: true },
} as const;

/** Words that an answer says when it is told to, one gate for each session. */
const gates = new Map<string, (word: string | undefined) => void>();
const words = async function* (sessionId: string, signal: AbortSignal) {
  for (;;) {
    const { promise, resolve, reject } = Promise.withResolvers<string | undefined>();
    gates.set(sessionId, resolve);
    const onAbort = () => {
      // Or the next word would go to the answer that was stopped.
      if (gates.get(sessionId) === resolve) gates.delete(sessionId);
      reject(signal.reason as Error);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    const word = await promise;
    if (word === undefined) return;
    yield `${word}\n`;
    // A line is shown to others than its members once something follows it.
    yield " ";
  }
};
const say = async (sessionId: string, word?: string) => {
  await until("the answer waits for a word", async () => gates.has(sessionId));
  const gate = gates.get(sessionId)!;
  gates.delete(sessionId);
  gate(word);
};

/** Streams, asks whether it may order, starts a task, or says what would be harmful as markup. */
const patient = {
  idleTimeoutMs: limitMs,
  deadlineMs: limitMs,
  compaction: { fn: () => "They have talked.", when: "manual" },
} as const;
const helper = agent("helper", patient, async function* (context): AsyncGenerator<Chunk | string> {
  const { messages, sessionId, signal, enqueue, usage } = context;
  const last = messages.at(-1)!;
  const call = last.parts.find((part) => part.type === "tool-order");
  if (call?.["state"] === "approval-responded") {
    const isApproved = (call["approval"] as { approved?: boolean }).approved === true;
    if (isApproved) {
      const { taskId } = await enqueue("mail", { to: "the kitchen" });
      yield { type: "tool-output-available", toolCallId: "c1", output: { taskId } };
      yield "Your coffee is on its way.";
    } else {
      yield { type: "tool-output-denied", toolCallId: "c1" };
      yield "Then I won't.";
    }
    return;
  }
  const said = textOf(last);
  if (said === "coffee") {
    yield { type: "reasoning-start", id: "r1" };
    yield { type: "reasoning-delta", id: "r1", delta: "The user wants coffee." };
    yield { type: "reasoning-end", id: "r1" };
    yield "Let me order that.";
    const input = { item: "coffee" };
    yield { type: "tool-input-available", toolCallId: "c1", toolName: "order", input };
    yield { type: "tool-approval-request", toolCallId: "c1", approvalId: "a1" };
  } else if (said === "slowly") {
    yield* words(sessionId, signal);
  } else if (said === "hostile") {
    yield* hostileChunks() as Chunk[];
    for (const text of [...hostileTexts, ...confusingTexts]) yield `${text}\n`;
  } else {
    usage({ model: "model-1", input: 1_200, output: 34 });
    yield `You said: ${said}`;
  }
});

let browser: Browser;
let server: DashboardServer;
let talked: string;

/** A session with a message, and its answer if it has one by itself. */
async function chat(text: string, { user = "ada", on = server } = {}): Promise<string> {
  const { sessionId } = await on.sessions.create("default", { agents: ["helper"], users: [user] });
  await on.sessions.send("default", sessionId, {
    author: user,
    parts: [{ type: "text", text }],
  });
  if (text !== "slowly") await idle(sessionId, on);
  return sessionId;
}

async function idle(sessionId: string, on = server): Promise<void> {
  await until("the answer is stored", async () => {
    const { state, lastSeq } = await on.sessions.get("default", sessionId);
    return state.state === "idle" && lastSeq >= 2;
  });
}

/** A session of so many entries, as a store has it that was written for months. */
async function longSession(entries: number): Promise<string> {
  const from = await chat("long ago");
  const sessionId = `long-${entries}`;
  const database = await openStore(`sqlite:${server.path}`);
  const session = table("session");
  const message = table("message");
  await database.write([
    sql`insert into ${session}
      (session_id, tenant, log_id, last_offset, agent, last_seq, header, created_at, active_at)
      select ${sessionId}, tenant, log_id, last_offset, agent, ${entries},
        json_set(header, '$.sessionId', ${sessionId}, '$.lastSeq', ${entries}),
        created_at, active_at
      from ${session} where session_id = ${from}`,
    sql`insert into ${message}
      (session_id, seq, kind, role, author, message_id, body, at)
      with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${entries})
      select ${sessionId}, n, 'message', 'user', 'ada', 'm-' || n,
        json_object('tokens', 1, 'parts', json_array(json_object('type', 'text', 'text',
          'word ' || n || substr(' and more of it to read', 1, n % 23)))), at + n
      from numbers, ${message} where session_id = ${from} and seq = 1`,
  ]);
  await database.close();
  return sessionId;
}

beforeAll(async () => {
  browser = await launch();
  server = await startDashboard({ use: [helper] });
  talked = await chat("hello");
}, limitMs);
afterAll(async () => {
  server?.open();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

const openSession = (sessionId: string, options = {}) =>
  openTab(browser, `${server.url}/sessions/${sessionId}`, options);
const isLive = (page: Page) =>
  page.locator(".headline").getByText("live", { exact: true }).waitFor();
const dialog = (page: Page) => page.getByRole("dialog");

describe("sessions", { timeout: limitMs }, () => {
  test("are listed, filtered in the address, and opened by keys", async () => {
    const bobs = await chat("bob was here", { user: "bob" });
    await server.sessions.create("acme", { agents: ["helper"], users: ["eve"] });
    const ticket = { ticket: { id: 7 }, plan: "two words" };
    await server.sessions.create("default", { users: ["mae"], metadata: ticket });
    const tab = await openTab(browser, `${server.url}/sessions`);
    const { page } = tab;
    const rows = page.getByRole("list", { name: /Sessions/ }).getByRole("listitem");
    await rows.filter({ hasText: "You said: bob was here" }).waitFor();
    await page.getByLabel("User", { exact: true }).fill("bob");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/sessions?user=bob");
    await expectSoon(() => rows.count(), 1);
    await page.reload();
    await expectSoon(() => rows.count(), 1);
    await page.getByLabel("State", { exact: true }).selectOption("compacting");
    await page.waitForURL("**/sessions?user=bob&state=compacting");
    await page.getByText("No session matches the filter.").waitFor();
    await page.goBack();
    await page.waitForURL("**/sessions?user=bob");
    await rows.first().waitFor();
    await page.getByLabel("Tenant").fill("acme");
    await page.getByLabel("User", { exact: true }).fill("");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/sessions?tenant=acme");
    await rows.filter({ hasText: "eve" }).waitFor();
    expect(await rows.count()).toBe(1);
    await page.keyboard.press("Tab");
    await page.getByRole("heading", { level: 1 }).focus();
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/sessions/*?tenant=acme");
    await page.getByText("Nothing has been written yet.").waitFor();
    await page.goto(`${server.url}/sessions`);
    const metadata = page.getByLabel(/^Metadata/);
    await metadata.fill("ticket");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("such as ticket.id:7").waitFor();
    await metadata.fill('ticket.id:7 plan:"two words"');
    await page.keyboard.press("Enter");
    await page.waitForURL("**/sessions?metadata.ticket.id=7&metadata.plan=two+words");
    await expectSoon(() => rows.count(), 1);
    await rows.filter({ hasText: "mae" }).waitFor();
    await page.reload();
    await expectSoon(() => metadata.inputValue(), 'ticket.id:7 plan:"two words"');
    await expectSoon(() => rows.count(), 1);
    await metadata.fill("__proto__:7");
    await page.keyboard.press("Enter");
    await page.getByText(/must be a path of 1 to 5 names/).waitFor();
    await page.getByRole("button", { name: "Clear" }).click();
    await page.waitForURL("**/sessions");
    await page.goto(`${server.url}/sessions?user=bob`);
    await rows.first().getByRole("link").click();
    await page.waitForURL(`**/sessions/${bobs}`);
    await expectShown(page.getByText("1,200 tokens in, 34 out").first());
    await leave(tab);
  });

  test("are shown as they go on: each line as it comes, the turn on the axis, and its end", async () => {
    const sessionId = await chat("slowly");
    const tab = await openSession(sessionId);
    const { page } = tab;
    const live = page.getByRole("article", { name: "The answer that is being made" });
    await isLive(page);
    await say(sessionId, "one");
    await live.getByText("one").waitFor();
    await say(sessionId, "two");
    await live.getByText("one two").waitFor();
    await page.getByRole("listitem").getByText("under way").waitFor();
    await expectShown(page.getByText(/streamed .* so far/));
    await page.getByRole("button", { name: "Stop" }).click();
    await dialog(page).getByRole("button", { name: "Stop it" }).click();
    await page.getByRole("status").getByText("The answer is stopped.").waitFor();
    await page.getByText("stopped by local").first().waitFor();
    await page.getByText("one two").waitFor();
    expect(await live.count()).toBe(0);
    // The last answer is made anew, and shown in its place.
    await page.getByRole("button", { name: "Regenerate" }).click();
    await dialog(page).getByRole("button", { name: "Regenerate" }).click();
    await say(sessionId, "fresh");
    await page.getByRole("log").getByText("fresh").waitFor();
    await say(sessionId);
    await page.getByRole("listitem").getByText("completed").waitFor();
    expect(await page.getByText("one two").count()).toBe(0);
    await page.getByRole("button", { name: "Compact" }).click();
    await dialog(page).getByRole("button", { name: "Compact" }).click();
    await page.getByRole("status").getByText("The summary is being made.").waitFor();
    await expectShown(page.getByRole("listitem").getByText("summarized"));
    await leave(tab);
  });

  test("wait for a person, who approves by keys; a second tab is told that it is late", async () => {
    const sessionId = await chat("coffee");
    const tab = await openTab(browser, `${server.url}/sessions`);
    const other = await openSession(sessionId);
    const { page } = tab;
    const listed = page.getByRole("listitem").filter({ hasText: sessionId.slice(-12) });
    await listed.getByText("waits for a person").waitFor();
    await page.getByRole("link", { name: /waits? for a person/ }).click();
    await page.waitForURL("**/approvals");
    const line = page.getByRole("listitem").filter({ hasText: sessionId.slice(-12) });
    await line.getByText("order").waitFor();
    const late = other.page.getByRole("button", { name: "Approve order" });
    await late.click();
    await dialog(other.page).getByLabel("Reason").waitFor();
    // By keys alone.
    await line.getByRole("button", { name: /^Approve/ }).focus();
    await page.keyboard.press("Enter");
    await dialog(page).getByLabel("Reason").waitFor();
    await page.keyboard.type("it is early");
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("Approved: the agent goes on.").waitFor();
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("H1");
    await expectSoon(() => line.count(), 0);
    await dialog(other.page).getByRole("button", { name: "Approve" }).click();
    await other.page.getByRole("alert").getByText("It was decided already").waitFor();
    await other.page.keyboard.press("Escape");
    // The joined page has it all: who decided, what came of it, and the task that it started.
    await other.page.getByText("Your coffee is on its way.").waitFor();
    await other.page.getByText("it is early").waitFor();
    await expectShown(other.page.getByText(/waited for a person/));
    await other.page.getByRole("link", { name: "mail" }).first().waitFor();
    const { entries } = await server.sessions.entries("default", sessionId, {});
    expect(entries.filter(({ kind }) => kind === "tool_result")).toHaveLength(1);
    await leave(tab);
    await leave(other);
  });

  test("that are denied go on without the call, and runs take their signal with its payload", async () => {
    const sessionId = await chat("coffee");
    const { runId } = await server.flotilla.runs.start("order", null as never);
    const tab = await openTab(browser, `${server.url}/approvals`);
    const { page } = tab;
    const line = (text: string) => page.getByRole("listitem").filter({ hasText: text.slice(-12) });
    await line(runId).waitFor();
    await page.getByLabel("Tenant").fill("other");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/approvals?tenant=other");
    await page.getByText("Nothing waits for a person.").waitFor();
    await page.getByRole("button", { name: "Clear" }).click();
    await page.waitForURL("**/approvals");
    await line(sessionId).getByRole("button", { name: /^Deny/ }).click();
    await dialog(page).getByRole("button", { name: "Deny" }).click();
    await page.getByRole("status").getByText("Denied").waitFor();
    await line(runId)
      .getByRole("button", { name: /^Send approval/ })
      .click();
    await dialog(page).getByLabel("Payload as JSON").fill("{");
    await dialog(page).getByRole("button", { name: "Send" }).click();
    await page.getByRole("alert").getByText("This isn't JSON").waitFor();
    await dialog(page)
      .getByLabel("Payload as JSON")
      .fill('{"by": "ada", "id": 12345678901234567890}');
    await dialog(page).getByText("The number 12345678901234567890 has more digits").waitFor();
    await dialog(page).getByLabel("Payload as JSON").fill('{"by": "ada"}');
    await dialog(page).getByRole("button", { name: "Send" }).click();
    await page.getByRole("status").getByText("The signal is sent.").waitFor();
    await expectSoon(async () => (await server.flotilla.runs.get(runId))?.status, "completed");
    await page.getByText("Nothing waits for a person.").waitFor();
    await page.goto(`${server.url}/sessions/${sessionId}`);
    await expectShown(page.getByText("Then I won't."));
    await leave(tab);
  });

  test("that were decided on leave the list of approvals, which keeps the pages that were loaded", async () => {
    const many = 450;
    const database = await openStore(`sqlite:${server.path}`);
    await database.write([
      sql`insert into ${table("task")} (task_id, name, parked, awaits, last_update)
        with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${many})
        select 'waits-' || printf('%04d', n), 'asking', ${parked.untilSignal}, 'approve', n
        from numbers`,
      // The one with a deadline has waited for the shortest time.
      sql`insert into ${table("task")} (task_id, name, parked, awaits, run_at)
        values ('waits-soon', 'asking', ${parked.untilDue}, 'approve', ${systemClock.now() + 600_000})`,
    ]);
    const tab = await openTab(browser, `${server.url}/approvals`);
    const { page } = tab;
    const lines = page.getByRole("list", { name: /^What waits/ }).getByRole("listitem");
    await expectSoon(() => lines.count(), 200);
    await lines.first().getByText("waits-soon").waitFor();
    await page.getByRole("button", { name: "Show more" }).click();
    await expectSoon(() => lines.count(), 400);
    await page.getByRole("button", { name: "Send approve to task waits-0002" }).click();
    await dialog(page).getByRole("button", { name: "Send" }).click();
    await page.getByRole("status").getByText("The signal is sent.").waitFor();
    await expectSoon(() => page.getByText("waits-0002").count(), 0);
    await expectSoon(() => lines.count(), 400);
    await page.goto(server.url);
    await expectShown(page.getByRole("link", { name: /asking waits for a person, and gives up/ }));
    await database.write([sql`delete from ${table("task")} where name = 'asking'`]);
    await database.close();
    await leave(tab);
  });

  test("of 100,000 entries open at the end, and older ones are read as one scrolls", async () => {
    const sessionId = await longSession(100_000);
    const tab = await openSession(sessionId);
    const { page } = tab;
    const log = page.getByRole("log");
    await log.getByText(/^word 100000/).waitFor();
    expect(await page.locator(".conversation-row").count()).toBeLessThan(60);
    await log.hover();
    const drawn = () =>
      page.evaluate(() =>
        [...document.querySelectorAll(".conversation-row .said")].map((each) =>
          Number(/word (\d+)/.exec(each.textContent ?? "")?.[1]),
        ),
      );
    // Those before were no part of what the page read first.
    const isOlder = async () => (await drawn())[0]! < 99_800;
    await until("older ones are drawn", async () => {
      if (await isOlder()) return true;
      await page.mouse.wheel(0, -3_000);
      return false;
    });
    // What is in sight is one piece of the log, in its order.
    await expectSoon(drawn, (seen) => {
      expect(seen.length).toBeGreaterThan(1);
      expect(seen).toEqual(seen.map((_, at) => seen[0]! + at));
    });
    expect(await isOlder()).toBe(true);
    await leave(tab);
  });

  test("go on by themselves after the network was cut, and end with a sentence when deleted", async () => {
    const sessionId = await chat("slowly");
    const proxy = await startProxy(() => server.port);
    const tab = await openTab(browser, `http://127.0.0.1:${proxy.port}/sessions/${sessionId}`);
    const { page } = tab;
    await isLive(page);
    await say(sessionId, "before");
    await page.getByText("before").waitFor();
    proxy.block(true);
    await page.getByText("the connection is lost").waitFor();
    await say(sessionId, "during");
    proxy.block(false);
    await isLive(page);
    await say(sessionId, "after");
    await page.getByText("before during after").waitFor();
    await say(sessionId);
    await page.getByRole("listitem").getByText("completed").waitFor();
    await server.sessions.remove("default", sessionId);
    await page.getByText("The session is gone").waitFor();
    await page.getByText("before during after").waitFor();
    await page.reload();
    await expectShown(page.getByText(`There is no session ${sessionId}`));
    await page.goto(`http://127.0.0.1:${proxy.port}/sessions/none?tenant=elsewhere`);
    await expectShown(page.getByText("There is no session none"));
    await leave(tab);
    await proxy.close();
  });

  test("are text and nothing else, whatever was written in them", async () => {
    const sessionId = await chat("hostile");
    const long = await chat("w".repeat(200_000));
    const tab = await openSession(sessionId);
    const { page } = tab;
    await page.getByText("<script>window.hit = 'script'</script>").first().waitFor();
    for (const path of [`/sessions/${sessionId}`, `/sessions/${long}`, "/sessions"]) {
      await page.goto(server.url + path);
      await page
        .getByText(/w{60}|<img|helper/)
        .first()
        .waitFor();
      for (const summary of await page.locator(".conversation summary").all()) {
        if (await summary.isVisible()) await summary.click();
      }
      const inserted = await page.evaluate(
        () => document.querySelectorAll("#root :is(img, iframe, object, script, style, b)").length,
      );
      expect([path, inserted]).toEqual([path, 0]);
      const links = await page.evaluate(() =>
        [...document.querySelectorAll("a")].map(({ protocol }) => protocol),
      );
      expect(links.filter((each) => !/^https?:$/.test(each))).toEqual([]);
      expect(await page.evaluate(() => (globalThis as { hit?: string }).hit)).toBeUndefined();
      expect([path, await isTooWide(page)]).toEqual([path, false]);
    }
    expect(tab.outside).toEqual([]);
    await leave(tab);
  });

  test.each(Object.entries(looks))("are accessible and fit: %s", async (_, look) => {
    const waits = await chat("coffee");
    const tab = await openTab(browser, `${server.url}/sessions`, { ...look, bypassCSP: true });
    const { page } = tab;
    const pages = [
      ["/sessions", "You said: hello"],
      [`/sessions/${talked}`, "You said: hello"],
      [`/sessions/${waits}`, "Let me order that."],
      ["/approvals", waits.slice(-12)],
    ] as const;
    for (const [path, text] of pages) {
      await page.goto(server.url + path);
      await page.getByText(text).first().waitFor();
      expect([path, await faultsOf(page)]).toEqual([path, []]);
      expect([path, await isTooWide(page)]).toEqual([path, false]);
    }
    await page.goto(`${server.url}/sessions/${waits}`);
    await page.getByRole("button", { name: "Deny order" }).click();
    await dialog(page).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await leave(tab);
  });

  test("show a viewer shapes and no act, and an operator with a key decides by its name", async () => {
    const apiKeys = [
      { key: viewerKey, name: "look", role: "viewer" },
      { key: operatorKey, name: "ops", role: "operator" },
    ] as const;
    await using closed = await startDashboard({ server: { apiKeys }, use: [helper] });
    const sessionId = await chat("coffee", { on: closed });
    const signIn = async (page: Page, key: string) => {
      await page.getByLabel("Key").fill(key);
      await page.getByRole("button", { name: "Sign in" }).click();
    };
    const tab = await openTab(browser, `${closed.url}/sessions/${sessionId}`);
    const { page } = tab;
    await signIn(page, viewerKey);
    await page.getByText("waits for a decision").waitFor();
    for (const path of [`/sessions/${sessionId}`, "/sessions", "/approvals"]) {
      await page.goto(closed.url + path);
      await page.getByText("helper").first().waitFor();
      for (const name of [/^Stop/, /^Regenerate/, /^Compact/, /^Approve/, /^Deny/, /^Send/])
        expect(await page.getByRole("button", { name }).count()).toBe(0);
      expect(await page.getByText("Let me order that.").count()).toBe(0);
    }
    await leave(tab);
    const ops = await openTab(browser, `${closed.url}/sessions/${sessionId}`);
    await signIn(ops.page, operatorKey);
    await ops.page.getByRole("button", { name: "Approve order" }).click();
    await dialog(ops.page).getByRole("button", { name: "Approve" }).click();
    await ops.page.getByRole("status").getByText("Approved").waitFor();
    await expectShown(ops.page.getByText(/ops approved/));
    await leave(ops);
  });
});
