/**
 * One seed: pods with sessions, clients that fork, edit, upload, send, delete and set wakes, a service that
 * sends its deliveries more than once, collectors that wait for nothing, troubles, a time of quiet, and the
 * verdict.
 */
import { createHash } from "node:crypto";
import { hasCode, messageOf } from "../../../src/base/errors.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { createFiles } from "../../../src/files/files.ts";
import { createFilesLeader } from "../../../src/files/leader.ts";
import { fileUrl } from "../../../src/protocol/file.ts";
import type { Part } from "../../../src/protocol/message.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { hook } from "../../../src/runtime/hooks/hook.ts";
import { callerOfHook, createDeliveries } from "../../../src/server/hooks/hooks.ts";
import { agent } from "../../../src/sessions/agents/agent.ts";
import type { SessionService } from "../../../src/sessions/service.ts";
import { sql, type Statement, table } from "../../../src/store/sql.ts";
import type { PodFacts } from "../checker.ts";
import { createSimDisk } from "../disk.ts";
import { startFaults } from "../faults.ts";
import { nothingSeen } from "../fences.ts";
import { createLane, laneClock } from "../lane.ts";
import { createNetwork, type Network } from "../link.ts";
import { type SimPod, startSimPod } from "../pod.ts";
import { type Report, reportOn } from "../report.ts";
import { createGateways, type Gateways } from "../sessions/gateways.ts";
import { createWorld, noTroubles, startOfTimeMs, type World } from "../world.ts";

const tenant = "t";
const user = "u";
const heartbeatMs = 1_000;
const deadAfterMs = 4_000;
const hourMs = 3_600_000;
/** All that may still be to do when the faults stop is done well within this time. */
const quietLimitMs = 240_000;
const unsure = [
  "closed",
  "overloaded",
  "store_busy",
  "store_unavailable",
  "timeout",
  "unavailable",
  "unknown_outcome",
] as const;

/** What a session was said to have. */
type Made = {
  readonly sessionId: string;
  readonly parent?: { readonly sessionId: string; readonly atSeq: number };
  /** Messages by their seq, also those that it begins with. */
  readonly acked: Map<number, { readonly id: string; readonly hash?: string }>;
  readonly wakes: Set<string>;
  isRemoved: boolean;
};

/** Few, so that sessions share them. */
const contents = Array.from({ length: 5 }, (_, at) =>
  new TextEncoder().encode(`content ${at} `.repeat(40 * (at + 1))),
);
const hashes = contents.map((bytes) => createHash("sha256").update(bytes).digest("hex"));

const echo = agent("echo", ({ messages }) => `message ${messages.length}`);

