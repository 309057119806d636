/**
 * Operators at work: they pause names or everything and resume them, fix what makes tasks fail or break it
 * anew, and have failed tasks started over. Two of them, who don't talk to each other.
 */
import { sleep } from "../../src/base/clock.ts";
import { hasCode, transientCodes } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { type Bulks, createBulks } from "../../src/bulk/bulks.ts";
import { createDeadLetters, type DeadLetters } from "../../src/dead-letters/dead-letters.ts";
import type { Selection } from "../../src/dead-letters/redrive.ts";
import { createTasks, type Tasks } from "../../src/tasks/tasks.ts";
import { allNames } from "../../src/protocol/task-options.ts";
import { createLane, laneClock } from "./lane.ts";
import type { Network } from "./link.ts";
import type { Pauses, Wish } from "./pauses.ts";
import { scheduledOp } from "./schedules.ts";
import type { Payload } from "./workload.ts";
import { startOfTimeMs, type World } from "./world.ts";

export type Operators = { readonly open: number; close(): void };

type Operator = {
  readonly tasks: Tasks;
  readonly letters: DeadLetters & { close(): void };
  readonly bulk: Bulks;
  rest(lowMs: number, highMs: number): Promise<void>;
};

export type OperatorsOptions = {
  pauses: Pauses;
  untilMs: number;
  /** One of them pauses and resumes short tasks again and again. */
  hasty: boolean;
  /** A third acts by processes that may be killed at each of their requests. */
  killed: boolean;
  /** One of them acts on all tasks of a name, again and again. */
  bulks: boolean;
};

const brokenName = "broken";
const hastyRestMs = 600;

export function startOperators(
  world: World,
  network: Network,
  { pauses, untilMs, hasty, killed, bulks }: OperatorsOptions,
): Operators {
  const { scheduler } = world;
  const isOver = () => scheduler.nowMs >= untilMs;
  const begun = (who: string, isMortal = false): Operator => {
    const lane = createLane(scheduler);
    const wallMs = () => startOfTimeMs + scheduler.nowMs;
    const clock = laneClock(scheduler, lane, { wallMs, startMs: 0 });
    const random = world.fork();
    const parts = {
      database: network.connect({ who, lane, ...(isMortal && { crash: () => lane.kill() }) }),
      clock,
      random,
      ids: uuidv7(clock, random),
    };
    return {
      tasks: createTasks(parts),
      letters: createDeadLetters(parts),
      bulk: createBulks(parts),
      rest: (lowMs, highMs) => sleep(clock, world.between(lowMs, highMs)),
    };
  };
  const operators = ["o1", "o2"].map((who) => begun(who));
  let open = 0;

  /** Does something that may fail as everything may. */
  const tried = async <Answer>(work: Promise<Answer>): Promise<Answer | undefined> => {
    try {
      return await work;
    } catch (error) {
      if (hasCode(error, ...transientCodes, "conflict", "not_found")) return undefined;
      throw error;
    }
  };
  const begin = (work: Promise<void>): void => {
    open++;
    void work.then(() => open--);
  };

  const wish = async ({ tasks }: Operator, what: Wish, target: string): Promise<boolean> => {
    const tell = pauses.ask(what, target);
    const name = target === allNames ? undefined : target;
    const done = await tried(tasks[what](name).then(() => true));
    tell(done === true);
    world.count(`pause: ${what}${done ? "" : ", unknown"}`);
    return done === true;
  };

  const pauseAndResume = async (
    operator: Operator,
    target: string,
    restMs = 3_000,
  ): Promise<void> => {
    while (!isOver()) {
      await operator.rest(100, restMs);
      await wish(operator, "pause", target);
      await operator.rest(1, (restMs * 2) / 3);
      if (world.chance(0.8)) await wish(operator, "resume", target);
    }
    while (!(await wish(operator, "resume", target))) await operator.rest(100, 500);
  };

  const makeBroken = async ({ tasks }: Operator): Promise<readonly string[]> => {
    const payload: Payload = { op: scheduledOp, workMs: 30, times: 0 };
    const payloads = Array.from({ length: world.between(3, 9) }, () => payload);
    const made = await tried(tasks.enqueueMany(brokenName, payloads));
    return made?.map(({ taskId }) => taskId) ?? [];
  };

  const selected = async ({ letters }: Operator): Promise<Selection> => {
    if (world.chance(0.2)) return { all: true };
    if (world.chance(0.6)) return { name: brokenName };
    const [first] = (await tried(letters.groups({ name: brokenName })))?.groups ?? [];
    return first ? { group: first.group } : { name: brokenName };
  };

  const redriveNowAndThen = async (operator: Operator): Promise<void> => {
    const made = await makeBroken(operator);
    while (!isOver()) {
      await operator.rest(1_500, 6_000);
      world.broken = world.chance(0.2);
      const maxStep = world.pick([2, 256]);
      const { letters } = operator;
      const redrive = await tried(letters.redrive(await selected(operator), { maxStep }));
      await operator.rest(0, 2_500);
      // An operator changes the one that is likely to be claimed just now.
      const [first] = made;
      if (first && world.chance(0.5)) await tried(operator.tasks.retry(first));
      await operator.rest(0, 2_500);
      if (world.chance(0.3)) world.broken = true;
      if (redrive && world.chance(0.15)) await tried(letters.cancelRedrive(redrive.redriveId));
    }
  };

  const actAndDie = async (operator: Operator): Promise<void> => {
    const made = await makeBroken(operator);
    while (!isOver() && made.length > 0) {
      await operator.rest(100, 800);
      const { tasks } = begun("o3", true);
      const act = world.pick(["cancel", "retry"] as const);
      world.count(`audit: ${act} by a process that may die`);
      // It never settles if the process is killed.
      void tried<unknown>(tasks[act](world.pick(made)));
    }
  };

  const actOnAllNowAndThen = async (operator: Operator): Promise<void> => {
    const { bulk } = operator;
    while (!isOver()) {
      await makeBroken(operator);
      world.broken = world.chance(0.7);
      await operator.rest(500, 2_500);
      const action = world.chance(0.3) ? "cancel" : "retry";
      const begunBulk = await tried(bulk.start({ action, filter: { name: brokenName } }));
      await operator.rest(0, 1_500);
      if (begunBulk && world.chance(0.2)) await tried(bulk.stop(begunBulk.bulkId));
    }
    world.broken = false;
  };

  if (hasty) begin(pauseAndResume(operators[0]!, "quick", hastyRestMs));
  if (world.chance(0.4)) {
    const targets = [allNames, "quick", "slow", brokenName];
    const target = world.pick(targets);
    for (const operator of operators) {
      // Both often want something of the same.
      const own = world.chance(0.6) ? target : world.pick(targets);
      if (world.chance(0.7)) begin(pauseAndResume(operator, own));
    }
  }
  if (world.chance(0.4)) {
    for (const operator of operators) if (world.chance(0.7)) begin(redriveNowAndThen(operator));
  }
  if (killed) begin(actAndDie(begun("o4")));
  if (bulks) begin(actOnAllNowAndThen(begun("o5")));
  return {
    get open() {
      return open;
    },
    close: () => operators.forEach(({ letters }) => letters.close()),
  };
}
