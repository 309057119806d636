import type { Clock } from "../../base/clock.ts";
import { hasCode, messageOf, storeWideCodes } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { createFinishWriter, type FinishResult, type FinishWriter } from "./finish-writer.ts";
import type { Finish } from "../sql/finish.ts";
import { isKeptStep, type LeftOver, type Outbox } from "./outbox.ts";

export type LeftoverParts = {
  outbox: Outbox;
  database: Database;
  clock: Clock;
  random: Random;
  log: Logger;
  signal: AbortSignal;
};

/**
 * Sends outcomes that earlier processes on this machine could not store. An outcome counts if no
 * pod has claimed the task since: the token is the fence, not the sender. Resolves when all are
 * sent.
 */
export async function sendLeftovers(parts: LeftoverParts): Promise<void> {
  const { outbox, log } = parts;
  let left: LeftOver[];
  try {
    left = await outbox.takeOver();
  } catch (error) {
    return log.warn({ error: messageOf(error) }, "results left by earlier pods could not be read");
  }
  if (left.length === 0) return;
  log.info({ tasks: left.length }, "sending results left by earlier pods");
  // Events of a task name the pod that they happened on.
  const podIds = new Set(left.map(({ podId }) => podId));
  await Promise.all(
    [...podIds].flatMap((podId) => {
      const finishWriter = createFinishWriter({ ...parts, podId });
      const entries = left.filter((entry) => entry.podId === podId);
      const byTask = Map.groupBy(entries, ({ finish }) => finish.taskId);
      return [...byTask.values()].map((ofTask) => sendInOrder(ofTask, finishWriter, parts));
    }),
  );
}

/** Steps of a task are stored before its outcome, which closes the task for them. */
async function sendInOrder(
  entries: readonly LeftOver[],
  finishWriter: FinishWriter,
  parts: LeftoverParts,
): Promise<void> {
  const [steps, finishes] = [
    entries.filter(({ finish }) => isKeptStep(finish)),
    entries.filter(({ finish }) => !isKeptStep(finish)),
  ];
  await Promise.all(steps.map((entry) => send(entry, finishWriter, parts)));
  await Promise.all(finishes.map((entry) => send(entry, finishWriter, parts)));
}

async function send(
  entry: LeftOver,
  finishWriter: FinishWriter,
  { log, signal }: LeftoverParts,
): Promise<void> {
  const fields = { task: entry.finish.taskId, token: entry.finish.token, pod: entry.podId };
  try {
    const { finish } = entry;
    const outcome = isKeptStep(finish)
      ? (await finishWriter.storeStep(finish)).type
      : await finishUntilDecided(finish, finishWriter);
    entry.done();
    log.info({ ...fields, outcome }, "result of an earlier pod sent");
  } catch (error) {
    // The entry stays for the next process.
    if (signal.aborted || hasCode(error, ...storeWideCodes)) return;
    entry.done();
    log.error(
      { ...fields, error: messageOf(error) },
      "result of an earlier pod refused by the store",
    );
  }
}

async function finishUntilDecided(
  left: Finish,
  finishWriter: FinishWriter,
): Promise<Exclude<FinishResult["type"], "woken">> {
  for (let finish = left; ;) {
    const finished = await finishWriter.finish(finish);
    if (finished.type !== "woken") return finished.type;
    finish = decideAgain(finish, finished);
  }
}

/**
 * Decides a finish again after its row has been woken: unchanged, unless the task was cancelled.
 */
export function decideAgain(
  finish: Finish,
  { wake, cancelRequested }: { wake: number; cancelRequested: boolean },
): Finish {
  // What a parked task waits for may be there by now.
  const { awaits, children: _, ...released } = finish;
  if (!cancelRequested && awaits !== undefined) return { ...released, delayMs: 0, wake };
  if (!cancelRequested) return { ...finish, wake };
  return {
    taskId: finish.taskId,
    token: finish.token,
    status: "cancelled",
    result: null,
    error: null,
    counted: 0,
    delayMs: null,
    wake: null,
    event: { type: "cancelled", attempt: finish.event?.attempt ?? 1, detail: null },
  };
}
