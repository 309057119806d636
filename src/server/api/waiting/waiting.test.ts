import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { beat } from "../../../pods/sql.ts";
import type { Database } from "../../../store/database.ts";
import { openStore } from "../../../store/open.ts";
import { sql, table } from "../../../store/sql.ts";
import { parked } from "../../../tasks/sql/task-state.ts";
import { storeThrottle } from "../../../throttles/contract/shares-stored.ts";
import { appHarness, openTestStore } from "../../contract/app-harness.ts";

const testStore = openTestStore();
const { flotilla } = testStore;
let database: Database;
beforeAll(async () => {
  await flotilla.tasks.stats();
  database = await openStore(testStore.store);
});
afterAll(() => database.close());

const viewer = "a-key-of-a-viewer-of-all";
const ofAcme = "a-key-of-a-viewer-of-acme";
const app = appHarness(flotilla, {
  apiKeys: [
    { key: viewer, role: "viewer" },
    { key: ofAcme, role: "viewer", tenant: "acme" },
  ],
});
const get = (path: string, key = viewer) => app.get(path, { Authorization: `Bearer ${key}` });

describe("why a task waits, over HTTP", () => {
  test("is told to viewers without a word of what users put in", async () => {
    const secret = "canary-of-a-payload";
    const { taskId } = await flotilla.enqueue("mail", { secret });
    await database.write([
      sql`update ${table("task")} set parked = ${parked.setAside},
        set_aside = ${JSON.stringify({ reason: "step_changed", message: secret })}
        where task_id = ${taskId}`,
    ]);
    const { status, body } = await get(`/v1/tasks/${taskId}/why`);
    expect(status).toBe(200);
    expect(body.verdict).toMatchObject({
      taskId,
      name: "mail",
      status: "pending",
      reasons: [{ code: "set_aside" }, { code: "no_worker" }],
    });
    expect(JSON.stringify(body)).not.toContain(secret);
    expect(body.verdict.reasons[0].evidence.message).toMatch(/^text, \d+ characters$/);
  });

  test("answers a caller of one tenant for that tenant alone", async () => {
    const { taskId } = await flotilla.enqueue("mail", 1, { tenant: "acme" });
    const { taskId: others } = await flotilla.enqueue("mail", 1, { tenant: "zeta" });
    expect(await get(`/v1/tasks/${taskId}/why`, ofAcme)).toMatchObject({ status: 200 });
    expect(await get(`/v1/tasks/${others}/why`, ofAcme)).toMatchObject({ status: 404 });
    expect(await get("/v1/tasks/none/why")).toMatchObject({ status: 404 });
  });

  test("hides secrets in what operators and users have named", async () => {
    await database.write([beat("pod-1", JSON.stringify({ names: ["mail"] }), 0)]);
    const key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789";
    await flotilla.tasks.limits.set(`key/mail/${key}`, 1);
    const { taskId: holder } = await flotilla.enqueue("mail", 1, { concurrencyKey: key });
    const { taskId } = await flotilla.enqueue("mail", 1, { concurrencyKey: key });
    await database.write([
      sql`update ${table("task")} set status = 'claimed', claimed_by = 'pod-1'
        where task_id = ${holder}`,
    ]);
    const { body } = await get(`/v1/tasks/${taskId}/why`);
    expect(body.verdict.reasons[0]).toMatchObject({
      code: "limit_reached",
      evidence: { running: 1, holders: [{ taskId: holder, podId: "pod-1" }] },
    });
    expect(JSON.stringify(body)).not.toContain(key);
  });
});

describe("what else is told of what waits, over HTTP", () => {
  test("permits are asked of live pods, and those that don't answer are named", async () => {
    expect(await get("/v1/throttles/api/holders")).toEqual({
      status: 200,
      body: { permits: [], inFlight: 0, answered: [], unanswered: [] },
    });
    expect(await get("/v1/throttles/api/holders?limit=0")).toMatchObject({ status: 400 });
  });

  test("changes of a bound are listed with their causes", async () => {
    await storeThrottle(database, { name: "api", key: "", bound: 4 });
    await flotilla.throttles.pin("api", 9);
    const { body } = await get("/v1/throttles/api/events");
    expect(body).toMatchObject({
      events: [{ cause: "pinned", before: 4, bound: 9, by: "program" }],
      next: null,
    });
    expect(await get("/v1/throttles/api/events?cursor=x")).toMatchObject({ status: 400 });
  });

  test("firings of a schedule are listed with their lag", async () => {
    await flotilla.schedules.put("nightly", { name: "mail", everyMs: 86_400_000 });
    const { taskId } = await flotilla.schedules.fire("nightly");
    expect(await get("/v1/schedules/nightly/firings")).toMatchObject({
      status: 200,
      body: { firings: [{ taskId, status: "pending", lagMs: null }], next: null },
    });
    expect(await get("/v1/schedules/none/firings")).toMatchObject({ status: 404 });
  });

  test("runs and tasks that wait for a signal are listed, to a tenant its own", async () => {
    const wait = (taskId: string, tenant: string) => sql`
      insert into ${table("task")} (task_id, tenant, name, parked, awaits, payload)
      values (${taskId}, ${tenant}, 'order', ${parked.untilSignal}, 'approve', '"canary"')`;
    await database.write([wait("t-acme", "acme"), wait("t-zeta", "zeta")]);
    const idsOf = ({ body }: { body: { approvals: { id: string }[] } }) =>
      body.approvals.map(({ id }) => id);
    const all = await get("/v1/approvals");
    expect(idsOf(all)).toEqual(["t-acme", "t-zeta"]);
    expect(JSON.stringify(all.body)).not.toContain("canary");
    expect(idsOf(await get("/v1/approvals", ofAcme))).toEqual(["t-acme"]);
    expect(idsOf(await get("/v1/approvals?tenant=zeta"))).toEqual(["t-zeta"]);
    expect(await get("/v1/approvals?tenant=zeta", ofAcme)).toMatchObject({ status: 403 });
  });
});
