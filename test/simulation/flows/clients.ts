/**
 * Clients that start runs, send them signals, cancel them and start them over, at random and just when a
 * run is about to wait. When the faults have stopped, they make sure that no run waits for a signal that
 * would never come.
 */
import { hasCode, transientCodes } from "../../../src/base/errors.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { createRuns, type Runs, type StartOptions } from "../../../src/flows/runs.ts";
import { createDeadLetters, type DeadLetters } from "../../../src/dead-letters/dead-letters.ts";
import { createTasks, type Tasks } from "../../../src/tasks/tasks.ts";
import type { Database, Row } from "../../../src/store/database.ts";
import { sql, table } from "../../../src/store/sql.ts";
import { intentOf } from "../kinds.ts";
import { createLane, laneClock } from "../lane.ts";
import type { Network } from "../link.ts";
import { refusedBehindCommits } from "../refusals.ts";
import { type Asked, createRequests, type Request, waysIn } from "../requests.ts";
import { startOfTimeMs, type World } from "../world.ts";
import type { FlowChecker, Moved } from "./checker.ts";
import { waitsForChildren } from "./families.ts";
import { drawInput } from "./inputs.ts";
import { errand, type Input, orders, signalNames } from "./machines.ts";

export type FlowClients = {
  readonly history: readonly Request[];
  readonly open: number;
  /** Something may want to be said just now. */
  onMoved(moved: Moved): void;
  close(): void;
};

type Client = {
  readonly runs: Runs;
  readonly tasks: Tasks;
  readonly letters: DeadLetters & { close(): void };
};

export type FlowClientsOptions = {
  readonly checker: () => FlowChecker;
  readonly untilMs: number;
  readonly gapMs: number;
};

const shares = { order: 2, parent: 3, ask: 1, plain: 2, parcel: 2 };
const likely = Object.entries(shares).flatMap(([name, share]) => Array<string>(share).fill(name));
const careEveryMs = 2_000;
// Many parents come to their second step only when the faults have stopped, and the last deploy is under way.
const restartsMs = 10_000;

