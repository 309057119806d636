import type { Browser, Page } from "playwright-core";
import { agent, task, throttle } from "flotilla";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../../src/base/contract/movable-clock.ts";
import { openStore } from "../../../src/store/open.ts";
import { rows, sql, table } from "../../../src/store/sql.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { type DashboardServer, expectShown, openTab, startDashboard } from "./dashboard-server.ts";

const limitMs = 180_000;
// Names and keys may have slashes, so that `name/key` could be read in several ways.
const at = { name: "api/v1", key: "eu/1" } as const;
const throttlePath = `/throttles/${encodeURIComponent(at.name)}?key=${encodeURIComponent(at.key)}`;
const tenant = "acme";

let browser: Browser;
let server: DashboardServer;
let sessionId: string;
let taskId: string;
let runId: string;
let endCalls = () => {};

beforeAll(async () => {
  browser = await launch();
  const over = new Promise<void>((resolve) => (endCalls = resolve));
  const api = throttle(at.name).key(at.key);
  const held = task("held", { throttle: api }, () => null);
  const caller = agent(
    "caller",
    { deadlineMs: limitMs, idleTimeoutMs: limitMs },
    async function* ({ enqueue, start }) {
      ({ taskId } = await enqueue("mail", { to: "ada" }));
      ({ runId } = await start("order", null));
      yield "I call.";
      await api.run(() => over);
    },
  );
  server = await startDashboard({ use: [held, caller] });
  ({ sessionId } = await server.sessions.create(tenant, { agents: ["caller"], users: ["ada"] }));
  const parts = [{ type: "text", text: "call them" }];
  await server.sessions.send(tenant, sessionId, { author: "ada", parts });
  await until("the turn holds a permit", async () => {
    const { permits } = await server.flotilla.throttles.holders(at.name);
    return permits.length > 0;
  });
}, limitMs);
afterAll(async () => {
  endCalls();
  await browser?.close();
  await server?.[Symbol.asyncDispose]();
});

const pathOf = (page: Page) => {
  const { pathname, search } = new URL(page.url());
  return pathname + search;
};
const expectSession = async (page: Page) => {
  await page.waitForURL(`**/sessions/${sessionId}?tenant=${tenant}`);
  await expectShown(page.getByText("call them").first());
};

