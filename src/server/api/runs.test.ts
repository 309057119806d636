import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { systemClock } from "../../base/clock.ts";
import { minuteMs } from "../../base/durations.ts";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { flow } from "../../flows/flow.ts";
import { startOf } from "../../series/fold.ts";
import { storeCounts } from "../../series/sql.ts";
import { openStore } from "../../store/open.ts";
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

  test("one flow says where its runs stand by version, and how long each part took", async () => {
    await startWith(order, parcel);
    const { runId } = (await ask("POST", "/v1/runs", { flow: "order", input: book })).body;
    await isDoing(runId, "waiting_for_signal");
    await ask("POST", "/v1/runs", { flow: "elsewhere" });
    const at = startOf(systemClock.now(), minuteMs);
    const run = { sumMs: 300, buckets: [0, 0, 0, 0, 0, 0, 0, 3] };
    const counts = JSON.stringify({ counts: { completed: 2, retry: 1 }, run });
    const database = await openStore(testStore.store);
    await database.write(
      storeCounts(
        ["flow:order reserve", "flow:order gone", "flow:elsewhere reserve"].map((subject) => {
          return { span: minuteMs, at, subject, pod: "pod-1", counts };
        }),
      ),
    );
    await database.close();
    const { body } = await ask("GET", "/v1/flows/order");
    expect(body.flow).toMatchObject({
      flow: "order",
      machine: { parts: [{ does: "runs" }, { does: "waits for a signal" }, {}, {}] },
      workers: [{ version: 2, pods: 1 }],
      places: { approve: { waiting: 1 } },
      placesByVersion: { 2: { approve: { waiting: 1 } } },
      stuck: [],
    });
    expect(body.times).toEqual([
      {
        at: "reserve",
        outcomes: { completed: 2, retry: 1 },
        p50Ms: expect.any(Number),
        p95Ms: expect.any(Number),
      },
    ]);
    // Of another flow's runs it says nothing, though they are in the same indexes.
    expect(await ask("GET", "/v1/flows/elsewhere")).toMatchObject({
      body: { flow: { machine: null, stuck: [{ flow: "elsewhere", why: "no_worker", runs: 1 }] } },
    });
    expect(await ask("GET", "/v1/flows/none%2Fhere")).toMatchObject({
      status: 404,
      body: { error: { message: expect.stringContaining("there is no flow none/here") } },
    });
    expect(await ask("GET", `/v1/flows/${"x".repeat(300)}`)).toMatchObject({ status: 400 });
  });

  test("a machine that this server doesn't have is told by a pod that does", async () => {
    await startWith(order, parcel);
    const elsewhere = appHarness(testStore.flotilla, {});
    const told = (path: string) => elsewhere.send("GET", `/v1/flows/${path}`);
    expect(await told("order")).toMatchObject({ body: { flow: { machine: null } } });
    // A slow machine may take longer than one question waits.
    const { machine } = await until("the answer", async () => {
      const { body } = await told("order/machine");
      return body.machine !== null && body;
    });
    expect(machine).toMatchObject({
      version: 2,
      queue: { name: "shop", limit: 3 },
      parts: [{ name: "reserve" }, { name: "approve" }, { name: "parcels" }, { kind: "finally" }],
    });
    expect(await told("order/machine?version=7")).toMatchObject({ body: { machine: null } });
    expect(await told("constructor/machine")).toMatchObject({ body: { machine: null } });
    const own = (await ask("GET", "/v1/flows/order/machine?version=2")).body;
    expect(own).toEqual({ machine });
  });

  test("runs are listed by the version that advanced them last", async () => {
    await startWith(order, parcel);
    const { runId } = (await ask("POST", "/v1/runs", { flow: "order", input: book })).body;
    await isDoing(runId, "waiting_for_signal");
    const idsOf = async (query: string) => {
      const { body } = await ask("GET", `/v1/runs?flow=order&${query}`);
      return body.runs.map((each: { runId: string }) => each.runId);
    };
    expect(await idsOf("version=2")).toEqual([runId]);
    expect(await idsOf("version=1")).toEqual([]);
    expect(await idsOf("version=1&status=open")).toEqual([]);
    expect(await ask("GET", "/v1/runs?version=two")).toMatchObject({ status: 400 });
  });

  test("the history of a run is read from its end as well, page by page", async () => {
    await startWith(order, parcel);
    const { runId } = (await ask("POST", "/v1/runs", { flow: "order", input: book })).body;
    await isDoing(runId, "waiting_for_signal");
    const page = async (query: string) =>
      (await ask("GET", `/v1/runs/${runId}/history?${query}`)).body;
    const all = await page("limit=1000");
    const numbers = all.history.map(({ seq }: { seq: number }) => seq);
    expect(numbers.length).toBeGreaterThanOrEqual(3);
    expect(all).toMatchObject({ next: null, previous: null });
    const newest = await page("before=2147483647&limit=2");
    expect(newest.history).toEqual(all.history.slice(-2));
    expect(newest).toMatchObject({ next: null, previous: numbers.at(-2) });
    const earlier = await page(`before=${newest.previous}&limit=1000`);
    expect(earlier.history).toEqual(all.history.slice(0, -2));
    expect(earlier).toMatchObject({ next: numbers.at(-3), previous: null });
    const both = await ask("GET", `/v1/runs/${runId}/history?before=5&after=1`);
    expect(both.body.error.message).toContain("can't be combined");
  });
});
