import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test, vi } from "vitest";
import { type Pod, startPod, task } from "flotilla";
import { silentLogger } from "../../../src/base/log.ts";
import { createFleet, type Fleet } from "../harness.ts";
import { monotonicMs, startsIn } from "../ledger.ts";
import { pauseFor, until } from "../until.ts";
import { type ChaosProxy, startChaosProxy } from "./chaos-proxy.ts";

const compileCache = fileURLToPath(new URL("../../../node_modules/.cache/pods", import.meta.url));
const idle = task("idle", {}, () => null);

test("thirty-two pods on an empty queue query the database a few times a second each", async () => {
  const fleet = await createFleet({ on: "postgres" });
  const proxy = await proxyFor(fleet);
  const count = 32;
  // Each has a thread of its own, and most of its start is compiling the same files again.
  vi.stubEnv("NODE_COMPILE_CACHE", compileCache);
  onTestFinished(() => void vi.unstubAllEnvs());
  // At the limits that pods have by default: one beat and one look a second.
  const config = { store: proxy.through(fleet.store), use: [idle], log: silentLogger };
  const pods = await Promise.all(Array.from({ length: count }, () => startPod(config)));
  onTestFinished(async () => {
    await Promise.all(pods.map((pod) => pod.stop()));
  });
  await until("all follow one leader", () => new Set(pods.map(({ leader }) => leader)).size === 1);

  const look = async () => ({
    ...proxy.counts(),
    atMs: monotonicMs(),
    beats: await beatsOf(fleet),
  });
  const few = 8;
  let perPod = Infinity;
  // What is left of their start on a busy machine isn't what they do for good.
  for (let tries = 1; perPod >= few && tries <= 4; tries++) {
    const before = await look();
    await pauseFor(4_000);
    // Otherwise nothing would have been counted, as on a machine that stood still.
    const after = await until("they have beaten", async () => {
      const seen = await look();
      return seen.beats - before.beats > count ? seen : undefined;
    });
    const seconds = (after.atMs - before.atMs) / 1_000;
    perPod = (after.statements - before.statements) / seconds / count;
    console.log(`${perPod.toFixed(1)} statements a second from each of ${count} idle pods`);
    expect(after.statements - before.statements).toBeGreaterThan(after.beats - before.beats);
  }
  // A beat is two, and a look that finds nothing two or three.
  expect(perPod).toBeLessThan(few);
});

test("the leader's statements don't grow with the number of tasks that pods hold", async () => {
  const fleet = await createFleet({ on: "postgres" });
  const proxy = await proxyFor(fleet);
  // It has no handlers, so that all it does is to beat and to lead.
  const leader = await startPod({
    store: proxy.through(fleet.store),
    log: silentLogger,
    heartbeatMs: 100,
    deadAfterMs: 5_000,
  });
  onTestFinished(() => leader.stop());
  await until("it leads", () => leader.leader === leader.podId);
  const holder = await fleet.start({ config: { pollMs: 60_000 } });

  const statements: number[] = [];
  for (const held of [100, 10_000]) {
    await fleet.sql(
      `insert into flotilla_task (name, status, claimed_by, claim_token)
       select 'elsewhere', 'claimed', ?, 1 from generate_series(1, ?::int)`,
      holder.podId,
      held - (statements.length > 0 ? 100 : 0),
    );
    statements.push(await statementsPerPass(fleet, proxy, leader));
  }
  console.log(`${statements.join(" and ")} statements a pass with 100 and 10,000 tasks held`);
  expect(statements[0]).toBeGreaterThan(0);
  expect(statements[1]).toBeLessThan(statements[0]! * 1.2);
});

test("a pod opens no sockets but to the database", async () => {
  const fleet = await createFleet({ on: "postgres" });
  const pod = await fleet.start();
  await fleet.flotilla.enqueueMany(
    "work",
    Array.from({ length: 20 }, () => ({ ms: 100 })),
  );
  await until("they run", () => startsIn(fleet.ledger()).length === 20);

  const { port } = new URL(fleet.store);
  const sockets = socketsOf(pod.pid);
  expect(sockets.length).toBeGreaterThanOrEqual(3);
  expect(sockets).toEqual(sockets.map(() => ({ state: "connected", port: Number(port) })));
});

async function proxyFor(fleet: Fleet): Promise<ChaosProxy> {
  const proxy = await startChaosProxy(fleet.store);
  onTestFinished(() => proxy.close());
  return proxy;
}

async function beatsOf(fleet: Fleet): Promise<number> {
  const [row] = await fleet.sql("select cast(sum(beat) as bigint) as beats from flotilla_pod");
  return row!["beats"];
}

/** What the leader asks from one of its passes to the next, over enough of them to even out. */
async function statementsPerPass(fleet: Fleet, proxy: ChaosProxy, leader: Pod): Promise<number> {
  const look = async () => {
    const [row] = await fleet.sql("select passes from flotilla_pod where pod_id = ?", leader.podId);
    return { passes: row!["passes"] as number, statements: proxy.counts().statements };
  };
  const before = await look();
  const after = await until("it has passed often", async () => {
    const now = await look();
    return now.passes >= before.passes + 15 ? now : undefined;
  });
  return Math.round((after.statements - before.statements) / (after.passes - before.passes));
}

const connected = "01";

/** The internet sockets that a process has, by the kernel's own tables. */
function socketsOf(pid: number): { state: string; port: number }[] {
  const inodes = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      const [, inode] = /^socket:\[(\d+)\]$/.exec(linkOf(`/proc/${pid}/fd/${fd}`)) ?? [];
      return inode === undefined ? [] : [inode];
    }),
  );
  return ["tcp", "tcp6", "udp", "udp6"].flatMap((kind) =>
    readFileSync(`/proc/${pid}/net/${kind}`, "utf8")
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => inodes.has(fields[9]!))
      .map((fields) => ({
        state: fields[3] === connected ? "connected" : `${kind} in state ${fields[3]}`,
        port: Number.parseInt(fields[2]!.split(":").at(-1)!, 16),
      })),
  );
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // It was closed since it was listed.
    return "";
  }
}
