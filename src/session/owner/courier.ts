import type { Bus } from "../../bus/bus.ts";
import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Json } from "../../base/jsonify.ts";
import type { Random } from "../../base/random.ts";
import type { Answer, Command } from "../command.ts";
import { decided } from "./decided.ts";
import type { Heads } from "./heads.ts";
import type { Owners } from "./owners.ts";

/**
 * Brings commands to whoever owns the session's log, wherever that is. It asks again, with the same ids,
 * for as long as it isn't known what became of them: an owner that has stored something already answers
 * with what it stored.
 */
export type Courier = {
  ask(tenant: string, sessionId: string, command: Command, options?: AskOptions): Promise<Answer>;
  close(): void;
};

export type AskOptions = {
  /** Default 15,000. */
  timeoutMs?: number;
  signal?: AbortSignal;
};

export type CourierParts = {
  bus: Bus;
  heads: Heads;
  /** Undefined in programs that are no pods. */
  owners: Pick<Owners, "of" | "awaken"> | undefined;
  /** Makes logs where there are none. */
  create: () => Promise<void>;
  clock: Clock;
  random: Random;
};

const topic = "session.ask";
const defaultTimeoutMs = 15_000;
const requestMs = 2_000;
const retryMostMs = 250;
/** A head that was seen within this time is believed. */
const believedMs = 1_000;

export function createCourier(parts: CourierParts): Courier {
  const { bus, heads, owners, clock, random } = parts;
  let closed = false;

  const unserve = owners
    ? bus.serve(topic, async (body) => {
        const { tenant, sessionId, command } = readAsked(body);
        const owner = owners.of(sessionId);
        if (!owner) throw new FlotillaError("not_owner", "another pod has this log");
        return (await owner.submit(tenant, sessionId, command)) as unknown as Json;
      })
    : () => {};

  const addressOf = async (sessionId: string, maxAgeMs: number): Promise<string | undefined> => {
    if (heads.last.length === 0 && (await heads.all(0)).length === 0) {
      await (owners ? owners.awaken() : parts.create());
      maxAgeMs = 0;
    }
    return (await heads.of(sessionId, maxAgeMs))?.owner ?? undefined;
  };

  const askRemote = async (asked: Asked, maxAgeMs: number, limitMs: number): Promise<Answer> => {
    const to = await addressOf(asked.sessionId, maxAgeMs);
    if (to === undefined || (to === bus.address && !owners?.of(asked.sessionId))) throw free();
    const body = asked as unknown as Json;
    const timeoutMs = Math.max(1, Math.min(requestMs, limitMs));
    return (await bus.request(to, topic, body, { timeoutMs })) as unknown as Answer;
  };

  /** Asks whoever has the log, until somebody answers or time is up. */
  const persist = async (asked: Asked, { startedMs, timeoutMs, signal, ...begun }: Asking) => {
    const { tenant, sessionId, command } = asked;
    let { mayBeStored } = begun;
    for (let tries = 1; ; tries++) {
      const leftMs = timeoutMs - (clock.monotonic() - startedMs);
      const wasOpen = !closed;
      try {
        const owner = owners?.of(sessionId);
        if (owner) return await owner.submit(tenant, sessionId, command);
        const maxAgeMs = tries === 1 ? believedMs : 0;
        return await askRemote(asked, maxAgeMs, leftMs);
      } catch (error) {
        // One who has lost the log may have stored it before, without hearing of that. And what was
        // under way when this process began to leave may have got there.
        mayBeStored ||= hasCode(error, "timeout", "unknown_outcome", "not_owner");
        mayBeStored ||= wasOpen && hasCode(error, "closed");
        if (!hasCode(error, ...passing)) {
          throw mayBeStored && !isDecided(command, error) ? unknown(error) : error;
        }
        if (leftMs <= 0 || signal?.aborted) throw mayBeStored ? unknown(error) : error;
      }
      await sleep(clock, Math.min(contentionMs(tries, random), retryMostMs));
    }
  };

  /**
   * The last that was asked of sessions elsewhere or in trouble. An owner of this process keeps the order
   * in which it is asked; a letter may be lost and sent again, so what follows waits until it is answered.
   */
  const lines = new Map<string, Promise<unknown>>();

  const inLine = (asked: Asked, asking: Asking): Promise<Answer> => {
    const { sessionId } = asked;
    const before = lines.get(sessionId) ?? Promise.resolve();
    const answer = before.then(() => persist(asked, asking));
    const settled = answer
      .catch(() => {})
      .then(() => {
        if (lines.get(sessionId) === settled) lines.delete(sessionId);
      });
    lines.set(sessionId, settled);
    return answer;
  };

  return {
    close() {
      closed = true;
      unserve();
    },
    ask(tenant, sessionId, command, { timeoutMs = defaultTimeoutMs, signal } = {}) {
      const asked = { tenant, sessionId, command };
      const asking = { startedMs: clock.monotonic(), timeoutMs, signal, mayBeStored: false };
      const owner = lines.has(sessionId) ? undefined : owners?.of(sessionId);
      if (!owner) return inLine(asked, asking);
      return owner.submit(tenant, sessionId, command).catch((error: unknown) => {
        if (!hasCode(error, "not_owner")) throw error;
        return inLine(asked, { ...asking, mayBeStored: true });
      });
    },
  };
}

type Asking = {
  readonly startedMs: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly mayBeStored: boolean;
};

type Asked = {
  readonly tenant: string;
  readonly sessionId: string;
  readonly command: Command;
};

/** What a command says is for the owner to judge, but it has to be one. */
function readAsked(body: Json): Asked {
  const { tenant, sessionId, command } = (body ?? {}) as Partial<Asked>;
  const isCommand = typeof command === "object" && command !== null;
  if (typeof tenant === "string" && typeof sessionId === "string" && isCommand) {
    return { tenant, sessionId, command };
  }
  throw new FlotillaError("invalid_input", "what was asked of a session can't be read");
}

/** What is asked again: the log has no owner, or another one, or its owner didn't answer. */
const passing = ["not_owner", "unavailable", "timeout", "unknown_outcome"] as const;

/** Metadata has no id: of a change to one version, the first try may be what the second conflicts with. */
function isDecided({ type }: Command, error: unknown): boolean {
  return hasCode(error, ...decided) && !(type === "metadata" && hasCode(error, "conflict"));
}

function free(): FlotillaError {
  return new FlotillaError(
    "unavailable",
    "no pod serves this session right now: start one (`flotilla dev`, or startPod), or wait",
  );
}

function unknown(cause: unknown): FlotillaError {
  return new FlotillaError(
    "unknown_outcome",
    "no pod has answered in time, and it may have been stored: send it again with the same id",
    { cause },
  );
}
