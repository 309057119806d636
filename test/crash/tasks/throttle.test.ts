import { type ChildProcess, spawn } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { connect } from "flotilla";
import { expect, inject, onTestFinished, test } from "vitest";
import { built } from "../../built.ts";
import { startedPod } from "../pod-handle.ts";
import { postgresStore } from "../stores.ts";
import { startApi } from "./throttled-api.ts";
import type { ThrottledPodSpec } from "./throttle-process.ts";
import { pauseFor, until } from "../until.ts";

const script = fileURLToPath(new URL("./throttle-process.ts", import.meta.url));
const capacity = 20;
// What a pod that is stopped holds goes to others after these two and a grace, so they are short here.
const leaseMs = 2_000;
const callTimeoutMs = 1_500;
// So long that pods on a machine with other work to do still fill the server.
const callMs = 300;

test("four pods learn together what a server takes, and keep to it through kills, pauses and newcomers", async () => {
  const api = await startApi({ capacity, callMs });
  const store = await postgresStore(inject("postgresUrl"));
  const flotilla = connect(store.url);
  const children = new Set<ChildProcess>();
  let over = false;
  let loading: Promise<void> | undefined;
  onTestFinished(async () => {
    over = true;
    for (const child of children) child.kill("SIGKILL");
    await loading?.catch(() => {});
    await flotilla.close();
    await store.remove();
    await api.close();
  });
  await flotilla.tasks.stats();

  const bounds: number[] = [];
  const start = async () => {
    const spec: ThrottledPodSpec = { store: store.url, url: api.url, leaseMs, callTimeoutMs };
    const args = [built.program(script), JSON.stringify(spec)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    children.add(child);
    child.on("message", (message: { bound?: number }) => {
      if (message.bound !== undefined) bounds.push(message.bound);
    });
    return startedPod(child, {
      store: store.url,
      faults: [],
      writable: store.writable,
      onExit: () => children.delete(child),
    });
  };
  const throttleNow = async () => {
    const found = await flotilla.throttles.get("api");
    if (found) bounds.push(found.bound);
    return found;
  };
  const shareOf = async (podId: string) =>
    (await throttleNow())?.pods.find((pod) => pod.podId === podId)?.share ?? 0;

  // There is always more to do than the server takes, until the end.
  let enqueued = 0;
  loading = (async () => {
    while (!over) {
      const { pending } = (await flotilla.tasks.stats({ exact: true })).byStatus;
      if (pending < 100) {
        await flotilla.enqueueMany(
          "call",
          Array.from({ length: 200 }, () => null),
        );
        enqueued += 200;
      }
      await pauseFor(250);
    }
  })();

  const [first, second, third] = await Promise.all([start(), start(), start(), start()]);
  // It has met the server's wall, and has learned from that.
  const adapted = async () => {
    const { bound = 0 } = (await throttleNow()) ?? {};
    return api.seen().refused > 0 && api.calmMs() > 1_500 && bound >= 12 && bound <= capacity + 5;
  };
  await until("the server's capacity is known", adapted, 150_000);
  const search = api.seen();

  // From here on the pods know what it takes, and must keep to it whatever happens.
  api.beginAnew();
  bounds.length = 0;
  const inFlightOfDead = api.inFlightOf(first!.podId);
  await first!.kill();
  const newcomer = await start();
  await until("the newcomer calls", () => api.answersTo(newcomer.podId) > 20);
  await until(
    "what the dead pod held is given to others",
    async () => (await shareOf(first!.podId)) === 0,
  );

  await second!.pauseOutsideWrites();
  await until(
    "what the stopped pod held is given to others",
    async () => (await shareOf(second!.podId)) === 0,
  );
  const answersBefore = api.answersTo(second!.podId);
  second!.resume();
  await until("it calls again", () => api.answersTo(second!.podId) > answersBefore + 20);
  expect(await third!.terminate()).toEqual({ code: 0, signal: null });

  over = true;
  await loading;
  await until(
    "all tasks are done",
    async () => (await flotilla.tasks.stats({ exact: true })).byStatus.completed === enqueued,
  );
  const seen = api.seen();
  // A process that is known to be gone is followed at once, while the server still works for it.
  expect(seen.peak).toBeLessThanOrEqual(Math.max(...bounds) + inFlightOfDead);
  expect(seen.refused / seen.calls).toBeLessThan(0.05);
  expect(search.refused / search.calls).toBeLessThan(0.2);
}, 300_000);
