/**
 * Those who ask for runs: they start them, say something to them, cancel them and start them over, at
 * random and just when a run is about to wait. When the faults have stopped, somebody sees to it that no
 * run waits for a word that nobody would ever say.
 */
import { hasCode } from "../../../src/base/errors.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { createRuns, type Runs, type StartOptions } from "../../../src/flow/client.ts";
import { createDeadLetters, type DeadLetters } from "../../../src/deadletters/client.ts";
import { createTasks, type Tasks } from "../../../src/queue/client.ts";
import { passing } from "../../../src/queue/resend.ts";
import type { Row } from "../../../src/store/database.ts";
import { sql, table } from "../../../src/store/sql.ts";
import { createLane, laneClock } from "../lane.ts";
import type { Network } from "../link.ts";
import { startOfTimeMs, type World } from "../world.ts";
import type { FlowChecker, Moved } from "./checker.ts";
import { drawInput } from "./inputs.ts";
import { errand, orders, signalNames } from "./machines.ts";

/** A request for a run, and what the client was told. */
export type Started = {
  readonly op: number;
  readonly flow: string;
  readonly key: string | undefined;
  runId: string | undefined;
  failed: boolean;
};

export type FlowClients = {
  readonly started: readonly Started[];
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

const likely = ["order", "order", "parent", "parent", "ask", "ask", "plain", "plain", "parcel"];
const careEveryMs = 2_000;

export function startFlowClients(
  world: World,
  network: Network,
  { checker, untilMs, gapMs }: FlowClientsOptions,
): FlowClients {
  const { scheduler } = world;
  const started: Started[] = [];
  const acked: string[] = [];
  let open = 0;
  let said = 0;

  const asked = (work: Promise<unknown>): void => {
    open++;
    void work
      .catch((error: unknown) => {
        const codes = ["conflict", "not_found", "unknown_outcome", "store_busy"] as const;
        if (!hasCode(error, ...codes, ...passing)) throw error;
      })
      .finally(() => open--);
  };

  const clients = ["c1", "c2"].map((who): Client => {
    const lane = createLane(scheduler);
    const wallMs = () => startOfTimeMs + scheduler.nowMs;
    const clock = laneClock(scheduler, lane, { wallMs, startMs: 0 });
    const random = world.fork();
    const database = network.connect({ who, lane });
    const parts = { database, clock, random, ids: uuidv7(clock, random) };
    const tasks = createTasks(parts);
    return { runs: createRuns(tasks, parts), tasks, letters: createDeadLetters(parts) };
  });

  const start = async (runs: Runs): Promise<void> => {
    const flow = world.pick(likely);
    const key = world.chance(0.2) ? `k${world.between(1, 3)}` : undefined;
    const request: Started = {
      op: started.length + 1,
      flow,
      key,
      runId: undefined,
      failed: false,
    };
    started.push(request);
    const newest = acked.slice(-4);
    const waits = newest.length > 1 && world.chance(0.2);
    const options: StartOptions = {
      ...(key !== undefined && { key }),
      ...(world.chance(0.2) && { delayMs: world.between(1, 4_000) }),
      ...(world.chance(0.2) && { priority: world.between(-2, 2) }),
      ...(waits && {
        after: [...new Set([world.pick(newest), world.pick(newest)])],
        afterFailed: world.pick(["fail", "run"] as const),
      }),
    };
    try {
      const { runId } = await runs.start(flow, drawInput(world, flow, request.op), options);
      request.runId = runId;
      acked.push(runId);
    } catch (error) {
      if (!hasCode(error, "unknown_outcome")) request.failed = true;
      throw error;
    }
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
    if (world.chance(0.15)) return asked(tasks.enqueueMany(errand, [{}, {}, {}]));
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

  /** Somebody always has a word for a run that would wait for ever, unless one is there already. */
  const care = async (): Promise<void> => {
    const waiting = await world.store.database.read(sql`
      select task_id, awaits from ${table("step_tracker")} run
      where status = 'pending' and parked = 5 and not exists (
        select 1 from ${table("step_signal")} signal
        where signal.task_id = run.task_id and signal.name = run.awaits and signal.taken = 0)`);
    for (const { task_id: runId, awaits } of waiting) {
      asked(signal(clients[0]!.runs, runId, awaits, true));
    }
    scheduler.after(careEveryMs, () => void care());
  };
  scheduler.after(untilMs + careEveryMs, () => void care());

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
    started,
    get open() {
      return open;
    },
    close: () => clients.forEach(({ letters }) => letters.close()),
    onMoved({ row, before }) {
      if (scheduler.nowMs >= untilMs || row["status"] === "completed") return;
      if (row["status"] === "failed" || row["status"] === "cancelled") {
        if (world.chance(row["name"] === "parent" ? 0.5 : 0.2))
          asked(world.pick(clients).runs.resume(row["task_id"]));
        return;
      }
      const changed =
        before && (before["cursor"] !== row["cursor"] || before["status"] !== row["status"]);
      if (changed) meddle(row);
      else if (!before && orders[row["name"]]![0] === "go" && world.chance(0.2)) {
        meddle({ ...row, cursor: "go" });
      }
    },
  };
}