export async function runForkSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
  const world = await createWorld(seed, { keepTrace });
  const { scheduler, count } = world;
  const isCalm = world.chance(0.15);
  const faultsMs = world.between(8_000, 14_000);
  const isQuiet = () => scheduler.nowMs >= faultsMs;
  const network = createNetwork(
    world,
    { before: async () => nothingSeen, after: async () => {} },
    { carriesEnvelopes: world.chance(0.5) },
  );
  const logs = world.pick([1, 2]);
  const pods: SimPod[] = [];
  const disk = createSimDisk(world);
  let podsMade = 0;
  const fill = (place: number): void => {
    pods[place] = startSimPod(
      world,
      network,
      { pods: new Map<string, PodFacts>() },
      {
        podId: `p${++podsMade}`,
        names: [],
        settings: { slots: 2, pollMs: 5_000, heartbeatMs, deadAfterMs, sessions: { logs } },
        disk,
        schedules: [],
        handlersFor: () => [echo],
        onGone: () =>
          void scheduler.after(world.between(100, isQuiet() ? 1_000 : 5_000), () => fill(place)),
      },
    );
  };
  for (let place = 0; place < world.between(2, 3); place++) {
    scheduler.after(place === 0 ? 0 : world.between(0, 2_000), () => fill(place));
  }
  const gateways = createGateways(world, network, {
    pods: () => pods.filter(Boolean),
    programs: 1,
    logs,
    through: (database) => database,
    slowAtFirst: false,
  });
  if (isCalm) {
    const { delayMs } = world.troubles;
    world.troubles = { ...noTroubles, delayMs };
  } else
    startFaults(world, {
      network,
      pods: () => pods.filter(Boolean),
      untilMs: faultsMs,
      deadAfterMs,
    });
  scheduler.after(faultsMs, () => {
    world.troubles = noTroubles;
    // Clocks were set wrong by hours, and what was set by them is due now.
    world.storeClock.offsetMs += 5 * hourMs;
  });
  // Two, as where a leader doesn't know yet that it leads no more.
  for (const name of ["c1", "c2"]) startCollector(world, network, name, isQuiet);
  const clients = startClients(world, gateways, faultsMs);

  const hasFired = ({ sessionId, wakes }: Made) => {
    const fired = firedIn(world, sessionId);
    return [...wakes].every((key) => fired.includes(key));
  };
  const alive = () => clients.made.filter(({ isRemoved }) => !isRemoved);
  const limitMs = faultsMs + quietLimitMs;
  const isOver = () => world.violations.length > 0 || scheduler.nowMs > limitMs;
  const isSettled = () => isQuiet() && clients.open() === 0 && alive().every(hasFired);
  await scheduler.runUntil(() => isOver() || isSettled());
  const settledMs = scheduler.nowMs;
  // What lands late would come between the collector's last pass and the look at what it has left.
  const isLanded = () => [...world.onTheWay.values()].every((writes) => writes === 0);
  await scheduler.runUntil(() => isOver() || (scheduler.nowMs > settledMs + 3_000 && isLanded()));
  if (clients.open() > 0) world.violate("clients", `${clients.open()} wait for ever`);
  for (const each of alive())
    if (!hasFired(each)) world.violate("wake", `lost in ${each.sessionId}`);
  if (world.violations.length === 0) {
    await judge(world, gateways, clients.made);
    judgeDeliveries(world, clients);
  }
  count(isCalm ? "seed: calm" : "seed: stormy");
  return reportOn(seed, world);
}

/** A leader that waits for uploads, and for messages with them, a moment instead of an hour. */
function startCollector(world: World, network: Network, who: string, isQuiet: () => boolean): void {
  const { scheduler } = world;
  const lane = createLane(scheduler);
  const random = world.fork();
  const wallMs = () => startOfTimeMs + scheduler.nowMs;
  const clock = laneClock(scheduler, lane, { wallMs, startMs: 0 });
  const database = network.connect({ who, lane });
  const files = createFiles({ database, clock, random, ids: uuidv7(clock, random) });
  const graceMs = world.pick([200, 1_500, 4_000]);
  const leader = createFilesLeader({ database, files, clock, graceMs });
  const loop = (): void => {
    if (isQuiet()) return;
    void leader.pass().then(() => scheduler.after(world.between(10, 900), loop));
  };
  scheduler.after(world.between(0, 1_000), loop);
}

