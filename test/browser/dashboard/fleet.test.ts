import type { Browser, Page } from "playwright-core";
import { connect, type Flotilla } from "flotilla";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { type Verb, verbsOfRole } from "../../../src/protocol/verbs.ts";
import { createMetrics } from "../../../src/server/metrics/metrics.ts";
import { allSpecs } from "../../../src/server/openapi.ts";
import { type ListeningServer, serve } from "../../../src/server/serve.ts";
import { placeLogs } from "../../../src/sessions/log/placement.ts";
import { type Fleet, openFleet } from "../../crash/fleet.ts";
import type { PodProcess } from "../../crash/pod-handle.ts";
import { postgresStore } from "../../crash/stores.ts";
import { until } from "../../crash/until.ts";
import { launch, leave } from "../browser.ts";
import { expectSoon } from "../expect-soon.ts";
import { builtPage } from "../page-build.ts";
import { expectShown, openTab, type Tab } from "./dashboard-server.ts";

const limitMs = 180_000;
const keys = { admin: "a-key-of-an-administrator", viewer: "a-key-of-a-viewer-of-all" } as const;

let browser: Browser;
let fleet: Fleet;
let flotilla: Flotilla;
let server: ListeningServer;
let pods: PodProcess[];

beforeAll(async () => {
  fleet = await openFleet(() => postgresStore(inject("postgresUrl")));
  // Long enough for a busy machine: only the pod that is killed is to be taken for dead.
  const config = { heartbeatMs: 1_000, deadAfterMs: 8_000, dataDir: false as const };
  const names = ["work", "held", "tells"];
  const [started, launched, dashboardFolder] = await Promise.all([
    Promise.all([1, 2, 3].map(() => fleet.start({ names, config }))),
    launch(),
    builtPage("dashboard"),
  ]);
  pods = started;
  browser = launched;
  flotilla = connect(fleet.store);
  server = await serve({
    flotilla,
    metrics: createMetrics(),
    isStopping: () => false,
    clock: systemClock,
    log: silentLogger,
    dashboardFolder,
    server: {
      host: "127.0.0.1",
      port: 0,
      apiKeys: [
        { key: keys.admin, name: "ops", role: "admin" },
        { key: keys.viewer, name: "look", role: "viewer" },
      ],
    },
  });
}, limitMs);
afterAll(async () => {
  await browser?.close();
  await server?.close();
  await flotilla?.close();
  await fleet?.close();
});

async function openAs(role: keyof typeof keys, path: string): Promise<Tab> {
  const tab = await openTab(browser, server.url + path);
  await tab.page.waitForURL("**/sign-in*");
  await tab.page.getByLabel("Key").fill(keys[role]);
  await tab.page.getByRole("button", { name: "Sign in" }).click();
  await tab.page.getByRole("heading", { level: 1 }).waitFor();
  return tab;
}

async function ask(role: keyof typeof keys, method: string, path: string, body?: unknown) {
  const answer = await fetch(server.url + path, {
    method,
    headers: { Authorization: `Bearer ${keys[role]}`, "Content-Type": "application/json" },
    ...(method !== "GET" && { body: JSON.stringify(body ?? {}) }),
  });
  // oxlint-disable-next-line typescript/no-explicit-any
  return { status: answer.status, body: (await answer.json()) as any };
}

async function failedTasks(count: number): Promise<string[]> {
  const inputs = Array.from({ length: count }, () => ({ ms: 0 }));
  const ids = (await flotilla.enqueueMany("tells", inputs as never)).map(({ taskId }) => taskId);
  await until("all have failed", async () => {
    const states = await flotilla.tasks.states(ids);
    return states.every(({ status }) => status === "failed");
  });
  return ids;
}

async function holderOf(taskId: string): Promise<string | null | undefined> {
  return (await flotilla.tasks.states([taskId]))[0]?.claimedBy;
}

type LogOwner = { logId: number; podId: string | null; term: number };

async function ownerOf(sessionId: string): Promise<LogOwner> {
  return (await ask("admin", "GET", `/v1/sessions/${sessionId}/owner`)).body;
}

