import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Random } from "../../base/random.ts";
import type { Bus } from "../../bus/bus.ts";
import type { CommandResult, Command } from "../conversation/command.ts";
import type { Head } from "./journal.ts";
import type { Heads, Owners } from "./ownership.ts";
import { graceMs, patienceMs, maxRetryDelayMs, transientStoreCodes } from "./retry.ts";

/**
 * Brings commands to whoever owns the session's log, wherever that is. It asks again, with the same ids,
 * for as long as it isn't known what became of them: an owner that has stored something already answers
 * with what it stored.
 */
export type CommandRouter = {
  submit(
    tenant: string,
    sessionId: string,
    command: Command,
    options?: RouteOptions,
  ): Promise<CommandResult>;
  close(): void;
};

type RouteOptions = {
  /** Default 15,000. */
  timeoutMs?: number;
  signal?: AbortSignal;
};

export type CommandRouterParts = {
  bus: Bus;
  heads: Pick<Heads, "all" | "last" | "of">;
  /** Undefined in programs that are no pods. */
  owners: Pick<Owners, "of" | "awaken"> | undefined;
  /** Makes logs where there are none. */
  create: () => Promise<void>;
  clock: Clock;
  random: Random;
};

const topic = "session.ask";
const requestMs = 2_000;
/** A head that was seen within this time is believed. */
const maxHeadAgeMs = 1_000;

