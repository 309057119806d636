import { type Clock, sleep } from "../../../base/clock.ts";
import { FlotillaError, hasCode, ownerAwayCodes } from "../../../base/errors.ts";
import type { Json } from "../../../base/json.ts";
import type { Random } from "../../../base/random.ts";
import type { Bus } from "../../../bus/bus.ts";
import { callLimitMs, retryDelayMs } from "../call-deadline.ts";
import type { Heads } from "../heads.ts";
import { callOwn, callPeek, createPeeks, peekNames, type PeekRequest, type Peeks } from "./peek.ts";
import type { ServedLog } from "./served-log.ts";
import { createUnarchived } from "./unarchived.ts";

export type OwnerPeeks = {
  /** What isn't archived of a session. `isKept`: all that its log still has. */
  of(sessionId: string, isKept?: boolean): Peeks;
  /** Answers other pods no more. */
  close(): void;
};

export type OwnerPeeksParts = {
  /** Without it, sessions of logs that other processes own can't be read. */
  bus: Bus | undefined;
  clock: Clock;
  random: Random;
  heads: Pick<Heads, "all">;
  /** The log of a session; below 0 if none is found. */
  logOf: (sessionId: string) => Promise<number>;
  /** A log that this process serves, also if another pod owns it by now. */
  servedLog: (logId: number) => ServedLog | undefined;
  /** A log that this process owns for certain; undefined if it doesn't, or not any more. */
  provenLog: (logId: number) => Promise<ServedLog | undefined>;
  /** Whether no log was ever archived. A server that is behind may not know of logs that there are. */
  isNew: () => Promise<boolean>;
};

const topic = "session.peek";
const answerMs = 2_000;
/** How often no log is found before there is none. */
const emptyTries = 3;
/** How old the owners of logs may be before the first try. */
const headsMs = 1_000;

/** Reads what isn't archived here, or at the pod that owns the log, and waits while there is none. */
export function createOwnerPeeks(parts: OwnerPeeksParts): OwnerPeeks {
  const { bus, clock, random, heads, logOf, servedLog, provenLog, isNew } = parts;
  const nothing = createPeeks(createUnarchived(), async (offset) => {
    throw new FlotillaError("internal", `there is no record ${offset}`);
  });

  const peek = async (sessionId: string, name: keyof Peeks, { args, isKept }: PeekRequest) => {
    const endMs = clock.monotonic() + callLimitMs;
    for (let tries = 1; ; tries++) {
      let why = "its log has no owner";
      try {
        const logId = await logOf(sessionId);
        if (logId < 0) {
          if (tries >= emptyTries && (await isNew())) return await callPeek(nothing, name, args);
          throw unread(sessionId, "no log is found");
        }
        const own = await provenLog(logId);
        if (own) return await callOwn(own, name, { args, isKept });
        const all = await heads.all(tries === 1 ? headsMs : 0);
        const { owner = null, incarnation = "" } = all[logId] ?? {};
        if (bus && owner !== null && owner !== bus.address) {
          const body = { logId, incarnation, read: name, args, isKept } as unknown as Json;
          return await bus.request(owner, topic, body, { timeoutMs: answerMs });
        }
      } catch (error) {
        if (!hasCode(error, ...ownerAwayCodes)) throw error;
        why = error.message;
      }
      if (clock.monotonic() >= endMs) throw unread(sessionId, why);
      await sleep(clock, retryDelayMs(tries, random));
    }
  };

  /** Another pod reads what this one has. */
  const answer = async (body: Json): Promise<Json> => {
    const { logId, incarnation, read, args, isKept } = body as Record<string, unknown>;
    const isKnown = typeof read === "string" && Object.hasOwn(peekNames, read);
    if (!isKnown || typeof logId !== "number" || !Array.isArray(args)) {
      throw new FlotillaError("invalid_input", `there is no read ${String(read)} of a log`);
    }
    const isPresent = servedLog(logId)?.incarnation === incarnation;
    const own = isPresent ? await provenLog(logId) : undefined;
    if (!own) throw new FlotillaError("not_owner", `this pod doesn't own log ${logId}`);
    return (await callOwn(own, read as keyof Peeks, { args, isKept: isKept === true })) as Json;
  };
  const unserve = bus?.serve(topic, answer);

  return {
    of(sessionId, isKept = false) {
      const remote = (name: keyof Peeks) => [
        name,
        (...args: readonly unknown[]) => peek(sessionId, name, { args, isKept }),
      ];
      const names = Object.keys(peekNames) as (keyof Peeks)[];
      return Object.fromEntries(names.map(remote)) as Peeks;
    },
    close: () => unserve?.(),
  };
}

function unread(sessionId: string, why: string): FlotillaError {
  const message = `session ${sessionId} can't be read now: ${why}`;
  return new FlotillaError("store_unavailable", message, { retryAfterMs: 1_000 });
}
