/** One seed: pods with sessions, clients that send or follow, troubles, a time of quiet, the verdict. */
import { type Logger, silentLogger } from "../../../src/base/log.ts";
import { createSimDisk } from "../disk.ts";
import { startFaults } from "../faults.ts";
import { createNetwork, type Watcher } from "../link.ts";
import { heartOf, type SimPod, startSimPod } from "../pod.ts";
import { type Report, reportOn } from "../report.ts";
import { createWorld, noTroubles, type World } from "../world.ts";
import type { PodFacts } from "../checker.ts";
import { systemClock } from "../../../src/base/clock.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { seededRandom } from "../../../src/base/random.ts";
import { createStoredAgents } from "../../../src/sessions/agents/stored-agents.ts";
import { createAgents, storedAgents } from "./agents.ts";
import { throughBytes } from "./bytes.ts";
import { createChanges } from "./changes.ts";
import { judgeEnd } from "./checker.ts";
import { type Clients, startSessionClients, tenant, users } from "./clients.ts";
import { createSessionFollowers } from "./followers.ts";
import { createGateways } from "./gateways.ts";
import { createHistory } from "./history.ts";
import { openInboxes } from "./inboxes.ts";
import { createEnvelopeFaults } from "./envelopes.ts";
import { createLedger } from "./ledger.ts";
import { createWitness, type Witness } from "./witness.ts";

const heartbeatMs = 1_000;
const deadAfterMs = 4_000;
// All that may still be to do when the faults stop is done well within this time.
const quietLimitMs = 200_000;

