import { callingBatcher } from "../base/batcher.ts";
import type { Clock } from "../base/clock.ts";
import { type ErrorCode, hasCode } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Database, Row } from "../store/database.ts";
import { byTurns } from "./apart.ts";
import { resend, untilMended } from "./resend.ts";
import {
  type Finish,
  finishTasks,
  followFinishes,
  lookAt,
  noteFinishes,
  wakeAfter,
  wakesOthers,
} from "./statements/finish.ts";
import { freeKey } from "./room-keeping.ts";
import { freeRoom } from "./statements/gates.ts";
import { forgetEarlierSnoozes } from "./statements/snooze.ts";

/**
 * What became of a finish: stored; lost to another pod; or to be decided again, because the row has
 * been woken since its claim.
 */
export type Finished =
  | { readonly type: "stored" }
  | { readonly type: "lost" }
  | { readonly type: "woken"; readonly wake: number; readonly cancelRequested: boolean };

// Somebody holds one of the rows, for as long as it pleases them: each goes its own way from here, so
// that the others needn't wait for that one.
type Apart = { readonly type: "apart" };
const apart: Apart = { type: "apart" };
const storedAll: Finished = { type: "stored" };
// Others have begun to wait for it since its claim: it is sent again, so that they are woken with it.
type Awaited = { readonly type: "awaited" };
const awaited: Awaited = { type: "awaited" };
const unlessBusy = untilMended.filter((code) => code !== "store_busy");

export type StoreHow = {
  /** Whether somebody probably holds the row, so that others had better not wait with this one. */
  apart: boolean;
};

export type Finishing = {
  store(finish: Finish, how?: StoreHow): Promise<Finished>;
  /** The same, but calls back: for what ends by the thousand, a promise each would be felt. */
  put(
    finish: Finish,
    onFinished: (finished: Finished) => void,
    onError: (error: unknown) => void,
  ): void;
  /** How tasks stand, by their ids. */
  look(taskIds: string[]): Promise<ReadonlyMap<string, Row>>;
  /** Lets others of a key, or of the same tenant, go on after an ending that wasn't stored here. */
  madeRoom(group: string | null): Promise<void>;
};

/** The way out for attempts that have ended: whatever ended meanwhile is one statement. */
export function createFinishing(parts: {
  database: Database;
  clock: Clock;
  random: Random;
  podId: string;
  /** Fires when there is no more time to wait for the store. */
  signal: AbortSignal;
  /** Told when tasks that waited for others, or for room, may have become free. */
  onWoken?: () => void;
  /** Told when a send has failed and is to be made again. */
  onTrouble?: () => void;
}): Finishing {
  const { database, podId } = parts;

  const sendTogether = async (finishes: Finish[]): Promise<(Finished | Apart | Awaited)[]> => {
    try {
      return await send(finishes, unlessBusy);
    } catch (error) {
      if (hasCode(error, "store_busy")) return finishes.map(() => apart);
      throw error;
    }
  };

  const send = async (
    finishes: Finish[],
    codes: readonly ErrorCode[],
  ): Promise<(Finished | Awaited)[]> => {
    const noted = finishes.some((each) => each.event !== null);
    const snoozed = finishes.filter((each) => each.snoozed).map(({ taskId }) => taskId);
    const { holding, freeing } = freeRoom(finishes);
    const following = followFinishes(finishes);
    const statements = [
      ...holding,
      ...(noted ? [noteFinishes(podId, finishes)] : []),
      ...(snoozed.length > 0 ? [forgetEarlierSnoozes(snoozed)] : []),
      ...following,
      finishTasks(finishes),
    ];
    const waking = [...wakeAfter(finishes), ...freeing];
    // What went through a gate has made room, for others of its key or of its tenant.
    const woken =
      waking.length + following.length > 0 || finishes.some((each) => each.gate !== undefined);
    const { tables } = await resend(database, [...statements, ...waking], {
      ...parts,
      codes,
      ...(parts.onTrouble && { onFailed: parts.onTrouble }),
      hint: woken || finishes.some((each) => each.delayMs === 0),
    });
    if (woken) parts.onWoken?.();
    const stored = tables[statements.length - 1]!;
    if (stored.length === finishes.length) return finishes.map(() => storedAll);
    const ids = new Set(stored.map((row) => row["task_id"] as string));
    return judge(finishes, ids);
  };

  // Zero rows means: look. What is terminal with our token was stored by an earlier send of ours.
  const judge = async (
    finishes: Finish[],
    stored: Set<string>,
  ): Promise<(Finished | Awaited)[]> => {
    const missing = finishes.filter((each) => !stored.has(each.taskId));
    const seen = await patientRead(missing.map((each) => each.taskId));
    const wakes = wakesOthers(finishes);
    return finishes.map((finish): Finished | Awaited => {
      if (stored.has(finish.taskId)) return { type: "stored" };
      const row = seen.get(finish.taskId);
      if (!row || Number(row["claim_token"]) !== finish.token) return { type: "lost" };
      if (row["status"] === finish.status && finish.status !== "pending") return { type: "stored" };
      const wake = Number(row["wake"]);
      const open = row["status"] === "claimed" || row["status"] === "pending";
      if (open && !wakes && Number(row["awaited"]) > 0) return awaited;
      if (!open || finish.wake === null || wake === finish.wake) return { type: "lost" };
      return { type: "woken", wake, cancelRequested: Number(row["cancel_requested"]) === 1 };
    });
  };

  const patientRead = async (taskIds: string[]) => {
    // A look that fails is made again; it rides the same patience as the writes.
    for (;;) {
      try {
        const rows = await database.read(lookAt(taskIds));
        return new Map(rows.map((row) => [row["task_id"] as string, row]));
      } catch (error) {
        if (parts.signal.aborted || hasCode(error, "closed")) throw error;
        await new Promise<void>((resolve) => parts.clock.after(100, resolve));
      }
    }
  };

  const putTogether = callingBatcher(sendTogether);
  const together = (finish: Finish) =>
    new Promise<Finished | Apart | Awaited>((resolve, reject) =>
      putTogether(finish, resolve, reject),
    );
  const one = byTurns(parts, async (finish: Finish) => (await send([finish], unlessBusy))[0]!);

  /** Goes on with what wasn't stored with others, until it is known what became of it. */
  const goOn = async (
    finish: Finish,
    first: Apart | Awaited,
    how?: StoreHow,
  ): Promise<Finished> => {
    let sent = finish;
    let finished: Finished | Apart | Awaited = first;
    while (finished.type === "apart" || finished.type === "awaited") {
      const isAwaited: boolean = finished.type === "awaited";
      if (isAwaited) sent = { ...finish, awaited: true };
      // Where one task waits for a thousand, those become awaited in the same moment.
      finished = await (isAwaited && !how?.apart ? together : one)(sent);
    }
    return finished;
  };

  const put: Finishing["put"] = (finish, onFinished, onError) =>
    putTogether(
      finish,
      (finished) => {
        const isOpen = finished.type === "apart" || finished.type === "awaited";
        if (isOpen) void goOn(finish, finished).then(onFinished, onError);
        else onFinished(finished);
      },
      onError,
    );

  return {
    put,
    store: (finish, how) =>
      how?.apart
        ? goOn(finish, apart, how)
        : new Promise((resolve, reject) => put(finish, resolve, reject)),
    look: patientRead,
    async madeRoom(group) {
      await freeKey(parts, group);
      parts.onWoken?.();
    },
  };
}
