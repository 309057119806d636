import process from "node:process";
import { describe, expect, test } from "vitest";
import { between, fraction, type Random, seededRandom } from "../../../src/base/random.ts";
import { judge } from "./checkers.ts";
import { createFleet, type Fleet, type StoreKind, storeKinds } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import { type Effect, effectsTable, handlerSession, type Mishap } from "./own-transaction.ts";
import { pauseFor, until } from "../until.ts";

const seed = Number(process.env["FLOTILLA_CRASH_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const limits = { heartbeatMs: 100, deadAfterMs: 700 };
const knowing = { names: ["within"], config: { ...limits, slots: 5, pollMs: 100 } };

describe.each(storeKinds)("on %s, a handler that completes within its transaction", (on) => {
  test("and is killed before its commit has had no effect, and another pod has it", async () => {
    const { fleet, taskId, second } = await killedWhen(on, "written");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });
    expect(await effectsOf(fleet, taskId)).toEqual([{ pod: second.podId, token: 2 }]);
    expect(await otherViolations(fleet)).toEqual([]);
  });

  test("and is killed after its commit is done, and no pod does it again", async () => {
    const { fleet, taskId, first, second } = await killedWhen(on, "committed");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: first.podId, token: 1 });
    await until("its pod is marked down", async () => {
      const pods = await fleet.flotilla.pods();
      return pods.find(({ podId }) => podId === first.podId)?.status === "down";
    });
    // What comes later has been done before the first is judged.
    const later = await fleet.flotilla.enqueue("within", { ms: 0, withinMs: 0 });
    expect(await fleet.flotilla.waitFor(later.taskId)).toMatchObject({ pod: second.podId });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(await effectsOf(fleet, taskId)).toEqual([{ pod: first.podId, token: 1 }]);
    expect(await otherViolations(fleet)).toEqual([]);
  });

  test("and finds that another pod has its task by then has no effect", async () => {
    const fleet = await fleetWithEffects(on);
    const effect: Effect = { ms: 0, withinMs: 0, gate: "door" };
    const { taskId } = await fleet.flotilla.enqueue("within", effect);
    // It hardly ever polls its claims, so it doesn't know of it when it completes.
    const config = { ...knowing.config, pollMs: 60_000 };
    const first = await fleet.start({ ...knowing, config, gate: "none" });
    await until("it waits", () => startsIn(fleet.ledger(), taskId).length === 1);
    await first.stopHeart();
    const second = await fleet.start(knowing);
    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });

    first.open("door");
    const refused = await until("the first one's end", () =>
      fleet.ledger().find(({ event, pod }) => event === "end" && pod === first.podId),
    );
    expect(refused).toMatchObject({ ok: false, task: taskId, token: 1 });
    expect(await effectsOf(fleet, taskId)).toEqual([{ pod: second.podId, token: 2 }]);
  });

  test("has its effect exactly once, through kills, pauses and sessions that are ended", async () => {
    console.log(`FLOTILLA_CRASH_SEED=${seed}`);
    const fleet = await fleetWithEffects(on);
    await Promise.all(Array.from({ length: 4 }, () => fleet.start(knowing)));
    let over = false;
    const whileItLasts = async (step: () => Promise<unknown>) => {
      while (!over) await step();
    };
    const torn: unknown[] = [];
    const drawn = (lane: number) => seededRandom(seed + lane);
    const [feeding, pausing, ending] = [drawn(0), drawn(1), drawn(2)];
    const storm = async () => {
      await Promise.all([drawn(3), drawn(4)].map((random) => killAgainAndAgain(fleet, random, 4)));
      // Otherwise it would have been too mild to show anything.
      await until("many have completed", async () => (await completedTasks(fleet)) > 100);
    };
    await Promise.all([
      storm().finally(() => (over = true)),
      whileItLasts(() => topUp(fleet, feeding)),
      whileItLasts(() => pauseOne(fleet, pausing)),
      whileItLasts(async () => void torn.push(...(await halfDone(fleet)))),
      on === "postgres" && whileItLasts(() => endOneSession(fleet, ending)),
    ]);
    await until("every task has ended", async () => (await openTasks(fleet)) === 0);

    // At every look, and in the end: the task is completed if and only if its effect is there, once.
    expect(torn.slice(0, 5)).toEqual([]);
    expect(await halfDone(fleet)).toEqual([]);
    const { byStatus } = await fleet.flotilla.tasks.stats({ exact: true });
    console.log({ seed, ...tally(fleet), byStatus });
    expect(byStatus).toMatchObject({ pending: 0, claimed: 0, failed: 0, cancelled: 0 });
    expect(await foreignEffects(fleet)).toEqual([]);
    expect(await otherViolations(fleet)).toEqual([]);
    expect(tally(fleet).cutShort).toBeGreaterThan(0);
  });
});

async function fleetWithEffects(on: StoreKind): Promise<Fleet> {
  const fleet = await createFleet({ on });
  await fleet.sql(effectsTable);
  if (on === "postgres") await fleet.sql("grant insert on effects to public");
  return fleet;
}

/** One task whose pod is killed when its transaction is so far, and a pod that comes after it. */
async function killedWhen(on: StoreKind, stopsWhen: NonNullable<Effect["stopsWhen"]>) {
  const fleet = await fleetWithEffects(on);
  const first = await fleet.start(knowing);
  const effect: Effect = { ms: 0, withinMs: 0, stopsWhen };
  const { taskId } = await fleet.flotilla.enqueue("within", effect);
  await until(`it is ${stopsWhen}`, () => fleet.ledger().some(({ event }) => event === stopsWhen));
  await first.kill();
  return { fleet, taskId, first, second: await fleet.start(knowing) };
}

