import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { passing, resend } from "../../store/retry.ts";
import {
  dropPause,
  everything,
  listPauses,
  numberToPause,
  numberToResume,
  podIds,
  putPause,
  seePauses,
  tellPod,
  tellPods,
} from "../sql/limits.ts";
import { checkName } from "../task.ts";

export type PauseOptions = {
  /** Why, for people. At most 500 characters. */
  reason?: string;
};

export type Paused = {
  /** A task's name, or `*` where everything is paused. */
  readonly name: string;
  readonly sinceMs: number;
  readonly reason: string | null;
};

export type Pausing = {
  /**
   * Keeps tasks of a name, or without one all tasks, from being claimed. Once it has resolved nobody
   * claims one; what runs goes on. A name that nobody knows may be paused too.
   */
  pause(name?: string, options?: PauseOptions): Promise<void>;
  /** Ends that pause. Without a name it ends the pause of everything; paused names stay so. */
  resume(name?: string): Promise<void>;
  paused(): Promise<Paused[]>;
};

const limitMs = 30_000;
const reasonChars = 500;

export function createPausing(parts: {
  database: Database;
  clock: Clock;
  random: Random;
  /** Told after a pause was ended, so that a pod in this process needn't wait for a hint. */
  onEnqueued?: () => void;
}): Pausing {
  const { database, onEnqueued } = parts;
  const patience = { ...parts, limitMs, codes: passing };

  /**
   * A number whose answer is lost is never used, so another does as well. Everything else is sent again
   * with the number that it was sent with first: a send that lands late can't undo what was done since.
   */
  const takeNumber = async (asking: readonly Statement[]): Promise<number | undefined> => {
    const { tables } = await resend(database, asking, patience);
    const [row] = tables[1]!;
    return row && Number(row["given"]);
  };

  return {
    async pause(name = everything, options = {}) {
      if (name !== everything) checkName(name);
      checkOptions("pause", options, ["reason"]);
      const reason = checkReason(options.reason);
      const number = await takeNumber(numberToPause(name));
      await resend(database, [putPause(name, reason, number!), tellPods()], patience);
      // Whoever began to claim before that was stored is a pod that was known by now.
      const { tables } = await resend(database, [podIds()], patience);
      await Promise.all(
        tables[0]!.map((row) => resend(database, tellPod(row["pod_id"] as string), patience)),
      );
    },
    async resume(name = everything) {
      if (name !== everything) checkName(name);
      const number = await takeNumber(numberToResume(name));
      if (number === undefined) return;
      await resend(database, [dropPause(name, number), tellPods()], { ...patience, hint: true });
      onEnqueued?.();
    },
    async paused() {
      const found = await database.read(listPauses());
      return found.map((row) => ({
        name: row["name"],
        sinceMs: Number(row["at"]),
        reason: row["reason"],
      }));
    },
  };
}

function checkReason(reason: unknown): string | null {
  if (reason === undefined) return null;
  if (typeof reason === "string" && reason.length <= reasonChars && isStorable(reason)) {
    return reason;
  }
  const message = `reason must be at most ${reasonChars} characters of text that databases can store`;
  throw new FlotillaError("invalid_option", message);
}

function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes("\u0000");
}

/** What a pod knows of pauses. */
export type KnownPauses = {
  /** The number to claim with. */
  readonly number: number;
  readonly names: ReadonlySet<string>;
};

// No pod has this number, so one that isn't known claims nothing, as it would anyway.
const unknownNumber = -1;

export async function readPauses(database: Database, podId: string): Promise<KnownPauses> {
  const found = await database.read(seePauses(podId));
  const names = found.map((row) => row["name"] as string | null);
  return {
    number: found.length === 0 ? unknownNumber : Number(found[0]!["pauses"]),
    names: new Set(names.filter((name) => name !== null)),
  };
}

/** Those of its names that a pod may claim. */
export function unpaused(names: readonly string[], pauses: KnownPauses): readonly string[] {
  if (pauses.names.size === 0) return names;
  return pauses.names.has(everything) ? [] : names.filter((name) => !pauses.names.has(name));
}