export function createCommandRouter(parts: CommandRouterParts): CommandRouter {
  const { bus, heads, owners, clock, random } = parts;
  let closed = false;

  const unserve = owners
    ? bus.serve(topic, async (body) => {
        const { tenant, sessionId, command, term, patienceMs: waitedMs } = readEnvelope(body);
        const owner = owners.of(sessionId);
        // A letter for an earlier term may have been sent again since, and refused by a later owner.
        if (!owner || (term && !isSameTerm(term, owner.head))) {
          throw notAccepted();
        }
        const patience = waitedMs === undefined ? {} : { patienceMs: waitedMs };
        return (await owner.submit(tenant, sessionId, command, patience)) as unknown as Json;
      })
    : () => {};

  const headOf = async (sessionId: string, maxAgeMs: number): Promise<Head | undefined> => {
    if (heads.last.length === 0 && (await heads.all(0)).length === 0) {
      await (owners ? owners.awaken() : parts.create());
      maxAgeMs = 0;
    }
    return heads.of(sessionId, maxAgeMs);
  };

  const submitRemote = async (
    request: RoutedCommand,
    {
      maxAgeMs,
      limitMs,
      onAnswer,
    }: { maxAgeMs: number; limitMs: number; onAnswer: (answer: CommandResult) => void },
  ): Promise<CommandResult> => {
    const head = await headOf(request.sessionId, maxAgeMs);
    const to = head?.owner ?? undefined;
    if (!head || to === undefined) throw noOwner();
    if (to === bus.address && !owners?.of(request.sessionId)) throw noOwner();
    const { incarnation, term } = head;
    const waitMs = Math.max(1, Math.min(requestMs, limitMs));
    // The owner gives this copy up when the next one is on its way; what it stored till then may be told later.
    const envelope = { ...request, term: { incarnation, term }, patienceMs: waitMs };
    const answer = bus
      .request(to, topic, envelope as unknown as Json, { timeoutMs: Math.max(1, limitMs) })
      .then((reply) => reply as unknown as CommandResult);
    if (isDoneOnce(request.command)) answer.then(onAnswer, () => {});
    return new Promise((resolve, reject) => {
      const late = new FlotillaError("timeout", `no pod has answered ${topic} within ${waitMs} ms`);
      const cancel = clock.after(waitMs, () => reject(late));
      void answer.finally(cancel).then(resolve, reject);
    });
  };

  /** Asks whoever has the log, until somebody answers or time is up. */
  const submitUntilAnswered = async (
    request: RoutedCommand,
    { startedMs, timeoutMs, signal, ...begun }: Submission,
  ) => {
    const { tenant, sessionId, command } = request;
    let { mayBeStored } = begun;
    /** What any try is told was stored: where every answer is slow, no try has its own in time. */
    const stored = Promise.withResolvers<CommandResult>();
    const submitOnce = (leftMs: number, maxAgeMs: number): Promise<CommandResult> => {
      const owner = owners?.of(sessionId);
      if (!owner)
        return submitRemote(request, { maxAgeMs, limitMs: leftMs, onAnswer: stored.resolve });
      return owner.submit(tenant, sessionId, command, { patienceMs: Math.max(1, leftMs) });
    };
    for (let tries = 1; ; tries++) {
      const leftMs = timeoutMs - (clock.monotonic() - startedMs);
      const wasOpen = !closed;
      try {
        return await Promise.race([
          stored.promise,
          submitOnce(leftMs, tries === 1 ? maxHeadAgeMs : 0),
        ]);
      } catch (error) {
        // One who has lost the log may have stored it before, without hearing of that. And what was
        // under way when this process began to leave may have got there.
        mayBeStored ||= hasCode(error, "timeout", "unknown_outcome");
        mayBeStored ||= hasCode(error, "not_owner") && !isNotAccepted(error);
        mayBeStored ||= wasOpen && hasCode(error, "closed");
        if (!hasCode(error, ...transientCodes)) {
          throw mayBeStored && !isDecided(command, error) ? outcomeUnknown(error) : error;
        }
        if (leftMs <= 0 || signal?.aborted) throw mayBeStored ? outcomeUnknown(error) : error;
      }
      await sleep(clock, Math.min(contentionMs(tries, random), maxRetryDelayMs));
    }
  };

  /** A store or an owner that says nothing at all keeps no caller for longer than its time. */
  const withinTimeout = (
    answer: Promise<CommandResult>,
    timeoutMs: number,
  ): Promise<CommandResult> =>
    new Promise((resolve, reject) => {
      const cancel = clock.after(timeoutMs + graceMs, () => reject(outcomeUnknown(undefined)));
      void answer.finally(cancel).then(resolve, reject);
    });

  /**
   * The last that was asked of sessions elsewhere or in trouble. An owner of this process keeps the order
   * in which it is asked; a letter may be lost and sent again, so what follows waits until it is answered.
   */
  const queues = new Map<string, Promise<unknown>>();

  const submitInOrder = (
    request: RoutedCommand,
    submission: Submission,
  ): Promise<CommandResult> => {
    const { sessionId } = request;
    const before = queues.get(sessionId) ?? Promise.resolve();
    const answer = before.then(() => submitUntilAnswered(request, submission));
    const settled = answer
      .catch(() => {})
      .then(() => {
        if (queues.get(sessionId) === settled) queues.delete(sessionId);
      });
    queues.set(sessionId, settled);
    return answer;
  };

  return {
    close() {
      closed = true;
      unserve();
    },
    submit(tenant, sessionId, command, { timeoutMs = patienceMs, signal } = {}) {
      const request = { tenant, sessionId, command };
      const submission = { startedMs: clock.monotonic(), timeoutMs, signal, mayBeStored: false };
      const owner = queues.has(sessionId) ? undefined : owners?.of(sessionId);
      if (!owner) return withinTimeout(submitInOrder(request, submission), timeoutMs);
      const answer = owner
        .submit(tenant, sessionId, command, { patienceMs: timeoutMs })
        .catch((error: unknown) => {
          if (!hasCode(error, "not_owner")) throw error;
          return submitInOrder(request, { ...submission, mayBeStored: !isNotAccepted(error) });
        });
      return withinTimeout(answer, timeoutMs);
    },
  };
}

type Submission = {
  readonly startedMs: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly mayBeStored: boolean;
};

type RoutedCommand = {
  readonly tenant: string;
  readonly sessionId: string;
  readonly command: Command;
};

