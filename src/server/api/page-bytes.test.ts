import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { maxPageBytes } from "../../base/page.ts";
import { flow } from "../../flows/flow.ts";
import { inboxPage } from "./session-streams.ts";
import { startTestServer } from "../contract/test-server.ts";

const big = "ü".repeat(60_000);
const state = "s".repeat(100_000);
const many = flow("many", { version: 1 })
  .to("a", () => ({ one: state }))
  .to("b", () => ({ two: state }))
  .end();
let server: Awaited<ReturnType<typeof startTestServer>>;

beforeAll(async () => {
  server = await startTestServer({ use: [many] });
});
afterAll(() => server[Symbol.asyncDispose]());

// What a test stores by itself takes long enough for a server to give up an idle connection.
const headers = { "Content-Type": "application/json", Connection: "close" };

const send = async (method: string, path: string, body: unknown) => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers,
    body: JSON.stringify(body),
  });
  // oxlint-disable-next-line typescript/no-explicit-any
  const told = (await answer.json()) as any;
  expect(answer.status).toBeLessThan(300);
  return told;
};

/** Every item of a list, page by page, each page held to its bytes. */
async function all(path: string, items: string, nextAs = "cursor") {
  const found: Record<string, unknown>[] = [];
  let pages = 0;
  for (let at = path; ;) {
    const text = await (await fetch(`${server.url}${at}`, { headers })).text();
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(maxPageBytes);
    const page = JSON.parse(text) as Record<string, never[]> & { next: string | number | null };
    expect(page[items]!.length).toBeGreaterThan(0);
    found.push(...page[items]!);
    pages++;
    if (page.next === null) return { found, pages };
    at = `${path}${path.includes("?") ? "&" : "?"}${nextAs}=${encodeURIComponent(page.next)}`;
  }
}

function addEvents(taskId: string, details: readonly (readonly [number, string])[]): void {
  const file = new DatabaseSync(server.path, { timeout: 30_000 });
  const insert = file.prepare(
    "insert into flotilla_task_event (task_id, seq, type, detail) values (?, ? + 100000, 'retry', ?)",
  );
  for (const [seq, detail] of details) insert.run(taskId, seq, detail);
  file.close();
}

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);
const idOf = (n: number) => `id-${String(n).padStart(3, "0")}`;

test("a page of tasks takes 1 MiB at most, and the pages hold them all", async () => {
  const ids: string[] = [];
  for (const n of numbers(30)) {
    const { taskId } = await send("POST", "/v1/tasks", { name: "nobody", input: { n, big } });
    ids.push(taskId);
  }
  const { found, pages } = await all("/v1/tasks?limit=1000&name=nobody", "tasks");
  expect(found.map(({ taskId }) => taskId)).toEqual(ids.toReversed());
  expect(pages).toBeGreaterThan(3);
});

test("tasks that wait for many others count with what they wait for", async () => {
  const tasks = numbers(1_000).map((n) => ({ ref: `r${n}`, name: "nothing" }));
  const after = tasks.map(({ ref }) => ref);
  const waiters = numbers(60).map((n) => ({ ref: `w${n}`, name: "waiter", after }));
  await send("POST", "/v1/tasks/graph", { tasks: [...tasks, ...waiters] });
  const { found, pages } = await all("/v1/tasks?limit=1000&name=waiter", "tasks");
  expect(found).toHaveLength(60);
  expect(pages).toBeGreaterThan(2);
});