async function killAgainAndAgain(fleet: Fleet, random: Random, kills: number): Promise<void> {
  for (let left = kills; left > 0; left--) {
    await pauseFor(between(random, 20, 400));
    await allCanBear(fleet);
    await oneOf(fleet, random).kill();
    await fleet.start(knowing);
  }
}

async function pauseOne(fleet: Fleet, random: Random): Promise<void> {
  await pauseFor(between(random, 20, 200));
  await allCanBear(fleet);
  const pod = oneOf(fleet, random);
  // The holder of SQLite's write lock would stop all others.
  await (fleet.kind === "sqlite" ? pod.pauseOutsideWrites() : pod.pause());
  await pauseFor(between(random, limits.deadAfterMs, 1.5 * limits.deadAfterMs));
  pod.resume();
}

/** A task under which four pods fell silent is failed, so what has seen two is let through first. */
async function allCanBear(fleet: Fleet): Promise<void> {
  await until("no task is close to its last death", async () => {
    const close = await fleet.sql(
      "select 1 from flotilla_task where status in ('pending', 'claimed') and deaths > 1",
    );
    return close.length === 0;
  });
}

function oneOf(fleet: Fleet, random: Random) {
  const alive = fleet.pods.filter((pod) => pod.alive);
  return alive[between(random, 0, alive.length - 1)]!;
}

async function endOneSession(fleet: Fleet, random: Random): Promise<void> {
  await pauseFor(between(random, 20, 200));
  await fleet.sql(
    `select pg_terminate_backend(pid) from (
      select pid from pg_stat_activity
      where datname = current_database() and application_name = ? order by random() limit 1) one`,
    handlerSession,
  );
}

const mishaps: readonly Mishap[] = [
  "rolls back and returns",
  "rolls back and throws",
  "throws after the commit",
  "returns before it commits",
];
const backlog = 40;

/** Keeps some tasks waiting, a third of which go wrong at first. */
async function topUp(fleet: Fleet, random: Random): Promise<void> {
  // SQLite has one lock for all, so no transaction may keep it for long.
  const withinMaxMs = fleet.kind === "sqlite" ? 3 : 30;
  const missing = backlog - (await openTasks(fleet));
  const effects = Array.from({ length: Math.max(missing, 0) }, (): Effect => {
    const ms = between(random, 0, 60);
    const withinMs = between(random, 0, withinMaxMs);
    if (fraction(random) < 0.66) return { ms, withinMs };
    return { ms, withinMs, mishap: mishaps[between(random, 0, mishaps.length - 1)]! };
  });
  if (effects.length > 0) await fleet.flotilla.enqueueMany("within", effects, { attempts: 100 });
  await pauseFor(100);
}

async function openTasks(fleet: Fleet): Promise<number> {
  await pauseFor(50);
  const { byStatus } = await fleet.flotilla.tasks.stats({ exact: true });
  return byStatus.pending + byStatus.claimed;
}

async function completedTasks(fleet: Fleet): Promise<number> {
  return (await fleet.flotilla.tasks.stats({ exact: true })).byStatus.completed;
}

/** Tasks that are completed without their effect, or have it without being completed, or twice. */
async function halfDone(fleet: Fleet) {
  await pauseFor(50);
  return fleet.sql(
    `select task.task_id, task.status, coalesce(effect.times, 0) as effects
     from flotilla_task task
     left join (select task_id, count(*) as times from effects group by task_id) effect
       on effect.task_id = task.task_id
     where coalesce(effect.times, 0) <> case when task.status = 'completed' then 1 else 0 end`,
  );
}

/** Effects of another attempt than the one whose result is stored. */
async function foreignEffects(fleet: Fleet) {
  const rows = await fleet.sql(
    `select effect.task_id, effect.pod, effect.token, task.claim_token, task.result
     from effects effect join flotilla_task task on task.task_id = effect.task_id`,
  );
  return rows.filter(({ pod, token, claim_token, result }) => {
    const stored = JSON.parse(result);
    return token !== claim_token || token !== stored.token || pod !== stored.pod;
  });
}

async function effectsOf(fleet: Fleet, taskId: string) {
  const rows = await fleet.sql("select pod, token from effects where task_id = ?", taskId);
  return rows.map(({ pod, token }) => ({ pod, token }));
}

/** A result may be there that its handler never lived to return, so that isn't asked for. */
async function otherViolations(fleet: Fleet): Promise<string[]> {
  const found = await judge(fleet, limits);
  return found.filter((violation) => !violation.startsWith("T3"));
}

/** How often each kind of moment was hit. */
function tally(fleet: Fleet) {
  const ledger = fleet.ledger();
  const ended = new Set<string>();
  const reached = {
    start: new Set<string>(),
    written: new Set<string>(),
    committed: new Set<string>(),
  };
  let lost = 0;
  for (const entry of ledger) {
    if (entry.event === "ended" && entry.outcome === "lost") lost++;
    if (entry.event === "end") ended.add(`${entry.task} ${entry.token}`);
    if (entry.event === "start" || entry.event === "written" || entry.event === "committed") {
      reached[entry.event].add(`${entry.task} ${entry.token}`);
    }
  }
  const cut = (runs: ReadonlySet<string>) => [...runs].filter((run) => !ended.has(run)).length;
  return {
    attempts: reached.start.size,
    lost,
    cutShort: cut(reached.start),
    cutWhenWritten: cut(reached.written) - cut(reached.committed),
    cutWhenCommitted: cut(reached.committed),
  };
}
