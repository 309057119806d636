import { isJsonObject, type Json } from "../../base/json.ts";
import type { Unfinished } from "../../steps/unfinished.ts";
import type { Reply } from "../conversation/command.ts";
import type { Turn } from "../conversation/header.ts";
import type { Reads } from "../log/journal.ts";

/** What unfinished steps of a turn have made, by their keys. */
type MadeSoFar = { readonly [key: string]: Json };

/** What a checkpoint holds: the reply so far, and what the next attempt may go on with. */
type CheckpointBody = { readonly reply: Reply; readonly unfinished: MadeSoFar };

export type TurnUnfinished = ReturnType<typeof createUnfinished>;

export function encodeCheckpoint(reply: Reply, unfinished: MadeSoFar): string {
  const isNothing = Object.keys(unfinished).length === 0;
  return JSON.stringify(isNothing ? reply : { ...reply, unfinished });
}

export function decodeCheckpoint(body: string): CheckpointBody {
  const { unfinished, ...reply } = JSON.parse(body) as Reply & { unfinished?: unknown };
  return { reply, unfinished: isJsonObject(unfinished) ? (unfinished as MadeSoFar) : {} };
}

/** What earlier attempts at this turn have kept. The first one finds nothing, and doesn't read. */
export async function readUnfinished(
  journal: Pick<Reads, "checkpoint">,
  sessionId: string,
  { epoch, attempt }: Pick<Turn, "epoch" | "attempt">,
): Promise<MadeSoFar> {
  const stored = attempt > 1 ? await journal.checkpoint(sessionId) : undefined;
  if (stored?.epoch !== epoch || stored.attempt >= attempt) return {};
  return decodeCheckpoint(stored.body).unfinished;
}

/**
 * What unfinished steps have made, from the checkpoint of the attempt before to those of this one. It stays
 * in them until the step goes on with it, so that an attempt that is lost before loses nothing.
 */
export function createUnfinished(stored: MadeSoFar, onSettled: () => void) {
  const made = new Map<string, () => Json | undefined>();
  const dropped = new Set<string>();
  const awaited = new Set(Object.keys(stored));
  let isAsked = false;

  const steps: Unfinished = {
    kept(key) {
      isAsked ||= awaited.has(key);
      return Object.hasOwn(stored, key) ? stored[key] : undefined;
    },
    keep(key, make) {
      dropped.add(key);
      if (make) made.set(key, make);
      else made.delete(key);
    },
    settle(key) {
      if (awaited.delete(key) && awaited.size === 0) onSettled();
    },
  };
  const now = (): MadeSoFar => {
    const all: Record<string, Json> = {};
    for (const [key, each] of Object.entries(stored)) if (!dropped.has(key)) all[key] = each;
    for (const [key, make] of made) {
      const each = make();
      if (each !== undefined) all[key] = each;
    }
    return all;
  };

  return {
    steps,
    get isOpen() {
      return made.size > 0;
    },
    get isWorthKeeping() {
      return Object.keys(now()).length > 0;
    },
    /** True until all that was kept is shown again: what the page has of it must not go. */
    get isAwaited() {
      return awaited.size > 0;
    },
    /** True if a step goes on with what was kept, and has not shown it yet. */
    get isAsked() {
      return isAsked && awaited.size > 0;
    },
    /** For a checkpoint. */
    now,
  };
}