function startClients(world: World, gateways: Gateways, untilMs: number) {
  const { scheduler, count } = world;
  const made: Made[] = [];
  let ids = 0;
  let open = 0;
  let creating = 0;
  const pause = (forMs: number) =>
    new Promise<void>((resolve) => void scheduler.after(forMs, resolve));

  /** Asks until it is known, at times twice at once. */
  const persist = async <Answer>(
    ask: (service: SessionService) => Promise<Answer>,
  ): Promise<Answer> => {
    const once = async (): Promise<Answer> => {
      for (;;) {
        try {
          return await gateways.ask({ ask });
        } catch (error) {
          if (!hasCode(error, ...unsure)) throw error;
          await pause(world.between(50, 900));
        }
      }
    };
    if (!world.chance(0.15)) return once();
    const [one, other] = await Promise.allSettled([once(), once()]);
    if (one.status === "fulfilled") return one.value;
    if (other.status === "fulfilled") return other.value;
    throw one.reason;
  };
  const asked = (what: string, work: Promise<unknown>): void => {
    open++;
    work
      .then(
        () => count(`client: ${what}`),
        (error: unknown) => {
          count(`refused: ${what}`);
          scheduler.note(`${what} refused: ${messageOf(error)}`);
          if (hasCode(error, "store_corrupt") || !("code" in (error as object)))
            world.violate("refusal", `${what}: ${messageOf(error)}`);
        },
      )
      .finally(() => open--);
  };

  const create = async (): Promise<void> => {
    const sessionId = `s${++ids}`;
    creating++;
    await persist((service) =>
      service.create(tenant, { sessionId, agents: ["echo"], users: [user] }),
    ).finally(() => creating--);
    made.push({ sessionId, acked: new Map(), wakes: new Set(), isRemoved: false });
  };
  const say = async (to: Made, part: Part, hash?: string): Promise<void> => {
    const id = `m${++ids}`;
    const { seq } = await persist((service) =>
      service.send(tenant, to.sessionId, { id, author: user, parts: [part] }),
    );
    to.acked.set(seq, { id, ...(hash !== undefined && { hash }) });
  };
  const sayText = (to: Made) => say(to, { type: "text", text: `said ${ids}` });
  const sayFile = async (to: Made): Promise<void> => {
    const at = world.between(0, contents.length - 1);
    const file = { type: "file", mediaType: "text/plain" } as const;
    if (world.chance(0.3)) {
      const url = `data:text/plain;base64,${Buffer.from(contents[at]!).toString("base64")}`;
      return say(to, { ...file, url }, hashes[at]!);
    }
    await persist((service) => service.upload(tenant, to.sessionId, [contents[at]!]));
    // It may be collected meanwhile.
    await pause(world.pick([0, 0, 300, 1_500, 4_500]));
    await say(to, { ...file, url: fileUrl(hashes[at]!) }, hashes[at]!);
  };
  const fork = async (of: Made): Promise<void> => {
    const atSeq = world.pick([...of.acked.keys()]);
    const sessionId = `f${++ids}`;
    await persist((service) =>
      service.fork(tenant, of.sessionId, { id: sessionId, atSeq, users: [user] }),
    );
    add(of, sessionId, atSeq);
  };
  const edit = async (of: Made): Promise<void> => {
    const own = [...of.acked].filter(([seq]) => seq > (of.parent?.atSeq ?? 0));
    if (own.length === 0) return;
    const [, { id: messageId }] = world.pick(own);
    const sessionId = `e${++ids}`;
    const parts = [{ type: "text", text: "said anew" }];
    const { seq } = await persist((service) =>
      service.edit(tenant, of.sessionId, { id: sessionId, messageId, author: user, parts }),
    );
    add(of, sessionId, seq - 1).acked.set(seq, { id: messageId });
  };
  const add = ({ sessionId: parentId, acked }: Made, sessionId: string, atSeq: number): Made => {
    const fork = {
      sessionId,
      parent: { sessionId: parentId, atSeq },
      acked: new Map([...acked].filter(([seq]) => seq <= atSeq)),
      wakes: new Set<string>(),
      isRemoved: false,
    };
    made.push(fork);
    return fork;
  };
  const wake = async (of: Made): Promise<void> => {
    const key = `k${++ids}`;
    const afterMs = world.between(200, 5_000);
    await persist((service) =>
      service.wake(tenant, of.sessionId, {
        id: key,
        key,
        author: user,
        afterMs,
        message: "awake?",
      }),
    );
    of.wakes.add(key);
  };
  const remove = async (of: Made): Promise<void> => {
    of.isRemoved = true;
    await persist((service) => service.remove(tenant, of.sessionId));
  };

  /** What a service has sent, and the session that its hook names: undefined, one of its own. */
  const deliveries = new Map<string, Made | undefined>();
  const builds = hook("builds", {
    tenant,
    verify: ({ header }) => ({ id: header("x-delivery") ?? "" }),
    handle: ({ id }) => {
      if (world.chance(0.1)) throw new Error("the hook failed");
      const to = deliveries.get(id);
      // What it says of a delivery may differ each time.
      const message = `${id} at ${scheduler.nowMs}`;
      const agents = ["echo"];
      return to ? { sessionId: to.sessionId, message } : { agents, users: [user], message };
    },
  });
  const caller = callerOfHook(builds);
  const lane = createLane(scheduler);
  const wallMs = () => startOfTimeMs + scheduler.nowMs;
  const deliver = createDeliveries({
    sessions: {
      create: (...given) => gateways.ask({ ask: (service) => service.create(...given) }),
      get: (...given) => gateways.ask({ ask: (service) => service.get(...given) }),
      send: (...given) => gateways.ask({ ask: (service) => service.send(...given) }),
    },
    clock: laneClock(scheduler, lane, { wallMs, startMs: 0 }),
    log: silentLogger,
  });
  /** As services do it: again and again until it is taken, at times once more, and at times at once. */
  const receive = async (to?: Made): Promise<void> => {
    const id = `d${++ids}`;
    deliveries.set(id, to);
    const header = (name: string) => (name === "x-delivery" ? id : undefined);
    const send = async (): Promise<void> => {
      for (let left = world.between(1, 2); left > 0;) {
        try {
          const { status } = await deliver(builds, { caller, header, body: new Uint8Array() });
          if (status === "duplicate") count("delivery: came again");
          left--;
        } catch (error) {
          if (hasCode(error, "not_found", "conflict") || to?.isRemoved) return;
          count("delivery: refused");
        }
        await pause(world.between(1, 900));
      }
      taken.add(id);
    };
    await Promise.all(Array.from({ length: world.between(1, 3) }, send));
  };
  const taken = new Set<string>();

  const act = (): void => {
    const there = made.filter(({ isRemoved }) => !isRemoved);
    if (there.length === 0 && creating > 0) return;
    if (there.length === 0 || (there.length < 6 && world.chance(0.15)))
      return asked("create", create());
    const one = world.pick(there);
    if (world.chance(0.15)) return asked("delivery", receive(world.chance(0.3) ? undefined : one));
    const dice = world.between(1, 100);
    if (dice <= 30) asked("send", sayText(one));
    else if (dice <= 55) asked("file", sayFile(one));
    else if (one.acked.size === 0) asked("send", sayText(one));
    else if (dice <= 70) asked("fork", fork(one));
    else if (dice <= 78) asked("edit", edit(one));
    else if (dice <= 90) asked("wake", wake(one));
    else {
      asked("remove", remove(one));
      // A fork that meets the deletion of what it is made of.
      if (world.chance(0.5)) asked("fork of what goes", fork(one));
    }
  };
  const loop = (): void => {
    if (scheduler.nowMs >= untilMs) return;
    act();
    scheduler.after(world.between(1, 300), loop);
  };
  scheduler.after(world.between(0, 500), loop);
  return { made, deliveries, taken, open: () => open };
}