test("so do pages of runs, of their histories and of what happened to tasks", async () => {
  const ids: string[] = [];
  for (const n of numbers(12)) {
    const { runId } = await send("POST", "/v1/runs", { flow: "many", input: { n } });
    await server.flotilla.runs.wait(runId);
    ids.push(runId);
  }
  const { found, pages } = await all("/v1/runs?limit=1000&flow=many", "runs");
  expect(found.map(({ runId }) => runId)).toEqual(ids.toReversed());
  expect(pages).toBeGreaterThan(1);

  const { taskId } = await send("POST", "/v1/tasks", { name: "nobody" });
  await server.flotilla.tasks.cancel(taskId);
  const details = numbers(30).map((n) => [n + 10, JSON.stringify({ n, big })] as const);
  for (const id of [ids[0]!, taskId]) addEvents(id, details);
  const history = await all(`/v1/runs/${ids[0]}/history`, "history", "after");
  expect(history.pages).toBeGreaterThan(3);
  expect(history.found.length).toBeGreaterThan(30);
  const events = await all(`/v1/tasks/${taskId}/events`, "events", "after");
  expect(events.found.length).toBeGreaterThan(30);
  const shown = await (await fetch(`${server.url}/v1/tasks/${taskId}`)).text();
  expect(Buffer.byteLength(shown)).toBeLessThanOrEqual(maxPageBytes);
  expect((JSON.parse(shown) as { next: number }).next).toBeGreaterThan(0);
});

test("so do pages of schedules, of agents and of failed tasks", async () => {
  for (const n of numbers(12)) {
    const said = { name: "nobody", pattern: "0 0 1 1 *", input: { big } };
    await send("PUT", `/v1/schedules/${idOf(n)}`, said);
  }
  const schedules = await all("/v1/schedules?limit=1000", "schedules");
  expect(schedules.found.map(({ scheduleId }) => scheduleId)).toEqual(numbers(12).map(idOf));
  expect(schedules.pages).toBeGreaterThan(1);

  for (const n of numbers(40)) {
    const settings = { url: `https://agents.example.com/${"p".repeat(50_000)}` };
    await send("POST", "/v1/agents", { name: idOf(n), settings });
  }
  const agents = await all("/v1/agents?limit=1000", "agents");
  expect(agents.found.map(({ name }) => name)).toEqual(numbers(40).map(idOf));
  expect(agents.pages).toBeGreaterThan(1);
});

test("so do pages of sessions and of their messages", async () => {
  const metadata = { big: "m".repeat(16_000) };
  for (const n of numbers(100)) {
    await send("POST", "/v1/sessions", { sessionId: idOf(n), users: ["ada"], metadata });
  }
  for (const query of ["limit=1000", "limit=1000&user=ada", "limit=1000&status=active"]) {
    const { found, pages } = await all(`/v1/sessions?${query}`, "sessions");
    expect(found.map(({ sessionId }) => sessionId)).toEqual(numbers(100).map(idOf).toReversed());
    expect(pages).toBeGreaterThan(1);
  }
  const path = `/v1/sessions/${idOf(0)}/messages`;
  for (const n of numbers(20)) {
    await send("POST", path, { author: "ada", id: idOf(n), parts: [{ type: "text", text: big }] });
  }
  const messages = await all(`${path}?limit=1000`, "entries", "after");
  expect(messages.found.map(({ seq }) => seq)).toEqual(numbers(20).map((n) => n + 1));
  expect(messages.pages).toBeGreaterThan(2);
});

/** Stores a row as often as told, each time with what differs. */
function copyRow(
  table: string,
  count: number,
  change: (n: number) => Record<string, unknown>,
): void {
  const file = new DatabaseSync(server.path, { timeout: 30_000 });
  const row = file.prepare(`select * from flotilla_${table} limit 1`).get()!;
  const columns = Object.keys(row);
  const places = columns.map(() => "?").join();
  const insert = file.prepare(
    `insert into flotilla_${table} (${columns.join()}) values (${places})`,
  );
  file.exec("begin immediate");
  for (const n of numbers(count)) {
    const made = { ...row, ...change(n) } as Record<string, SQLInputValue>;
    insert.run(...columns.map((column) => made[column]!));
  }
  file.exec("commit");
  file.close();
}

/** So many characters that take six bytes each as JSON. */
const wide = (n: number, chars: number) => idOf(n) + "\u0001".repeat(chars - idOf(n).length);

