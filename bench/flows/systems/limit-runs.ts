import { systemClock } from "../../../src/base/clock.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { systemRandom } from "../../../src/base/random.ts";
import type { Statement } from "../../../src/store/sql.ts";
import type { Payload } from "../../systems/system.ts";
import {
  advanceRuns,
  claimOpenRuns,
  finishRuns,
  insertRuns,
  type LimitRun,
} from "./limit-statements.ts";
import { type Entered, type Runs, steps } from "./system.ts";

/** A connection that commits statements together, and gives the rows of each. */
export type Bare = { commit(statements: readonly Statement[]): Promise<unknown[][]> };

type Item = LimitRun & { payload: string; stored: boolean; started(): void; ended(): void };

const claimedAtOnce = 1_000;

/**
 * The limit of runs: whichever connection is idle takes its share of what is ready, of all runs,
 * and commits it as one transaction. There is nothing else around the statements.
 */
export async function runWithBare(connections: readonly Bare[], entered: Entered): Promise<Runs> {
  const ids = uuidv7(systemClock, systemRandom);
  const ready: Item[] = [];
  const idle = [...connections];

  const pump = (): void => {
    while (ready.length > 0 && idle.length > 0) {
      const taken = ready.splice(0, Math.ceil(ready.length / idle.length));
      void turn(idle.pop()!, taken);
    }
  };
  const turn = async (bare: Bare, taken: readonly Item[]): Promise<void> => {
    const isLast = ({ step }: Item) => step === steps - 1;
    const news = taken.filter(({ stored }) => !stored);
    const olds = taken.filter(({ stored }) => stored);
    const onward = olds.filter((item) => !isLast(item));
    const ending = olds.filter(isLast);
    const tables = await bare.commit([
      ...(onward.length > 0 ? advanceRuns(onward) : []),
      ...(ending.length > 0 ? finishRuns(ending) : []),
      ...(news.length > 0 ? insertRuns(news) : []),
    ]);
    // Nothing but the updates of runs gives rows.
    const changed = tables.reduce((sum, found) => sum + found.length, 0);
    if (changed !== olds.length) {
      throw new Error(`${changed} of ${olds.length} runs were still as they had been`);
    }
    idle.push(bare);
    for (const item of taken) {
      if (item.stored && isLast(item)) item.ended();
      else enter({ ...item, stored: true, step: item.stored ? item.step + 1 : 0 });
      if (!item.stored) item.started();
    }
    queueMicrotask(pump);
  };
  const enter = (item: Item): void => {
    const again = () => ready.push({ ...item, startedAtMs: Date.now() });
    const held = entered(item.number, item.step);
    if (held === undefined) again();
    else void held.then(again).then(pump);
  };
  const add = (payload: Payload, calls: Pick<Item, "started" | "ended">): void => {
    const text = JSON.stringify(payload);
    const run = { taskId: ids.next(), number: payload.number, step: 0, startedAtMs: 0 };
    ready.push({ ...run, payload: text, stored: false, ...calls });
    // Whoever else starts one now shares its commit.
    queueMicrotask(pump);
  };
  const nothing = () => {};

  /** Whatever another process left open goes on. */
  const resume = async (): Promise<void> => {
    for (;;) {
      const [found] = await connections[0]!.commit([claimOpenRuns(claimedAtOnce)]);
      for (const row of found!) {
        const [taskId, payload, cursor] = Object.values(row as object) as string[];
        const { number } = JSON.parse(payload!) as Payload;
        const step = Number(cursor!.split("-")[1]);
        const open = { taskId: taskId!, number, step, startedAtMs: Date.now() };
        enter({ ...open, payload: payload!, stored: true, started: nothing, ended: nothing });
      }
      pump();
      if (found!.length < claimedAtOnce) return;
    }
  };
  await resume();
  return {
    start: (payload) =>
      new Promise<void>((resolve) => add(payload, { started: resolve, ended: nothing })),
    finish: (payload) =>
      new Promise<void>((resolve) => add(payload, { started: nothing, ended: resolve })),
  };
}