describe("a link leads to its subject", { timeout: limitMs }, () => {
  test("of a throttle with the key, from a pod, from a waiting task and from the audit", async () => {
    const tab = await openTab(browser, `${server.url}/pods`);
    const { page } = tab;
    const expectThrottle = async () => {
      await page.getByRole("heading", { level: 1, name: `${at.name} ${at.key}` }).waitFor();
      await expectShown(page.getByText("permit").first());
      expect(pathOf(page)).toBe(throttlePath);
    };
    await page.getByRole("link", { name: `${at.name} (${at.key})` }).click();
    await expectThrottle();

    const pin = `/v1/throttles/${encodeURIComponent(at.name)}/pin`;
    const pinned = await fetch(server.url + pin, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ limit: 1, key: at.key }),
    });
    expect(pinned.status).toBe(200);
    await page.getByRole("link", { name: "Audit", exact: true }).last().click();
    const acts = page.getByRole("list", { name: "Acts, newest first" });
    await acts.getByText("pinned the throttle").waitFor();
    await acts.getByRole("link", { name: `${at.name}/${at.key}` }).click();
    await expectThrottle();

    // The pod may still have a permit for the first, until it has read the pin.
    let waiting = "";
    const throttledBy = async () => {
      const task = waiting === "" ? null : await server.flotilla.tasks.get(waiting);
      if (task?.status === "pending" && task.throttledBy) return task.throttledBy.name;
      if (task?.status !== "pending")
        waiting = (await server.flotilla.enqueue("held", null as never)).taskId;
      return undefined;
    };
    await expect.poll(throttledBy).toBe(at.name);
    await page.goto(`${server.url}/tasks/${waiting}`);
    await page.getByRole("link", { name: `Throttle ${at.name} ${at.key}` }).click();
    await expectThrottle();
    await leave(tab);
  });

  test("of a session with its tenant, from a permit, a task, a run and the audit", async () => {
    const tab = await openTab(browser, server.url + throttlePath);
    const { page } = tab;
    await page.getByText("Who holds a permit").click();
    await page
      .getByRole("region", { name: "Who holds a permit" })
      .getByRole("link", { name: /^caller/ })
      .click();
    await expectSession(page);
    for (const path of [`/tasks/${taskId}`, `/runs/${runId}`]) {
      await page.goto(server.url + path);
      await page.getByText("Started by a turn of session").waitFor();
      await page.getByRole("link", { name: sessionId }).click();
      await expectSession(page);
    }
    const headers = { "Flotilla-Tenant": tenant, "Flotilla-User": "zoe" };
    const changed = await fetch(`${server.url}/v1/sessions/${sessionId}/metadata`, {
      method: "PUT",
      headers: { ...headers, "Content-Type": "application/json" },
      body: JSON.stringify({ metadata: { seen: true } }),
    });
    expect(changed.status).toBe(200);
    await page.goto(`${server.url}/audit?subject=${sessionId}`);
    await page
      .getByRole("list", { name: "Acts, newest first" })
      .getByRole("link", { name: sessionId.slice(-12) })
      .click();
    await expectSession(page);
    // An id alone doesn't tell the tenant, so that a person is asked.
    await page.keyboard.press("Control+k");
    await page.keyboard.type(sessionId);
    await page.getByRole("option", { name: /open this session/ }).click();
    await page.getByText("It was looked for in the tenant default.").waitFor();
    const asked = new RegExp(`/v1/sessions/${sessionId}($|\\?)`);
    await page.getByLabel("Tenant").fill(tenant);
    // The page looks again by itself, and what is typed stays.
    await page.waitForResponse(asked);
    expect(await page.getByLabel("Tenant").inputValue()).toBe(tenant);
    await page.getByRole("button", { name: "Look there" }).click();
    await expectSession(page);
    await leave(tab);
  });

  test("of a pod with its id, from a task and from a throttle", async () => {
    const held = await server.put("gated", null, "claimed");
    const { podId } = server.pod;
    const tab = await openTab(browser, `${server.url}/tasks/${held}`);
    const { page } = tab;
    const find = `**/pods?find=${podId}`;
    await page.getByRole("definition").getByRole("link", { name: podId }).click();
    await page.waitForURL(find);
    // The page of the task, whose rows name the pod too, may still be there.
    await page.getByRole("heading", { level: 1, name: "Pods" }).waitFor();
    await expectShown(page.getByRole("row").filter({ has: page.getByTitle(podId) }));
    await page.goto(server.url + throttlePath);
    await page
      .getByRole("region", { name: "Shares of pods" })
      .getByRole("link", { name: podId.slice(-12) })
      .click();
    await page.waitForURL(find);
    await leave(tab);
  });

  test("of all that a run or a session has started, where there is more than is shown", async () => {
    const many = 130;
    const database = await openStore(`sqlite:${server.path}`);
    const ids = (kind: string) => Array.from({ length: many }, (_, nth) => `${kind}-${nth + 100}`);
    const link = (from: string, what: string) => [
      sql`insert into ${table("task")} (task_id, name, tenant, status)
        select task_id, 'started', ${tenant}, 'completed' from ${rows(
          { task_id: "text" },
          ids(what).map((id) => [id]),
        )} fresh where true`,
      sql`insert into ${table("link")} (from_id, to_id, what)
        select ${from}, task_id, ${what} from ${rows(
          { task_id: "text" },
          ids(what).map((id) => [id]),
        )} fresh where true`,
    ];
    await database.write([...link(sessionId, "session"), ...link(runId, "run")]);
    await database.close();
    const tab = await openTab(browser, `${server.url}/runs/${runId}`);
    const { page } = tab;
    for (const [path, filter] of [
      [`/runs/${runId}`, `run=${runId}`],
      [`/sessions/${sessionId}?tenant=${tenant}`, `session=${sessionId}`],
    ] as const) {
      await page.goto(server.url + path);
      await page.getByRole("link", { name: "all that it has started" }).click();
      await page.waitForURL(`**/tasks?${filter}`);
      await expectShown(page.getByRole("row", { name: /started/ }).first());
    }
    await leave(tab);
  });

  test("of each count of tasks with the list behind it", async () => {
    await server.flotilla.enqueue("mail", null as never, { delayMs: 3_600_000, key: "delayed" });
    const first = await server.flotilla.enqueue("nowhere", null as never, { key: "ready" });
    await server.flotilla.enqueue("nowhere", null as never, { after: [first], key: "after" });
    const tab = await openTab(browser, server.url);
    const { page } = tab;
    const tiles = page.getByRole("region", { name: "Counts", exact: true });
    for (const [tile, state, key] of [
      ["Ready", "ready", "ready"],
      ["Delayed", "delayed", "delayed"],
      ["After others", "waiting", "after"],
    ] as const) {
      await page.goto(server.url);
      await tiles.getByRole("link", { name: new RegExp(`^[1-9]\\d* ?${tile}$`) }).click();
      await page.waitForURL(`**/tasks?state=${state}`);
      const { tasks } = await server.flotilla.tasks.list({ state });
      expect(tasks.map((each) => each.key)).toContain(key);
      await page
        .getByRole("row", { name: /waiting/ })
        .first()
        .waitFor();
      // The heads of the columns are a row.
      await expectSoon(() => page.getByRole("row").count(), tasks.length + 1);
    }
    await page.goto(server.url);
    await page.getByRole("link", { name: "1 After others: nowhere" }).click();
    await page.waitForURL("**/tasks?name=nowhere&state=waiting");
    await expectShown(page.getByRole("button", { name: "Remove after others" }));
    await leave(tab);
  });
});