/** Which owner of which log a letter is for. Terms are counted anew in a log that takes another's place. */
type Term = Pick<Head, "incarnation" | "term">;

function isSameTerm(one: Term, other: Term): boolean {
  return one.incarnation === other.incarnation && one.term === other.term;
}

type CommandEnvelope = RoutedCommand & {
  readonly term: Term | undefined;
  /** How long its sender waits for the answer. */
  readonly patienceMs: number | undefined;
};

/** What a command says is for the owner to judge, but it has to be one. */
function readEnvelope(body: Json): CommandEnvelope {
  const { tenant, sessionId, command, ...more } = (body ?? {}) as {
    [Key in keyof CommandEnvelope]?: unknown;
  };
  const isCommand = typeof command === "object" && command !== null;
  if (typeof tenant === "string" && typeof sessionId === "string" && isCommand) {
    const { term, patienceMs: waitedMs } = more;
    return {
      tenant,
      sessionId,
      command: command as Command,
      term: readTerm(term),
      // Pods of earlier releases don't say it.
      patienceMs: typeof waitedMs === "number" && waitedMs > 0 ? waitedMs : undefined,
    };
  }
  throw new FlotillaError("invalid_input", "what was asked of a session can't be read");
}

/** Pods of earlier releases don't say it. */
function readTerm(value: unknown): Term | undefined {
  const { incarnation, term } = (value ?? {}) as Partial<Term>;
  const isTerm = typeof incarnation === "string" && typeof term === "number";
  return isTerm ? { incarnation, term } : undefined;
}

/** What is asked again: the log has no owner, or another one, or its owner or the store didn't answer. */
const transientCodes = [
  "not_owner",
  "unavailable",
  "timeout",
  "unknown_outcome",
  ...transientStoreCodes,
] as const;

/**
 * Whether a refusal is certain though an earlier try may have been stored. An owner looks for what has an
 * id before it refuses it. What has none may have been stored and be refused for what the session has
 * become since, even by that very try, unless it is such that no session could take it.
 */
function isDecided({ type }: Command, error: unknown): boolean {
  if (type === "append" || type === "tool_result") return hasCode(error, ...decidedCodes);
  // A session that isn't there was never stored: those that were deleted keep their ids.
  if (type === "create") return hasCode(error, ...decidedCodes) && !hasCode(error, "conflict");
  return hasCode(error, ...neverStoredCodes);
}

/**
 * Whether a copy changes nothing that is stored after another one, by its id, epoch or attempt. Of the rest,
 * only the answer to the last copy says that none is on its way any more, which would undo what another
 * caller has asked for since.
 */
function isDoneOnce({ type }: Command): boolean {
  return !repeatable.has(type);
}

const repeatable: ReadonlySet<Command["type"]> = new Set([
  "archive",
  "compact",
  "members",
  "metadata",
  "unarchive",
]);

/** Not even tried, as opposed to an owner that was fenced while it stored it. */
function notAccepted(): FlotillaError {
  const message = "another pod has this log, or has had it since";
  return new FlotillaError("not_owner", message, { details: { taken: false } });
}

function isNotAccepted(error: unknown): boolean {
  return error instanceof FlotillaError && error.details?.["taken"] === false;
}

function noOwner(): FlotillaError {
  return new FlotillaError(
    "unavailable",
    "no pod serves this session right now: start one (`flotilla dev`, or startPod), or wait",
  );
}

function outcomeUnknown(cause: unknown): FlotillaError {
  return new FlotillaError(
    "unknown_outcome",
    "no pod has answered in time, and it may have been stored: send it again with the same id",
    { cause },
  );
}

/** Of what no session could take, whatever has become of it. */
const neverStoredCodes = ["payload_not_storable", "payload_too_deep", "payload_too_large"] as const;

/** What an owner decides once it has looked whether the same was stored before. */
export const decidedCodes = [
  "conflict",
  "forbidden",
  "invalid_input",
  "not_found",
  ...neverStoredCodes,
] as const;
