import { FlotillaError } from "../base/errors.ts";
import { checkNumber } from "../base/options.ts";
import type { TurnView } from "../protocol/message.ts";
import type { Header, Turn } from "./conversation/header.ts";
import type { Reads } from "./log/journal.ts";
import type { TurnPage } from "./service.ts";

/** Attempts at a session's turns, the newest first, with the one that is under way. */
export async function pageOfTurns(
  journal: Pick<Reads, "turns">,
  { sessionId, work }: Pick<Header, "sessionId" | "work">,
  { cursor, limit = 100 }: { cursor?: string; limit?: number } = {},
): Promise<TurnPage> {
  checkNumber("limit", limit, { min: 1, max: maxTurns });
  const before = cursor === undefined ? undefined : turnCursorOf(cursor);
  const read = await journal.turns(sessionId, { before, limit: limit + 1 });
  const ended = read.slice(0, limit);
  const last = read.length > limit ? ended.at(-1) : undefined;
  const open = before === undefined && work?.type === "turn" && work.attempt > 0 ? work : null;
  // It may have ended between the two reads.
  const hasEnded = ended.some(
    ({ epoch, attempt }) => epoch === open?.epoch && attempt === open.attempt,
  );
  return {
    turns: open && !hasEnded ? [turnUnderWay(open), ...ended] : ended,
    next: last ? `${last.epoch}.${last.attempt}` : null,
  };
}

/** As many as entries. */
const maxTurns = 1_000;

function turnCursorOf(cursor: string): { epoch: number; attempt: number } {
  const [epoch, attempt] = /^\d{1,15}\.\d{1,9}$/.test(cursor) ? cursor.split(".").map(Number) : [];
  if (epoch !== undefined && attempt !== undefined) return { epoch, attempt };
  throw new FlotillaError("invalid_input", "the cursor is not one that a page of turns has given");
}

function turnUnderWay(turn: Turn): TurnView {
  const { epoch, attempt, agent, runner, beganAtMs = 0 } = turn;
  const open = { firstChunkAtMs: null, endedAtMs: null, outcome: null, usage: null };
  return { epoch, attempt, agent, podId: runner, beganAtMs, ...open };
}