/** A session whose log this pod owns and keeps: whoever takes it from the pod hands it back. */
async function sessionOf(podId: string): Promise<string> {
  const ids = Array.from({ length: 32 }, (_, at) => `talk-${at}`);
  for (const sessionId of ids)
    expect((await ask("admin", "POST", "/v1/sessions", { sessionId })).status).toBe(201);
  const [row] = await fleet.sql("select count(*) as logs from flotilla_session_log");
  const places = placeLogs(Number(row!.logs), pods.map((pod) => pod.podId).toSorted());
  return until("the pod owns a log that is its own to keep", async () => {
    for (const sessionId of ids) {
      const owner = await ownerOf(sessionId);
      if (owner.podId === podId && places[owner.logId] === podId) return sessionId;
    }
    return undefined;
  });
}

/** What a page shows of a pod. */
function rowOf(page: Page, podId: string) {
  return page.getByRole("row").filter({ has: page.locator(`[title="${podId}"]`) });
}

describe("a fleet of three pods on Postgres", { timeout: limitMs }, () => {
  test("is seen when a pod is drained, and when it takes work again", async () => {
    const [pod] = pods;
    const tab = await openAs("admin", "/pods");
    for (const { podId } of pods) await rowOf(tab.page, podId).getByText("up").first().waitFor();
    expect((await ask("admin", "POST", `/v1/pods/${pod!.podId}/drain`)).status).toBe(202);
    await rowOf(tab.page, pod!.podId)
      .getByText(/^drained/)
      .first()
      .waitFor();
    expect((await ask("admin", "POST", `/v1/pods/${pod!.podId}/undrain`)).status).toBe(202);
    await expectSoon(
      () =>
        rowOf(tab.page, pod!.podId)
          .getByText(/^drain/)
          .count(),
      0,
    );
    await leave(tab);
  });

  test("shows a redrive that halts, because the error comes back", async () => {
    await failedTasks(4);
    const tab = await openAs("admin", "/failures");
    const { page } = tab;
    await page
      .getByRole("button", { name: /^Redrive/ })
      .first()
      .click();
    await page.getByRole("dialog").getByRole("button", { name: "Redrive" }).click();
    await page.getByText("halted").first().waitFor();
    await expectShown(page.getByText("the error came back: failed, as ordered").first());
    const { redrives } = (await ask("admin", "GET", "/v1/dlq/redrives")).body;
    expect(redrives[0]).toMatchObject({ state: "stopped", taken: 1, failed: 1, succeeded: 0 });
    await leave(tab);
  });

  test("stops an act on 100,000 tasks half-way, and says what was done and what wasn't", async () => {
    const all = 100_000;
    await fleet.sql(
      `insert into flotilla_task (name, parked, run_at)
       select 'outdated', 1, (extract(epoch from now()) * 1000)::bigint + 86400000
       from generate_series(1, ${all})`,
    );
    const tab = await openAs("admin", "/tasks?name=outdated&status=pending");
    const { page } = tab;
    await page
      .getByRole("row", { name: /outdated/ })
      .first()
      .waitFor();
    await page.getByRole("button", { name: "All that match" }).click();
    const dialog = page.getByRole("dialog", { name: "All that match" });
    await dialog.getByRole("button", { name: "Cancel 10,000+" }).click();
    await dialog.getByText(/[1-9][\d,]* of 10,000\+ done/).waitFor();
    await dialog.getByRole("button", { name: "Stop" }).click();
    await dialog.getByText(/of 10,000\+ done, stopped/).waitFor();
    const [bulk] = (await ask("admin", "GET", "/v1/bulk")).body.bulks;
    const { state, done, skipped, refused } = bulk;
    expect({ state, skipped, refused }).toEqual({ state: "stopped", skipped: 0, refused: 0 });
    await dialog.getByText(`${done.toLocaleString("en-US")} of 10,000+ done, stopped`).waitFor();
    expect(done).toBeGreaterThan(0);
    expect(done).toBeLessThan(all);
    const stored = await fleet.sql(
      "select status, count(*) as tasks from flotilla_task where name = 'outdated' group by status",
    );
    const counts = Object.fromEntries(stored.map(({ status, tasks }) => [status, Number(tasks)]));
    expect(counts).toEqual({ cancelled: done, pending: all - done });
    await page.reload();
    await expectShown(page.getByRole("row", { name: /outdated/ }).first());
    await leave(tab);
  });

  test("lets a viewer look everywhere and act nowhere", async () => {
    const [taskId] = await failedTasks(1);
    // No pod has its flow, so that it stays as it is.
    const { runId } = await flotilla.runs.start("order", null as never);
    const paths = [
      `/tasks/${taskId}`,
      "/",
      "/tasks",
      "/queues",
      "/schedules",
      "/failures",
      "/flows",
      "/flows/order",
      `/runs/${runId}`,
      "/throttles",
      "/sessions",
      "/approvals",
      "/pods",
      "/audit",
    ];
    const acts =
      /^(Approve|Cancel|Compact|Delete|Deny|Discard|Drain|Fire|Ignore|Pause|Pin|Redrive|Regenerate|Reopen|Resolve|Resume|Retry|Run|Send|Set|Signal|Stop|Undrain|Unpin)\b/;
    const shownActs = async (page: Page) => {
      await page.getByRole("heading", { level: 1 }).waitFor();
      await expectSoon(() => page.locator(".loading").count(), 0);
      return page.getByRole("button", { name: acts }).allTextContents();
    };
    const admin = await openAs("admin", paths[0]!);
    expect(await shownActs(admin.page)).toContain("Retry");
    await admin.page.goto(`${server.url}/runs/${runId}`);
    expect(await shownActs(admin.page)).toContain("Cancel");
    await leave(admin);
    const viewer = await openAs("viewer", paths[0]!);
    for (const path of paths) {
      await viewer.page.goto(server.url + path);
      expect([path, await shownActs(viewer.page)]).toEqual([path, []]);
      expect([path, await viewer.page.getByRole("checkbox").count()]).toEqual([path, 0]);
    }
    await leave(viewer);
    const mayLook: readonly Verb[] = verbsOfRole.viewer;
    const forbidden = allSpecs.filter(
      (spec) =>
        spec.method !== "get" &&
        !spec.open &&
        [spec.verb, spec.or].every((verb) => verb === undefined || !mayLook.includes(verb)),
    );
    expect(forbidden.length).toBeGreaterThan(20);
    for (const { method, path } of forbidden) {
      const given = path.replaceAll(/\{\w+\}/g, "none");
      const { status } = await ask("viewer", method.toUpperCase(), given);
      expect([method, path, status]).toEqual([method, path, 403]);
    }
  });

  test("is seen when a pod is killed, and others go on with its work and its sessions", async () => {
    const { taskId } = await flotilla.enqueue("held", { gate: "never" } as never);
    const holder = await until("a pod holds it", async () => {
      const held = await holderOf(taskId);
      return pods.find(({ podId }) => podId === held);
    });
    const sessionId = await sessionOf(holder.podId);
    const tab = await openAs("admin", "/pods");
    await rowOf(tab.page, holder.podId).getByText("up").first().waitFor();
    const looking = await openAs("admin", `/sessions/${sessionId}`);
    const facts = looking.page.getByRole("definition").filter({ hasText: /, log \d+, term/ });
    await facts.getByTitle(holder.podId).waitFor();
    const takeovers = looking.page.getByRole("status", { name: "Takeovers" });
    expect(await takeovers.getByText("taken over").count()).toBe(0);
    // What comes from here on comes by the stream: no read, no reload.
    await looking.page.route("**/v1/sessions/*/owner", (route) => route.abort());
    await holder.kill();
    await rowOf(tab.page, holder.podId).getByText("down").first().waitFor();
    const rest = pods.filter((each) => each !== holder);
    for (const { podId } of rest) await rowOf(tab.page, podId).getByText("up").first().waitFor();
    const heir = await until("another pod holds it", async () => {
      const held = await holderOf(taskId);
      return rest.find(({ podId }) => podId === held);
    });
    await tab.page.goto(`${server.url}/tasks/${taskId}`);
    await expectShown(tab.page.getByText(heir.podId).first());
    await takeovers.getByText("taken over").first().waitFor();
    await takeovers.getByTitle(holder.podId).first().waitFor();
    // Who took it first may hand it over to the pod whose turn it is.
    const owner = await until("the page shows who owns the log", async () => {
      const { podId, term } = await ownerOf(sessionId);
      const isHeir = rest.some((each) => each.podId === podId);
      const isShown =
        isHeir &&
        (await takeovers.getByTitle(podId!).count()) > 0 &&
        (await facts.getByTitle(podId!).count()) > 0 &&
        (await facts.getByText(new RegExp(`term ${term}, since`)).count()) > 0;
      return isShown ? podId! : undefined;
    });
    await facts.getByRole("link").click();
    await expectShown(rowOf(looking.page, owner));
    await leave(looking);
    await leave(tab);
  });
});