/** Each delivery that was taken is said once, in the session that its hook named. */
function judgeDeliveries(
  { store, violate, count }: World,
  { deliveries, taken }: Pick<ReturnType<typeof startClients>, "deliveries" | "taken">,
): void {
  const said = new Map<string, string[]>();
  for (const row of store.rows("message")) {
    if (row["author"] !== "builds") continue;
    const [, id] = /"(d\d+) at /.exec(row["body"] as string) ?? [];
    if (id !== undefined) said.set(id, [...(said.get(id) ?? []), row["session_id"] as string]);
  }
  for (const [id, to] of deliveries) {
    if (to?.isRemoved) continue;
    const sessions = said.get(id) ?? [];
    if (sessions.length > 1) violate("delivery", `${id} is said ${sessions.length} times`);
    if (taken.has(id) && sessions.length === 0) violate("delivery", `${id} was taken and is lost`);
    if (to && sessions.some((each) => each !== to.sessionId))
      violate("delivery", `${id} is in ${sessions.join(" ")}`);
    if (sessions.length === 1) count("delivery: said once");
  }
}

/** The keys of the wakes of a session that have fired, as its own entries say. */
function firedIn({ store }: World, sessionId: string): string[] {
  const fired: string[] = [];
  for (const row of store.rows("message")) {
    if (row["session_id"] !== sessionId || row["kind"] !== "wake") continue;
    const { wake } = JSON.parse(row["body"] as string) as { wake?: { event: string; key: string } };
    if (wake?.event === "fired") fired.push(wake.key);
  }
  return fired;
}