export function startFlowClients(
  world: World,
  network: Network,
  { checker, untilMs, gapMs }: FlowClientsOptions,
): FlowClients {
  const { scheduler } = world;
  const requests = createRequests(world);
  const acked: string[] = [];
  let open = 0;
  let calls = 0;
  let said = 0;

  const asked = (work: Promise<unknown>): void => {
    open++;
    void work
      .catch((error: unknown) => {
        if (!hasCode(error, "conflict", "not_found", ...transientCodes)) throw error;
      })
      .finally(() => open--);
  };

  /** How often a cancel of each run was sent. */
  const cancels = new Map<string, number>();
  const countingCancels = (database: Database): Database => ({
    ...database,
    write(statements, options) {
      const { kind, subject = "" } = intentOf(statements);
      if (kind === "cancel") cancels.set(subject, (cancels.get(subject) ?? 0) + 1);
      return database.write(statements, options);
    },
  });

  const clients = ["c1", "c2"].map((who): Client => {
    const lane = createLane(scheduler);
    const wallMs = () => startOfTimeMs + scheduler.nowMs;
    const clock = laneClock(scheduler, lane, { wallMs, startMs: 0 });
    const random = world.fork();
    const connected = network.connect({ who, lane });
    const database = countingCancels(refusedBehindCommits(world, connected, { untilMs }));
    const parts = { database, clock, random, ids: uuidv7(clock, random) };
    const tasks = createTasks(parts);
    return { runs: createRuns(tasks, parts), tasks, letters: createDeadLetters(parts) };
  });

  const someKey = (share: number) => (world.chance(share) ? `k${world.between(1, 3)}` : undefined);

  const start = async (runs: Runs, key = someKey(0.2)): Promise<void> => {
    const flow = world.pick(likely);
    const request = requests.add(flow, { key });
    const newest = acked.slice(-4);
    const waits = newest.length > 1 && world.chance(0.2);
    const after = waits ? [...new Set([world.pick(newest), world.pick(newest)])] : [];
    const options: StartOptions = {
      ...(key !== undefined && { key }),
      ...(world.chance(0.2) && { delayMs: world.between(1, 4_000) }),
      ...(world.chance(0.2) && { priority: world.between(-2, 2) }),
      ...(waits && { after, afterFailed: world.pick(["fail", "run"] as const) }),
    };
    const input: Input = { ...drawInput(world, flow, request.op), after };
    const started = runs.start(flow, input, options);
    await requests.settle(
      [request],
      started.then(({ runId: taskId, created }) => [{ type: "ok", taskId, created }]),
    );
    if (request.outcome.type === "ok") acked.push(request.outcome.taskId);
  };

  const errandOf = (given: { key?: string | undefined; whole?: number }): Asked => {
    const request = requests.add(errand, given);
    const { key } = given;
    return { request, payload: { op: request.op }, options: key === undefined ? {} : { key } };
  };
  const sendErrand = (tasks: Tasks, key?: string): Promise<void> => {
    const one = errandOf({ key });
    return requests.settle([one.request], waysIn.one(tasks, one));
  };
  const sendErrands = (tasks: Tasks): Promise<void> => {
    const whole = ++calls;
    const keyed = world.chance(0.4);
    const all = Array.from({ length: 3 }, (_, nth) =>
      errandOf({ whole, ...(keyed && { key: someKey(0.4) ?? `m${whole}/${nth}` }) }),
    );
    return requests.settle(
      all.map(({ request }) => request),
      waysIn.many(tasks, all),
    );
  };

  /** Runs and tasks that are asked for at once go to the store together, with keys that may be taken. */
  const burst = ({ runs, tasks }: Client): void => {
    world.count("request: burst");
    asked(start(runs, someKey(0.7)));
    asked(sendErrand(tasks, someKey(0.7)));
    asked(sendErrand(tasks));
    if (world.chance(0.3)) asked(sendErrands(tasks));
  };

  const signal = async (runs: Runs, runId: string, name: string, good: boolean): Promise<void> => {
    const id = `s${++said}`;
    const payload = { id, good };
    const send = () => runs.signal(runId, name, payload, { id });
    const known = () => checker().signals.acked.add(`${runId}/${id}`);
    world.count("signal: sent");
    if (world.chance(0.2)) {
      world.count("signal: sent twice");
      const both = await Promise.allSettled([send(), send()]);
      if (both.some(({ status }) => status === "fulfilled")) known();
      return;
    }
    await send();
    known();
  };

  const act = ({ runs, tasks, letters }: Client): void => {
    // Tasks end in the same writes as runs.
    if (world.chance(0.1)) return asked(sendErrands(tasks));
    if (world.chance(0.1)) return burst({ runs, tasks, letters });
    if (world.chance(0.04)) return asked(letters.redrive({ name: world.pick(likely) }));
    const runId = acked.length > 2 ? world.pick(acked.slice(-8)) : undefined;
    if (runId === undefined || world.chance(0.5)) return asked(start(runs));
    if (world.chance(0.3)) return asked(runs.cancel(runId));
    if (world.chance(0.3)) return asked(runs.resume(world.pick(acked)));
    if (world.chance(0.2)) return asked(runs.history(runId));
    asked(signal(runs, runId, world.pick(["go", "more", "approval", "other"]), world.chance(0.7)));
  };

  for (const client of clients) {
    const loop = () => {
      if (scheduler.nowMs >= untilMs) return;
      act(client);
      scheduler.after(world.between(gapMs / 4, gapMs * 2), loop);
    };
    scheduler.after(world.between(0, gapMs), loop);
  }

  /** There is always a signal for a run that would wait for ever, unless one is there already. */
  const care = async (): Promise<void> => {
    const waiting = await world.store.database.read(sql`
      select task_id, awaits from ${table("task")} run
      where status = 'pending' and parked = 5 and not exists (
        select 1 from ${table("task_signal")} signal
        where signal.task_id = run.task_id and signal.name = run.awaits and signal.taken = 0)`);
    for (const { task_id: runId, awaits } of waiting) {
      asked(signal(clients[0]!.runs, runId, awaits, true));
    }
    scheduler.after(careEveryMs, () => void care());
  };
  scheduler.after(untilMs + careEveryMs, () => void care());

  /** Starts a run over that has failed or was cancelled, in each of the ways that there are. */
  const startOver = ({ runs, tasks, letters }: Client, taskId: string): Promise<unknown> => {
    const ways = [
      () => runs.resume(taskId),
      () => runs.resume(taskId),
      () => tasks.retry(taskId),
      () => letters.redrive({ taskId }),
    ];
    return world.pick(ways)();
  };

  /** A parent reads its children now, or waits for those of a later step: one of them begins anew. */
  const crossChildren = (row: Row): void => {
    const failed = checker().families.failedOf(row["task_id"]);
    if (failed.length === 0 || !world.chance(0.4)) return;
    const child = world.pick(failed)["task_id"] as string;
    const soonMs = world.between(0, world.troubles.delayMs * 2);
    scheduler.after(soonMs, () => asked(startOver(world.pick(clients), child)));
  };

  /** A pod that can't read a run is about to set it aside, or has: a person gives it up. */
  const giveUp = (row: Row, before: Row | undefined): void => {
    const isAside = Number(row["parked"]) === 6 && Number(before?.["parked"]) !== 6;
    const version = checker().versionOf.get(row["claimed_by"]);
    const isNext =
      row["status"] === "claimed" &&
      before?.["status"] !== "claimed" &&
      row["cursor"] === "wrap" &&
      version === 2;
    if (!(isAside && world.chance(0.6)) && !(isNext && world.chance(0.5))) return;
    const soonMs = world.between(0, world.troubles.delayMs * (isAside ? 4 : 1) + 2);
    scheduler.after(soonMs, () => asked(cancelAside(row["task_id"])));
  };

  /** What is set aside when it is cancelled ends, whether or not a cancel had been asked for before. */
  const cancelAside = async (runId: string): Promise<void> => {
    const before = checker().rows.get(runId)!;
    const sent = cancels.get(runId) ?? 0;
    await world.pick(clients).runs.cancel(runId);
    const after = checker().rows.get(runId)!;
    const isAside = (row: Row) => row["status"] === "pending" && Number(row["parked"]) === 6;
    const isSame = before["claim_token"] === after["claim_token"];
    // One that is sent again may be older than what has set the run aside.
    if (cancels.get(runId) !== sent + 1 || !isSame) return;
    if (isAside(before) && isAside(after)) {
      world.violate("cancel", `${after["name"]} ${runId.slice(-6)} was cancelled, and stays aside`);
    }
  };

  /** What runs are about to do is what is most likely to be crossed. */
  const meddle = (row: Row): void => {
    const { runs } = world.pick(clients);
    const runId = row["task_id"] as string;
    const next = row["cursor"] as string;
    const soonMs = world.between(0, world.troubles.delayMs * 2 + 5);
    const isSignal = signalNames.includes(next);
    if (isSignal && world.chance(0.25)) {
      const good = world.chance(0.8);
      scheduler.after(soonMs, () => asked(signal(runs, runId, next, good)));
    } else if (world.chance(row["waiting"] === null ? 0.03 : 0.08)) {
      scheduler.after(soonMs, () => asked(runs.cancel(runId)));
    }
  };

  return {
    history: requests.history,
    get open() {
      return open;
    },
    close: () => clients.forEach(({ letters }) => letters.close()),
    onMoved({ row, before }) {
      const { status, name } = row;
      if (status === "completed") return;
      const isParent = name === "parent";
      const isOver = scheduler.nowMs >= untilMs + (isParent ? restartsMs : 0);
      if (status === "failed" || status === "cancelled") {
        if (isOver || !world.chance(isParent ? 0.5 : 0.2)) return;
        return asked(startOver(world.pick(clients), row["task_id"]));
      }
      if (waitsForChildren(row) && scheduler.nowMs < untilMs + restartsMs) crossChildren(row);
      if (scheduler.nowMs >= untilMs) return;
      giveUp(row, before);
      const changed =
        before && (before["cursor"] !== row["cursor"] || before["status"] !== row["status"]);
      if (changed) meddle(row);
      else if (!before && orders[row["name"]]![0] === "go" && world.chance(0.2)) {
        meddle({ ...row, cursor: "go" });
      }
    },
  };
}
