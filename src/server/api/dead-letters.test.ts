import { afterEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { abort } from "../../base/errors.ts";
import { task } from "../../tasks/task.ts";
import { type Pod } from "../../runtime/pod.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { appHarness, openTestStore } from "../contract/app-harness.ts";

const testStore = openTestStore();
let started: Pod | undefined;
afterEach(() => started?.stop());

let mended = false;
const flaky = task("flaky", { attempts: 1 }, ({ input }) => {
  if (!mended) throw abort(`no answer for ${JSON.stringify(input)}`);
  return 1;
});

const server = (deadLetters = () => testStore.flotilla.deadLetters) =>
  appHarness(testStore.flotilla, { deadLetters });

describe("failed tasks over HTTP", () => {
  test("are grouped and listed, by the leader's view and without it, and redriven and given up", async () => {
    const pod = await startPod({
      store: testStore.store,
      use: [flaky],
      log: silentLogger,
      heartbeatMs: 50,
      deadAfterMs: 30_000,
    });
    started = pod;
    const { get, post } = server();
    const made = await pod.enqueueMany("flaky", [1, 2, 3]);
    for (const { taskId } of made) await pod.tasks.settled(taskId);
    await until("its lead", () => pod.leader === pod.podId);

    for (const deadLetters of [() => testStore.flotilla.deadLetters, () => pod.deadLetters]) {
      const found = await server(deadLetters).get("/v1/dlq/groups?name=flaky&limit=5");
      expect(found).toMatchObject({ status: 200, body: { count: 1, tasks: 3 } });
      const [{ group }] = found.body.groups;
      const page = await server(deadLetters).get(`/v1/dlq/tasks?group=${group}&limit=2`);
      const rest = await server(deadLetters).get(`/v1/dlq/tasks?cursor=${page.body.next}`);
      expect([...page.body.tasks, ...rest.body.tasks]).toMatchObject(
        Array.from({ length: 3 }, () => ({ name: "flaky", code: "aborted", group })),
      );
    }

    const begun = await post("/v1/dlq/redrives", { name: "flaky", maxStep: 2 });
    expect(begun).toMatchObject({ status: 202, body: { state: "running", maxStep: 2, taken: 0 } });
    const { redriveId } = begun.body;
    const ended = await testStore.flotilla.deadLetters.followRedrive(redriveId);
    expect(ended).toMatchObject({ state: "stopped", taken: 1, failed: 1 });
    expect((await get(`/v1/dlq/redrives/${redriveId}`)).body).toEqual(ended);
    expect((await get("/v1/dlq/redrives?limit=1")).body).toEqual({ redrives: [ended], next: null });
    expect(await post(`/v1/dlq/redrives/${redriveId}/cancel`)).toMatchObject({ status: 409 });

    mended = true;
    const { taskId } = made[0]!;
    const one = await post("/v1/dlq/redrives", { taskId });
    await testStore.flotilla.deadLetters.followRedrive(one.body.redriveId);
    expect(await testStore.flotilla.tasks.get(taskId)).toMatchObject({ status: "completed" });
    expect(await post("/v1/dlq/redrives", { taskId })).toMatchObject({
      status: 409,
      body: { error: { code: "conflict", details: { status: "completed" } } },
    });
    expect((await post("/v1/dlq/discard", { all: true })).body).toEqual({ discarded: 2 });
    expect((await get("/v1/dlq/groups")).body).toEqual({
      groups: [],
      count: 0,
      tasks: 0,
      ignored: { groups: 0, tasks: 0 },
    });
  });

  test.each([
    ["GET", "/v1/dlq/groups?limit=0", undefined, 400, "limit must be"],
    ["GET", "/v1/dlq/groups?nmae=x", undefined, 400, "did you mean `name`?"],
    ["GET", "/v1/dlq/tasks?cursor=x", undefined, 400, "cursor must be"],
    ["GET", "/v1/dlq/redrives/x", undefined, 404, "there is no redrive x"],
    ["POST", "/v1/dlq/redrives/x/cancel", undefined, 404, "there is no redrive x"],
    ["POST", "/v1/dlq/redrives", {}, 400, "none was given"],
    ["POST", "/v1/dlq/redrives", { all: true, maxStep: "2" }, 400, "maxStep must be"],
    ["POST", "/v1/dlq/redrives", { taskId: "x" }, 404, "there is no task x"],
    ["POST", "/v1/dlq/redrives", [], 400, "the body must be an object"],
    ["POST", "/v1/dlq/discard", { all: true, sure: true }, 400, "unknown option `sure`"],
    ["POST", "/v1/dlq/discard", { all: "yes" }, 400, "all must be true"],
  ])("%s %s with %j is refused", async (method, path, body, status, message) => {
    const { get, post } = server();
    const answer = await (method === "GET" ? get(path) : post(path, body));
    expect(answer).toMatchObject({
      status,
      body: { error: { message: expect.stringContaining(message) } },
    });
  });
});