async function judge(world: World, gateways: Gateways, made: readonly Made[]): Promise<void> {
  const { scheduler, store, storeClock, violate, count } = world;
  /** An answer that takes virtual time. */
  const got = async <Value>(work: Promise<Value>): Promise<Value> => {
    let isDone = false;
    const settled = work.finally(() => (isDone = true));
    settled.catch(() => {});
    await scheduler.runUntil(() => isDone);
    return settled;
  };
  const random = world.fork();
  const clock = laneClock(scheduler, createLane(scheduler), {
    wallMs: () => startOfTimeMs + scheduler.nowMs,
    startMs: 0,
  });
  const { database } = store;
  const files = createFiles({ database, clock, random, ids: uuidv7(clock, random) });
  const leader = createFilesLeader({ database, files, clock });
  // What one pass finds unused goes with the first one that is an hour later.
  for (let pass = 0; pass < 4; pass++) {
    storeClock.offsetMs += 2 * hourMs;
    await got(leader.pass());
  }

  const lists = new Map<string, readonly string[]>();
  for (const { sessionId, acked, wakes, isRemoved } of made) {
    if (isRemoved) continue;
    const { entries } = await got(
      gateways.ask({
        ask: (service) => service.entries(tenant, sessionId, { after: 0, limit: 1_000 }),
        timeoutMs: 60_000,
      }),
    );
    lists.set(
      sessionId,
      entries.map(({ messageId }) => messageId),
    );
    entries.forEach(({ seq }, at) => {
      if (seq !== at + 1) violate("prefix", `${sessionId} has #${seq} in the place of #${at + 1}`);
    });
    for (const [seq, { id, hash }] of acked) {
      const found = entries[seq - 1];
      if (found?.messageId !== id)
        violate("prefix", `${sessionId} has ${found?.messageId} at #${seq}, not ${id}`);
      if (hash === undefined || !found) continue;
      const read = await got(contentOf(files, sessionId, hash));
      if (read !== hash) violate("file", `${sessionId} #${seq}: ${read}`);
    }
    const fired = firedIn(world, sessionId);
    if (new Set(fired).size !== fired.length)
      violate("woken", `${sessionId} was woken twice: ${fired.join(" ")}`);
    if (wakes.size > 0) count("wake: fired once");
  }
  for (const { sessionId, parent, isRemoved } of made) {
    if (isRemoved || !parent) continue;
    const own = lists.get(sessionId)!.slice(0, parent.atSeq);
    const theirs = lists.get(parent.sessionId)?.slice(0, parent.atSeq);
    if (!theirs) count("fork: of what is deleted");
    else if (own.join(" ") !== theirs.join(" "))
      violate("prefix", `${sessionId} begins with others than its parent`);
  }
  for (const [what, statement] of Object.entries(leftovers)) {
    const [row] = await got(database.read(statement));
    if (Number(row!["found"]) !== 0) violate("left", `${row!["found"]} ${what}`);
  }
}

async function contentOf(
  files: ReturnType<typeof createFiles>,
  sessionId: string,
  hash: string,
): Promise<string> {
  const file = await files.find(sessionId, hash);
  if (!file) return "the file of a message isn't there";
  const digest = createHash("sha256");
  try {
    for await (const piece of files.read(file)) digest.update(piece);
  } catch (error) {
    return messageOf(error);
  }
  return digest.digest("hex");
}

const file = table("file");
const part = table("file_part");
const remnant = table("file_remnant");
const reference = table("file_reference");
const counted = table("file_count");
const leftovers: Readonly<Record<string, Statement>> = {
  "remnants are left": sql`select count(*) as found from ${remnant}`,
  "parts are of no file": sql`
    select count(*) as found from ${part} where file_id not in (select file_id from ${file})`,
  "files have no reference": sql`
    select count(*) as found from ${file} where file_id not in (select file_id from ${reference})`,
  "files more are counted than there are": sql`
    select coalesce((select sum(files) from ${counted}), 0) - (select count(*) from ${file}) as found`,
};
