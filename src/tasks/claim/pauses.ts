import { type ActParts, beginAct, writeAct } from "../../audit/act.ts";
import { FlotillaError, transientCodes } from "../../base/errors.ts";
import { checkOptions, isStorable } from "../../base/options.ts";
import { allNames } from "../../protocol/task-options.ts";
import type { Database } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { writeUntilKnown } from "../../store/retry.ts";
import {
  dropPause,
  entryOfPause,
  listPausesWithActors,
  numberToPause,
  numberToResume,
  podIds,
  putPause,
  selectPauses,
  notifyPod,
  notifyPods,
} from "../sql/limits.ts";
import { checkTaskName } from "../task.ts";

export type PauseOptions = {
  /** Why, as text for operators. At most 500 characters. */
  reason?: string;
};

export type Paused = {
  /** A task's name, or `*` for the pause of all names. */
  readonly name: string;
  readonly sinceMs: number;
  readonly reason: string | null;
  /** The actor, as in the audit; null where it has no entry of it, as of a handler. */
  readonly by: string | null;
};

export type Pauses = {
  /**
   * Stops claims of tasks of a name, or of all tasks without a name. Once it has resolved, no pod
   * claims such a task; running attempts continue. A name without tasks or handlers can be paused
   * too.
   */
  pause(name?: string, options?: PauseOptions): Promise<void>;
  /**
   * Ends that pause. Without a name it ends the pause of all names; names that were paused one by
   * one stay paused.
   */
  resume(name?: string): Promise<void>;
  paused(): Promise<Paused[]>;
};

/** The pauses as a pod last read them. */
export type KnownPauses = {
  /** The number of the pause state, which a claim must carry. */
  readonly number: number;
  readonly names: ReadonlySet<string>;
};

const writeTimeoutMs = 30_000;
const maxReasonChars = 500;

// No pod row has this number, so a pod without a row claims nothing.
const unknownNumber = -1;

/** Creates the operations on pauses. */
export function createPauses(
  parts: ActParts & {
    /**
     * Called after a pause has ended, so that a pod in this process claims without waiting for a
     * notification.
     */
    onEnqueued?: () => void;
  },
): Pauses {
  const { database, clock, random, onEnqueued } = parts;
  const retryOptions = { clock, random, limitMs: writeTimeoutMs, codes: transientCodes };

  /**
   * A number whose answer is lost is never used, so a retry takes a new one. All later writes are
   * retried with the same number, so a write that lands late cannot undo a newer pause or resume.
   */
  const takePauseNumber = async (asking: readonly Statement[]): Promise<number | undefined> => {
    const { tables } = await writeUntilKnown(database, asking, retryOptions);
    const [row] = tables[1]!;
    return row && Number(row["given"]);
  };

  return {
    async pause(name = allNames, options = {}) {
      if (name !== allNames) checkTaskName(name);
      checkOptions("pause", options, ["reason"]);
      const reason = checkReason(options.reason);
      const act = await beginAct(parts, { action: "names.pause", subject: name, reason });
      if (!act.stored) {
        const number = await takePauseNumber(numberToPause(name));
        await writeAct(
          parts,
          act,
          {
            statements: (_, entry) => [
              ...entryOfPause({ name, number: number!, paused: 1 }, entry),
              putPause(name, reason, number!),
              notifyPods(),
            ],
            hasAnswer: false,
          },
          retryOptions,
        );
      }
      // A pod that began a claim before the pause was stored has a row by now.
      const { tables } = await writeUntilKnown(database, [podIds()], retryOptions);
      await Promise.all(
        tables[0]!.map((row) =>
          writeUntilKnown(database, notifyPod(row["pod_id"] as string), retryOptions),
        ),
      );
    },
    async resume(name = allNames) {
      if (name !== allNames) checkTaskName(name);
      const act = await beginAct(parts, { action: "names.resume", subject: name });
      if (act.stored) return;
      const number = await takePauseNumber(numberToResume(name));
      if (number === undefined) return;
      await writeAct(
        parts,
        act,
        {
          statements: (_, entry) => [
            ...entryOfPause({ name, number, paused: 0 }, entry),
            dropPause(name, number),
            notifyPods(),
          ],
          hasAnswer: false,
          notify: true,
        },
        retryOptions,
      );
      onEnqueued?.();
    },
    async paused() {
      const found = await database.read(listPausesWithActors());
      return found.map((row) => ({
        name: row["name"],
        sinceMs: Number(row["at"]),
        reason: row["reason"],
        by: row["actor"],
      }));
    },
  };
}

export async function readPauses(database: Database, podId: string): Promise<KnownPauses> {
  const found = await database.read(selectPauses(podId));
  const names = found.map((row) => row["name"] as string | null);
  return {
    number: found.length === 0 ? unknownNumber : Number(found[0]!["pauses"]),
    names: new Set(names.filter((name) => name !== null)),
  };
}

/** Returns the names that are not paused. */
export function unpaused(names: readonly string[], pauses: KnownPauses): readonly string[] {
  if (pauses.names.size === 0) return names;
  return pauses.names.has(allNames) ? [] : names.filter((name) => !pauses.names.has(name));
}

function checkReason(reason: unknown): string | null {
  if (reason === undefined) return null;
  if (typeof reason === "string" && reason.length <= maxReasonChars && isStorable(reason)) {
    return reason;
  }
  const message = `reason must be at most ${maxReasonChars} characters of text that databases can store`;
  throw new FlotillaError("invalid_option", message);
}
