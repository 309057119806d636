import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import { temporaryFile } from "../store/contract/kinds.ts";
import { openStore } from "../store/open.ts";
import { createVitalSigns, startHeartbeatThread } from "./heartbeat-thread.ts";
import type { Observation } from "./liveness.ts";

let place: ReturnType<typeof temporaryFile>;
let db: DatabaseSync;
beforeEach(async () => {
  place = temporaryFile();
  await (await openStore(place.path)).close();
  db = new DatabaseSync(place.path, { timeout: 30_000 });
});
afterEach(async () => {
  db.close();
  await place.remove();
});

const podRow = (podId: string) =>
  db.prepare("select * from flotilla_pod where pod_id = ?").get(podId);
const beatOf = (podId: string) => Number(podRow(podId)?.["beat"] ?? 0);

// A test that a busy machine holds up mustn't be taken for a blocked process, and ended as one.
const noStallBeats = 1_000_000;

function start(podId: string, stallBeats = noStallBeats) {
  const seen: Observation[] = [];
  const errors: string[] = [];
  const signs = createVitalSigns();
  const heartbeat = startHeartbeatThread({
    podId,
    store: place.path,
    signs,
    heartbeatMs: 20,
    stallBeats,
    onBeat: (each) => seen.push(each),
    onError: (error) => errors.push(error),
    metadata: { host: "here" },
  });
  return { heartbeat, signs, seen, errors };
}

/** Keeps this thread busy until the condition holds, as a handler that computes would. */
function blockUntil(condition: () => boolean): void {
  const deadlineMs = performance.now() + 90_000;
  while (!condition()) {
    if (performance.now() > deadlineMs) throw new Error("it never happened");
  }
}

describe("the heartbeat's thread", () => {
  test("beats on while the event loop is blocked", async () => {
    const { heartbeat, seen, errors } = start("a");
    await until("the first beat", () => beatOf("a") > 0);
    const before = beatOf("a");
    blockUntil(() => beatOf("a") >= before + 10);
    await until("the news of it", () => (seen.at(-1)?.pods[0]?.beat ?? 0) >= before + 10);
    expect(podRow("a")).toMatchObject({ status: "up", metadata: `{"host":"here"}` });
    expect(errors).toEqual([]);
    await heartbeat.stop();
    const last = beatOf("a");
    expect(beatOf("a")).toBe(last);
  });

  test("brings its pod back after it was deleted, with the floor of given-up claims", async () => {
    const { heartbeat, signs } = start("a");
    await until("the first beat", () => beatOf("a") > 0);
    signs.abandonCallsUpTo(12);
    db.exec("delete from flotilla_pod");
    await until("its return", () => beatOf("a") > 0);
    expect(podRow("a")).toMatchObject({ status: "up", claim_floor: 12 });
    await heartbeat.stop();
  });

  test("stores the pulse that the main thread gave it, and keeps it while that is blocked", async () => {
    const { heartbeat } = start("a");
    heartbeat.setPulse(`{"held":3}`);
    await until("the pulse", () => podRow("a")?.["pulse"] === `{"held":3}`);
    const before = beatOf("a");
    blockUntil(() => beatOf("a") >= before + 5);
    expect(podRow("a")).toMatchObject({ pulse: `{"held":3}` });
    await heartbeat.stop();
  });

  test("brings its pod back after it was marked down", async () => {
    const { heartbeat } = start("a");
    await until("the first beat", () => beatOf("a") > 0);
    db.exec("update flotilla_pod set status = 'down'");
    await until("its return", () => podRow("a")!["status"] === "up");
    expect(podRow("a")).toMatchObject({ status: "up" });
    await heartbeat.stop();
  });

  test("waits for another's write lock rather than fail", async () => {
    const { heartbeat, errors } = start("a");
    await until("the first beat", () => beatOf("a") > 0);
    db.exec("begin immediate");
    const held = beatOf("a");
    const startedMs = performance.now();
    blockUntil(() => performance.now() - startedMs > 200);
    expect(beatOf("a")).toBe(held);
    db.exec("commit");
    await until("the next beat", () => beatOf("a") > held);
    expect(errors).toEqual([]);
    await heartbeat.stop();
  });
});

describe("a process whose event loop is blocked for ever", () => {
  test("is ended by its own heartbeat, and no other process is", async () => {
    // This process may be slow, and must not be ended with the other.
    const here = start("here", 500);
    const breathing = setInterval(here.signs.reportAlive, 5);
    const file = join(place.folder, "blocked.mjs");
    const thread = new URL("./heartbeat-thread.ts", import.meta.url).href;
    writeFileSync(
      file,
      `import { createVitalSigns, startHeartbeatThread } from ${JSON.stringify(thread)};
      const signs = createVitalSigns();
      setInterval(signs.reportAlive, 5);
      startHeartbeatThread({
        podId: "blocked", store: ${JSON.stringify(place.path)}, signs, heartbeatMs: 20, stallBeats: 100,
        onError() {},
        onBeat({ pods }) {
          // Fifty beats show that breathing keeps it alive.
          if (pods.find((pod) => pod.podId === "blocked").beat > 50) for (;;);
        },
      });`,
    );
    const child = spawn(process.execPath, [file], { stdio: ["ignore", "inherit", "pipe"] });
    let stderr = "";
    child.stderr.on("data", (chunk: Buffer) => (stderr += String(chunk)));
    // Its last words may come after its end, and before that of its pipes.
    const [code, signal] = (await once(child, "close")) as [number | null, string | null];
    expect({ code, signal }).toEqual({ code: null, signal: "SIGKILL" });
    expect(beatOf("blocked")).toBeGreaterThan(50);
    expect(stderr).toContain("event loop of pod blocked has been blocked for 100 heartbeats");
    const before = beatOf("here");
    await until("more beats here", () => beatOf("here") > before + 5);
    clearInterval(breathing);
    await here.heartbeat.stop();
  });
});