test("so do pages of limits and of tenants", async () => {
  await send("PUT", "/v1/limits", { scope: "tenant/a", limit: 1 });
  copyRow("task_limit", 500, (n) => ({ scope: `tenant/${wide(n, 500)}` }));
  const limits = await all("/v1/limits", "limits");
  expect(new Set(limits.found.map(({ scope }) => scope)).size).toBe(501);
  expect(limits.pages).toBeGreaterThan(1);
  const tenants = await all("/v1/tenants", "tenants");
  expect(new Set(tenants.found.map(({ tenant }) => tenant)).size).toBeGreaterThanOrEqual(501);
  expect(tenants.pages).toBeGreaterThan(1);
});

test("so do pages of redrives, of bulks, of the signals of a run and of an inbox", async () => {
  const asked = fetch(`${server.url}/v1/dlq/redrives`, {
    method: "POST",
    headers,
    body: JSON.stringify({ name: "x".repeat(501) }),
  });
  expect((await asked).status).toBe(400);
  await send("POST", "/v1/dlq/redrives", { name: wide(0, 500) });
  copyRow("redrive", 500, (n) => ({ redrive_id: `0${idOf(n)}` }));
  const redrives = await all("/v1/dlq/redrives?limit=1000", "redrives");
  expect(new Set(redrives.found.map(({ redriveId }) => redriveId)).size).toBe(501);
  expect(redrives.pages).toBeGreaterThan(1);

  await send("POST", "/v1/bulk", { action: "cancel", filter: { name: wide(0, 200) } });
  copyRow("bulk", 900, (n) => ({ bulk_id: `0${idOf(n)}` }));
  const bulks = await all("/v1/bulk?limit=1000", "bulks");
  expect(new Set(bulks.found.map(({ bulkId }) => bulkId)).size).toBe(901);
  expect(bulks.pages).toBeGreaterThan(1);

  const { runId } = await send("POST", "/v1/runs", { flow: "nobody" });
  await send("POST", `/v1/runs/${runId}/signals`, { name: "go", payload: big });
  copyRow("task_signal", 990, (n) => ({ signal_id: wide(n, 200), seq: n + 100 }));
  const signals = await all(`/v1/runs/${runId}/signals`, "signals", "after");
  expect(new Set(signals.found.map(({ signalId }) => signalId)).size).toBe(991);
  expect(signals.pages).toBeGreaterThan(1);

  const items = numbers(1_000).map((n) => ({
    sessionId: idOf(n),
    agents: numbers(16).map(() => "a".repeat(100)),
    status: "active" as const,
    state: "idle" as const,
    lastSeq: 1,
    readSeq: 0,
    unread: 1,
    preview: "",
    previewAuthor: "",
    // Two at a time are as old, and are told apart by their ids.
    activeAtMs: Math.floor(n / 2),
  }));
  const shown: string[] = [];
  let pages = 0;
  for (let cursor: string | undefined | null; cursor !== null; pages++) {
    const page = inboxPage(items, cursor);
    expect(Buffer.byteLength(JSON.stringify(page))).toBeLessThanOrEqual(maxPageBytes);
    shown.push(...page.sessions.map(({ sessionId }) => sessionId));
    cursor = page.next;
  }
  const latestFirst = numbers(500).flatMap((n) => [idOf(998 - 2 * n), idOf(999 - 2 * n)]);
  expect(shown).toEqual(latestFirst);
  expect(pages).toBeGreaterThan(1);
  await send("POST", "/v1/sessions", { sessionId: "of-bea", users: ["bea"] });
  const inbox = await all("/v1/inbox?user=bea", "sessions");
  expect(inbox.found).toMatchObject([{ sessionId: "of-bea" }]);
});

test("what alone takes more than a page comes alone", async () => {
  await using wide = await startTestServer({ maxPayloadBytes: 4 * 1024 * 1024 });
  for (const n of numbers(3)) {
    await wide.flotilla.enqueue("nobody", { n, text: "x".repeat(n === 1 ? 2 * maxPageBytes : 10) });
  }
  const sizes: number[] = [];
  for (let cursor: string | null = ""; cursor !== null;) {
    const page: { tasks: unknown[]; next: string | null } = await wide.flotilla.tasks.list(
      cursor === "" ? {} : { cursor },
    );
    sizes.push(page.tasks.length);
    cursor = page.next;
  }
  expect(sizes).toEqual([1, 1, 1]);
});
