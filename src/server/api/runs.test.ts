import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { flow } from "../../flows/flow.ts";
import { task } from "../../tasks/task.ts";
import { machinesOf } from "../../runtime/flows.ts";
import { handlersByName } from "../../runtime/handlers.ts";
import type { Pod } from "../../runtime/pod.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { appHarness, openTestStore } from "../contract/app-harness.ts";

const parcel = flow("parcel", { version: 1 })
  .to("wrap", () => ({ wrapped: true }))
  .end();
const order = flow("order", {
  version: 2,
  input: z.object({ item: z.string() }),
  queue: { name: "shop", limit: 3 },
})
  .to("reserve", ({ input }) => ({ reserved: input.item }))
  .signal("approve", { schema: z.object({ by: z.string() }) })
  .children("parcels", () => [[parcel, 1]])
  .finally(() => {})
  .end();
const mail = task("mail", {}, () => {});
const use = [order, parcel, mail];

const testStore = openTestStore();
const pods: Pod[] = [];
afterEach(async () => {
  for (const pod of pods.splice(0)) await pod.stop();
});

const ask = (method: string, path: string, body?: unknown) =>
  appHarness(testStore.flotilla, {
    contracts: handlersByName(use),
    machines: machinesOf(use),
  }).send(method, path, body);
const startWith = async (...flows: Parameters<typeof machinesOf>[0]) => {
  const { store } = testStore;
  pods.push(await startPod({ store, use: flows, log: silentLogger, dataDir: false }));
};
const isDoing = (runId: string, type: string) =>
  until(type, async () => (await testStore.flotilla.runs.get(runId))?.doing?.type === type);
const hasEnded = (runId: string) =>
  until("its end", async () => (await testStore.flotilla.runs.get(runId))?.status !== "open");

const book = { item: "book" };