export async function runSessionSeed(seed: number, { keepTrace = false } = {}): Promise<Report> {
  const world = await createWorld(seed, { keepTrace });
  const { scheduler, count } = world;
  const isCalm = world.chance(0.15);
  const faultsMs = world.between(8_000, 16_000);
  const isQuiet = () => scheduler.nowMs >= faultsMs;
  /** Clients come before there is anything, and what programs read first takes long. */
  const isFresh = !isCalm && world.chance(0.2);
  const envelopes = createEnvelopeFaults(world, { once: isCalm, heads: () => witness.heads });
  const changes = createChanges(world);
  let clients: Clients | undefined;
  const ledger = createLedger(world, { onStored: (sessionId) => loseRunner(sessionId) });
  const witness: Witness = await createWitness(world, {
    isCalm,
    ledger,
    onSession(seen, { before, after }) {
      changes.judge(before, after!);
      clients?.onSession(seen);
      pauseOwner(seen.header.sessionId);
    },
  });
  const carriesEnvelopes = world.chance(0.7);
  const network = createNetwork(world, witness as Watcher, { carriesEnvelopes });
  const logs = world.pick([1, 2, 4]);
  const pods: SimPod[] = [];
  const byId = new Map<string, SimPod>();
  const gone = new Set<string>();
  const disk = createSimDisk(world);
  const agents = createAgents(world, () => witness, ledger);
  await storeAgents(world);
  /** How many of the agents in code each pod but the first has. */
  const agentShare = world.pick([0.2, 0.7]);
  const gateways = createGateways(world, network, {
    pods: () => pods.filter(Boolean),
    programs: world.between(1, 2),
    logs,
    through: envelopes.through,
    slowAtFirst: isFresh,
  });
  const { loseFollowing } = envelopes;
  const following = { gateways, witness, loseFollowing };
  const followers = createSessionFollowers(world, { ...following, untilMs: faultsMs });
  const inboxes = openInboxes(world, { ...following, users });
  const history = createHistory();
  let podsMade = 0;
  let places = world.between(2, 4);
  const canTell = world.chance(0.3);

  /** Most that can go wrong with a record goes wrong where its owner falls silent right behind it. */
  const pauses = !isCalm && world.chance(0.4) ? 0.05 : 0;
  const pauseOwner = (sessionId: string): void => {
    if (isQuiet() || !world.chance(pauses)) return;
    const { header } = witness.sessions.get(sessionId)!;
    const owner = [...witness.heads.values()].map((head) => head.owner);
    const pod = byId.get(world.pick([header.work?.runner, ...owner]) ?? "");
    if (!pod) return;
    count("fault: pause at a record");
    const soonMs = world.between(0, world.troubles.delayMs * 3);
    scheduler.after(soonMs, () => pause(pod, world.between(1_500, 9_000)));
  };
  /** Turns have to go on elsewhere in the middle of their steps, most of which are run when all is quiet. */
  let losses = !isCalm && world.chance(0.5) ? world.between(1, 4) : 0;
  const loseRunner = (sessionId: string): void => {
    if (losses === 0 || !world.chance(0.15)) return;
    const pod = byId.get(witness.sessions.get(sessionId)?.header.work?.runner ?? "");
    if (!pod) return;
    losses--;
    count("fault: a runner lost at a step");
    scheduler.after(world.between(0, 800), () => {
      if (!pod.started || !pod.alive) return;
      const how = world.between(0, 2);
      if (how === 0) pod.crash("crashed at a step");
      else if (how === 1) pod.stop();
      else pause(pod, world.between(5_200, 9_000));
    });
  };
  /** A pod that wakes is asked at once for what others have stored meanwhile. */
  const pause = (pod: SimPod, durationMs: number): void => {
    if (!pod.alive) return;
    pod.pause(durationMs);
    if (!world.chance(0.7)) return;
    scheduler.after(durationMs - world.between(0, 20), () => {
      if (!pod.alive || isQuiet()) return;
      count("client: asks a pod that wakes");
      clients!.readAt(pod.podId);
    });
  };

  /** An owner stands still until others have had its log for a while, and has it again when it wakes. */
  const pauseUntilBack = (): void => {
    const heads = [...witness.heads.values()];
    const head = heads.length > 0 ? world.pick(heads) : undefined;
    const pod = byId.get(head?.owner ?? "");
    if (!pod?.started || !pod.alive) return;
    count("fault: pause, and the log back");
    const durationMs = world.between(5_500, 9_500);
    pause(pod, durationMs);
    // Its connections break meanwhile, so that it reads its envelopes late.
    envelopes.cutOff(pod.podId, scheduler.nowMs + durationMs + world.between(0, 1_500));
    scheduler.after(world.between(0, 1_000), () => clients!.crowd(head!.logId, "change"));
    scheduler.after(durationMs - world.between(500, 2_500), () => {
      const owners = new Set([...witness.heads.values()].map(({ owner }) => owner));
      for (const other of pods.filter(Boolean)) {
        if (other === pod || !other.started || !other.alive) continue;
        if (owners.has(other.podId)) other.stop();
        else other.pause(world.between(2_000, 4_000));
      }
    });
  };

  /** A pod is told to stop when it is taken for dead, because its heartbeat is late. */
  const leaveLate = (): void => {
    const pod = world.chance(0.6) ? pods[0] : world.pick(pods.filter(Boolean));
    if (!pod?.started || !pod.alive) return;
    count("fault: leaves with a late heartbeat");
    scheduler.note(`${pod.podId} has a late heartbeat`);
    const untilMs = scheduler.nowMs + world.between(10_000, 14_000);
    world.frozen.set(heartOf(pod.podId), { untilMs, mode: "hang" });
    const leavesMs = world.between(5_500, 8_000);
    scheduler.after(leavesMs - world.between(0, 500), () => {
      const theirs = [...witness.heads.values()].filter(({ owner }) => owner === pod.podId);
      for (const { logId } of theirs) clients!.crowd(logId, "talk");
    });
    scheduler.after(leavesMs, () => pod.alive && pod.stop());
  };

  const fill = (place: number): void => {
    if (place >= places) return;
    const podId = `p${++podsMade}`;
    const thisProcess = {
      host: podId,
      isGone: (host: string) => canTell && gone.has(host),
    };
    const known = new Map<string, PodFacts>();
    const pod: SimPod = startSimPod(
      world,
      network,
      { pods: known },
      {
        podId,
        names: [],
        settings: {
          slots: 1,
          pollMs: 10_000,
          heartbeatMs,
          deadAfterMs,
          sessions: { logs },
          // Not by chance, which would make another story of every seed.
          ...(seed % 2 === 0 && { server: { quotas: { perTenant: { storedBytes: 1e12 } } } }),
        },
        disk,
        schedules: [],
        through: envelopes.through,
        // Both with counts of tenants and without. Not by chance either.
        ...(seed % 4 > 1 && { throughJournal: throughBytes(world) }),
        log: counting(count),
        thisProcess,
        handlersFor: (made) =>
          place === 0 ? agents.of(made) : agents.of(made).filter(() => world.chance(agentShare)),
        network: agents.network(() => pod),
        onGone() {
          gone.add(podId);
          followers.cutOff(podId);
          inboxes.cutOff(podId);
          scheduler.after(world.between(100, isQuiet() ? 1_000 : 6_000), () => fill(place));
        },
      },
    );
    pods[place] = pod;
    byId.set(podId, pod);
  };
  for (let place = 0; place < places; place++) {
    scheduler.after(place === 0 ? 0 : world.between(0, 3_000), () => fill(place));
  }
  if (isCalm) {
    const { delayMs } = world.troubles;
    world.troubles = { ...noTroubles, delayMs, hintLost: world.pick([0, 0.5]) };
    envelopes.lost = 0.5;
  } else {
    startFaults(world, {
      network,
      pods: () => pods.filter(Boolean),
      untilMs: faultsMs,
      deadAfterMs,
    });
    envelopes.lost = world.chance(0.5) ? world.pick([0.05, 0.2, 0.5]) : 0;
    if (world.chance(0.4)) scale();
    else if (world.chance(0.5)) scheduler.after(faultsMs / 2, replaceAll);
    if (world.chance(0.5)) scheduler.after(world.between(1_500, 4_000), pauseUntilBack);
    if (world.chance(0.4)) scheduler.after(world.between(1_000, 4_000), leaveLate);
  }
  scheduler.after(faultsMs, () => {
    envelopes.lost = 0;
    world.troubles = noTroubles;
  });
  clients = startSessionClients(world, {
    gateways,
    witness,
    history,
    followers,
    untilMs: faultsMs,
    changes,
    gapMs: world.pick([50, 100, 250]),
    atOnce: isFresh,
  });
  // Where nothing else happens any more, nothing else heals what was lost.
  const endMs = faultsMs + world.pick([-2_000, 0]);
  if (world.chance(0.5)) scheduler.after(endMs, () => clients.swap());
  if (world.chance(0.4)) {
    scheduler.after(endMs, () => {
      inboxes.swap();
      // A list that was just opened is compared once more after two seconds.
      clients.talkIn(2_800);
    });
  }

  /** A deploy: all pods are told to stop, one after the other. */
  function replaceAll(): void {
    count("fault: all pods replaced");
    for (let place = 0; place < places; place++) {
      scheduler.after(place * world.between(500, 2_000), () => {
        const pod = pods[place];
        if (pod?.started && pod.alive) pod.stop();
      });
    }
  }

  /** A pod more, or one less. */
  function scale(): void {
    scheduler.after(world.between(2_000, 6_000), () => {
      if (isQuiet()) return;
      if (places > 2 && world.chance(0.5)) {
        count("fault: a pod removed");
        const pod = pods[--places];
        if (pod?.started && pod.alive) pod.stop();
      } else {
        count("fault: a pod added");
        fill(places++);
      }
      scale();
    });
  }

  const isSettled = () => {
    if (clients.open > 0 || followers.behind() !== undefined) return false;
    // What a pod shows that stands still is as old as its pause.
    if (pods.some((pod) => pod?.alive && pod.troubledUntilMs > scheduler.nowMs)) return false;
    return [...witness.sessions.values()].every(
      ({ header }) => header.work === null && header.pending.length === 0,
    );
  };
  const limitMs = faultsMs + quietLimitMs;
  const isOver = () => world.violations.length > 0 || scheduler.nowMs > limitMs;
  do {
    await scheduler.runUntil(() => isOver() || (isQuiet() && isSettled()));
    // An inbox says a few times a second at most what has changed, and compares now and then.
    const settledMs = scheduler.nowMs;
    await scheduler.runUntil(() => isOver() || scheduler.nowMs > settledMs + 3_000);
    // A gateway may go on asking for what its client has given up.
  } while (!isOver() && !isSettled());
  if (world.violations.length === 0) {
    const behind = followers.behind();
    if (behind !== undefined) world.violate("S5", behind);
    await judgeEnd(world, witness, history);
    await ledger.judgeEnd();
    const wrong = await inboxes.wrong();
    if (wrong !== undefined) world.violate("inbox", wrong);
    if (clients.open > 0) world.violate("clients", `${clients.open} wait for ever`);
  }
  count(isCalm ? "seed: calm" : "seed: stormy");
  if (isFresh) count("seed: fresh");
  return reportOn(seed, world);
}

/** What was stored before the first pod came. */
async function storeAgents({ store, storeClock }: World): Promise<void> {
  const random = seededRandom(1);
  const ids = uuidv7(storeClock, random);
  const clock = { ...systemClock, now: () => storeClock.now() };
  const stored = createStoredAgents({ database: store.database, clock, random, ids });
  for (const { name, settings } of storedAgents) await stored.create(tenant, name, { settings });
}

const lines = new Map([
  ["late answer not stored", "fence: answer, epoch or attempt"],
  ["session log lost to another pod", "log: fenced"],
  ["handing over session log", "log: handed over"],
  ["session log commit failed, retrying", "record: unknown or refused"],
]);

/** Counts what pods say of themselves. */
function counting(count: (what: string) => void): Logger {
  const say = (_: object, message: string) => {
    const what = lines.get(message);
    if (what !== undefined) count(what);
  };
  return { ...silentLogger, info: say, warn: say };
}