describe("runs over HTTP", () => {
  test("are started, shown where they stand, signalled, and their history read", async () => {
    await startWith(...use);
    const made = await ask("POST", "/v1/runs", { flow: "order", input: book });
    expect(made).toMatchObject({ status: 201, body: { created: true } });
    const { runId } = made.body;
    await isDoing(runId, "waiting_for_signal");
    expect(await ask("GET", `/v1/runs/${runId}`)).toMatchObject({
      status: 200,
      body: {
        run: {
          runId,
          flow: "order",
          version: 2,
          at: "approve",
          attempt: 1,
          state: { reserved: "book" },
          status: "open",
          doing: { type: "waiting_for_signal", name: "approve", untilMs: null },
          noWorker: false,
        },
      },
    });
    const sent = await ask("POST", `/v1/runs/${runId}/signals`, {
      name: "approve",
      payload: { by: "ada" },
      id: "one",
    });
    expect(sent).toEqual({ status: 202, body: { status: "sent" } });
    await hasEnded(runId);
    expect((await ask("GET", `/v1/runs/${runId}`)).body.run).toMatchObject({
      status: "completed",
      doing: null,
      output: { reserved: "book", approve: { by: "ada" }, parcels: [{ wrapped: true }] },
    });
    const types = (entries: { type: string }[]) => entries.map(({ type }) => type);
    const whole = (await ask("GET", `/v1/runs/${runId}/history`)).body;
    expect(types(whole.history)).toContain("finish");
    expect(whole.next).toBe(null);
    const first = (await ask("GET", `/v1/runs/${runId}/history?limit=3`)).body;
    expect(first.history).toEqual(whole.history.slice(0, 3));
    const rest = await ask("GET", `/v1/runs/${runId}/history?after=${first.next}`);
    expect(rest.body.history).toEqual(whole.history.slice(3));
    const children = (await ask("GET", `/v1/runs?parent=${runId}`)).body.runs;
    expect(children).toMatchObject([{ flow: "parcel", parentId: runId, status: "completed" }]);
  });

  test("of a queue's flow count among that queue", async () => {
    const { runId } = (await ask("POST", "/v1/runs", { flow: "order", input: book })).body;
    expect(await testStore.flotilla.tasks.get(runId)).toMatchObject({ scope: "queue/shop" });
  });

  test("with a key are started once", async () => {
    const body = { flow: "order", input: book, options: { key: "k" } };
    const { runId } = (await ask("POST", "/v1/runs", body)).body;
    expect(await ask("POST", "/v1/runs", body)).toEqual({
      status: 200,
      body: { runId, created: false, noWorker: expect.any(Boolean) },
    });
    const options = { key: "k", onDuplicate: "reject" };
    expect(await ask("POST", "/v1/runs", { ...body, options })).toMatchObject({
      status: 409,
      body: { error: { code: "duplicate_key" } },
    });
  });

  test("are listed by flow and status, page by page", async () => {
    const ids: string[] = [];
    for (const item of ["a", "b", "c"]) {
      ids.push((await ask("POST", "/v1/runs", { flow: "order", input: { item } })).body.runId);
    }
    await ask("POST", "/v1/runs", { flow: "parcel" });
    await ask("POST", "/v1/tasks", { name: "mail" });
    const first = (await ask("GET", "/v1/runs?flow=order&status=open&limit=2")).body;
    const second = (
      await ask("GET", `/v1/runs?flow=order&status=open&limit=2&cursor=${first.next}`)
    ).body;
    const listed = [...first.runs, ...second.runs].map(({ runId }) => runId);
    expect(listed).toEqual(ids.toReversed());
    expect(second.next).toBe(null);
    expect((await ask("GET", "/v1/runs?status=failed")).body.runs).toEqual([]);
    expect((await ask("GET", "/v1/runs?setAside=true")).body.runs).toEqual([]);
  });

  test("are cancelled, and go on from where they stopped", async () => {
    await startWith(...use);
    const { runId } = (await ask("POST", "/v1/runs", { flow: "order", input: book })).body;
    await isDoing(runId, "waiting_for_signal");
    expect(await ask("POST", `/v1/runs/${runId}/resume`, {})).toMatchObject({ status: 409 });
    expect(await ask("POST", `/v1/runs/${runId}/cancel`)).toEqual({
      status: 202,
      body: { status: "cancelling" },
    });
    await hasEnded(runId);
    expect(await ask("POST", `/v1/runs/${runId}/cancel`)).toEqual({
      status: 200,
      body: { status: "cancelled" },
    });
    expect(await ask("POST", `/v1/runs/${runId}/signals`, { name: "approve" })).toMatchObject({
      status: 409,
      body: { error: { code: "conflict" } },
    });
    expect(await ask("POST", `/v1/runs/${runId}/resume`, {})).toEqual({
      status: 200,
      body: { status: "open" },
    });
    await isDoing(runId, "waiting_for_signal");
  });

  test("keep signals until they use them", async () => {
    const { runId } = (await ask("POST", "/v1/runs", { flow: "order", input: book })).body;
    for (const id of ["one", "two", "one"]) {
      await ask("POST", `/v1/runs/${runId}/signals`, { name: "approve", payload: 1, id });
    }
    const { signals } = (await ask("GET", `/v1/runs/${runId}/signals`)).body;
    expect(signals).toMatchObject([
      { signalId: "one", name: "approve" },
      { signalId: "two", name: "approve" },
    ]);
  });

  test.each<[string, string, unknown, number, string]>([
    ["a flow", "/v1/runs", { flow: "no spaces" }, 400, "invalid_option"],
    ["no flow", "/v1/runs", { input: book }, 400, "invalid_input"],
    ["an input", "/v1/runs", { flow: "order", input: { item: 5 } }, 400, "invalid_input"],
    ["a task", "/v1/runs", { flow: "mail" }, 400, "invalid_option"],
    ["an option", "/v1/runs", { flow: "order", options: { attempts: 3 } }, 400, "invalid_option"],
    ["a field", "/v1/runs", { flow: "order", inptu: 1 }, 400, "invalid_option"],
    ["a signal", "/v1/runs/none/signals", { name: "-" }, 400, "invalid_option"],
    ["a version", "/v1/runs/none/resume", { as: 0 }, 400, "invalid_option"],
    [
      "a large signal",
      "/v1/runs/none/signals",
      { name: "approve", payload: "x".repeat(300_000) },
      413,
      "payload_too_large",
    ],
  ])("refuse %s that makes no sense, and store nothing", async (_, path, body, status, code) => {
    expect(await ask("POST", path, body)).toMatchObject({ status, body: { error: { code } } });
    expect((await ask("GET", "/v1/runs")).body.runs).toEqual([]);
  });

  test.each([
    ["GET", ""],
    ["GET", "/history"],
    ["GET", "/signals"],
    ["POST", "/cancel"],
  ])("%s /v1/runs/none%s finds nothing", async (method, rest) => {
    const { body } = await ask("POST", "/v1/tasks", { name: "mail" });
    for (const id of ["none", body.taskId]) {
      expect(await ask(method, `/v1/runs/${id}${rest}`)).toMatchObject({ status: 404 });
    }
  });

  test("of a task there are none, and the error names the right route", async () => {
    const { body } = await ask("POST", "/v1/runs", { flow: "mail" });
    expect(body.error.message).toBe("mail is a task and no flow: POST it to /v1/tasks");
  });

  test("attempts of a run are refused where tasks are enqueued, too", async () => {
    const body = { name: "order", input: book, options: { attempts: 3 } };
    const refused = await ask("POST", "/v1/tasks", body);
    expect(refused.body.error.message).toContain("give `attempts` to its transitions instead");
    const bulk = await ask("POST", "/v1/tasks/bulk", [{ name: "order", input: book }]);
    const [{ taskId }] = bulk.body.outcomes;
    expect(await ask("GET", `/v1/runs/${taskId}`)).toMatchObject({ status: 200 });
  });
});

describe("flows over HTTP", () => {
  test("are shown with their parts, their workers, and how many runs stand where", async () => {
    await startWith(order, parcel);
    const { runId } = (await ask("POST", "/v1/runs", { flow: "order", input: book })).body;
    await isDoing(runId, "waiting_for_signal");
    await ask("POST", "/v1/runs", { flow: "elsewhere" });
    const { flows } = (await ask("GET", "/v1/flows")).body;
    expect(flows.map(({ flow: name }: { flow: string }) => name)).toEqual([
      "elsewhere",
      "order",
      "parcel",
    ]);
    expect(flows[0]).toMatchObject({
      machine: null,
      workers: [],
      places: { start: { ready: 1 } },
      stuck: [{ why: "no_worker", runs: 1, at: null }],
    });
    expect(flows[1]).toMatchObject({
      machine: {
        version: 2,
        queue: { name: "shop", limit: 3 },
        parts: [
          { name: "reserve", kind: "work" },
          { name: "approve", kind: "signal" },
          { name: "parcels", kind: "children" },
          { name: "finally", kind: "finally" },
        ],
      },
      workers: [{ version: 2, pods: 1 }],
      places: { approve: { waiting: 1 } },
      openByVersion: { 2: 1 },
      stuck: [],
    });
  });
});
