import { type Clock, sleep } from "../../base/clock.ts";
import {
  decidedCodes,
  FlotillaError,
  hasCode,
  ownerAwayCodes,
  unstorableCodes,
} from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Random } from "../../base/random.ts";
import { withTimeout } from "../../base/timeout.ts";
import type { Bus } from "../../bus/bus.ts";
import type { CommandResult, Command } from "../conversation/command.ts";
import type { Head } from "./journal.ts";
import type { Owner } from "./owner.ts";
import type { Heads } from "./heads.ts";
import type { Owners } from "./ownership.ts";
import { callLimitMs, graceMs, isInVain, retryDelayMs } from "./call-deadline.ts";

/**
 * Sends commands to the owner of the session's log, on this pod or another. It retries with the same ids
 * until the outcome is known. An owner that has stored the command already returns what it stored.
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
  /** Undefined in a process that is not a pod. */
  owners: Pick<Owners, "of" | "awaken"> | undefined;
  /** Creates the logs when there are none. */
  create: () => Promise<void>;
  clock: Clock;
  random: Random;
};

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

type CommandEnvelope = RoutedCommand & {
  readonly term: Term | undefined;
  /** How long the sender waits for the result. */
  readonly limitMs: number | undefined;
};

/**
 * A local owner keeps the order of what it is given. Whatever is given to another one, or sent in an
 * envelope, which can be lost and sent again, waits until all before it are settled: an owner that has lost
 * its log may take long to reject what it had.
 */
type Line = {
  /** The owner in this process that has all of them; undefined where one went another way. */
  owner: Owner | undefined;
  readonly places: Set<Place>;
};

/** `left` is made by one that waits for its end. */
type Place = { left?: PromiseWithResolvers<void> };

/** The owner that an envelope is for. Terms restart in a log that replaces another. */
type Term = Pick<Head, "incarnation" | "term">;

const topic = "session.ask";
const requestMs = 2_000;
/** A head read within this time is trusted. */
const maxHeadAgeMs = 1_000;

/** How often a sender that waits for an owner looks whether another has its log. */
const movedCheckMs = 250;

const repeatable: ReadonlySet<Command["type"]> = new Set([
  "archive",
  "compact",
  "members",
  "metadata",
  "unarchive",
]);

export function createCommandRouter(parts: CommandRouterParts): CommandRouter {
  const { bus, heads, owners, clock, random } = parts;
  let closed = false;

  const unserve = owners
    ? bus.serve(topic, async (body) => {
        const { tenant, sessionId, command, term, limitMs } = readEnvelope(body);
        const owner = owners.of(sessionId);
        // An envelope for an earlier term may have been sent again since, and refused by a later owner.
        if (!owner || (term && !isSameTerm(term, owner.head))) {
          throw notAccepted();
        }
        const limit = limitMs === undefined ? {} : { limitMs };
        return (await owner.submit(tenant, sessionId, command, limit)) as unknown as Json;
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
    // The owner drops this copy when the sender sends the next one. If it has stored it by then, its result
    // may still arrive.
    const envelope = { ...request, term: { incarnation, term }, limitMs: waitMs };
    const answer = bus
      .request(to, topic, envelope as unknown as Json, { timeoutMs: Math.max(1, limitMs) })
      .then((reply) => reply as unknown as CommandResult);
    if (isDoneOnce(request.command)) answer.then(onAnswer, () => {});
    const late = () =>
      new FlotillaError("timeout", `no pod has answered ${topic} within ${waitMs} ms`);
    return withTimeout(clock, waitMs, unlessMoved(request.sessionId, head, answer), late);
  };

  /**
   * Gives up on an owner whose log another has taken: a pod that was killed or cut off doesn't answer, and
   * whether it has stored the command is found out by sending it to the next owner.
   */
  const unlessMoved = async <Answer>(
    sessionId: string,
    asked: Term,
    answer: Promise<Answer>,
  ): Promise<Answer> => {
    const over = Promise.withResolvers<never>();
    let isOver = false;
    let cancel = () => {};
    const lookLater = (): void => {
      if (!isOver) cancel = clock.after(movedCheckMs, () => void look());
    };
    const look = async (): Promise<void> => {
      const head = await heads.of(sessionId, movedCheckMs).catch(() => undefined);
      if (head?.owner && isLater(head, asked)) over.reject(moved());
      else lookLater();
    };
    lookLater();
    try {
      return await Promise.race([answer, over.promise]);
    } finally {
      isOver = true;
      cancel();
    }
  };

  /** Sends to the current owner until a result arrives or time is up. */
  const submitUntilAnswered = async (
    request: RoutedCommand,
    { startedMs, timeoutMs, signal, ...begun }: Submission,
  ) => {
    const { tenant, sessionId, command } = request;
    let { mayBeStored } = begun;
    /**
     * Resolves with the first result of any try. When every response is slow, no try gets its own in time.
     */
    const stored = Promise.withResolvers<CommandResult>();
    const submitOnce = (leftMs: number, maxAgeMs: number): Promise<CommandResult> => {
      const owner = owners?.of(sessionId);
      if (!owner)
        return submitRemote(request, { maxAgeMs, limitMs: leftMs, onAnswer: stored.resolve });
      return owner.submit(tenant, sessionId, command, { limitMs: Math.max(1, leftMs) });
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
        // An owner that lost the log may have stored the command without learning so. And a command sent
        // just before this process closed may have arrived.
        mayBeStored ||= hasCode(error, "timeout", "unknown_outcome");
        mayBeStored ||= hasCode(error, "not_owner") && !isNotAccepted(error);
        mayBeStored ||= wasOpen && hasCode(error, "closed");
        if (!hasCode(error, ...ownerAwayCodes) || isInVain(error)) {
          throw mayBeStored && !isDecided(command, error) ? outcomeUnknown(error) : error;
        }
        if (leftMs <= 0 || signal?.aborted) throw mayBeStored ? outcomeUnknown(error) : error;
      }
      await sleep(clock, retryDelayMs(tries, random));
    }
  };

  /** Bounds the wait when the store or the owner does not respond at all. */
  const withinTimeout = (
    answer: Promise<CommandResult>,
    timeoutMs: number,
  ): Promise<CommandResult> =>
    withTimeout(clock, timeoutMs + graceMs, answer, () => outcomeUnknown(undefined));

  /** The submissions to each session that aren't settled yet. */
  const lines = new Map<string, Line>();

  const enter = (sessionId: string, place: Place): Line => {
    let line = lines.get(sessionId);
    if (!line) {
      line = { owner: owners?.of(sessionId), places: new Set() };
      lines.set(sessionId, line);
    }
    line.places.add(place);
    return line;
  };

  const leave = (sessionId: string, { places }: Line, place: Place): void => {
    places.delete(place);
    place.left?.resolve();
    if (places.size === 0) lines.delete(sessionId);
  };

  return {
    close() {
      closed = true;
      unserve();
    },
    submit(tenant, sessionId, command, { timeoutMs = callLimitMs, signal } = {}) {
      const request = { tenant, sessionId, command };
      const submission = { startedMs: clock.monotonic(), timeoutMs, signal };
      const place: Place = {};
      const line = enter(sessionId, place);
      const end = () => leave(sessionId, line, place);
      const inTurn = async (mayBeStored: boolean): Promise<CommandResult> => {
        line.owner = undefined;
        try {
          await untilFirst(line, place);
          return await submitUntilAnswered(request, { ...submission, mayBeStored });
        } finally {
          end();
        }
      };
      const { owner } = line;
      if (!owner || owner !== owners?.of(sessionId)) return withinTimeout(inTurn(false), timeoutMs);
      const answer = owner.submit(tenant, sessionId, command, { limitMs: timeoutMs }).then(
        (result) => (end(), result),
        (error: unknown) => {
          if (hasCode(error, "not_owner")) return inTurn(!isNotAccepted(error));
          end();
          throw error;
        },
      );
      return withinTimeout(answer, timeoutMs);
    },
  };
}

async function untilFirst({ places }: Line, place: Place): Promise<void> {
  for (;;) {
    const [first] = places;
    if (!first || first === place) return;
    first.left ??= Promise.withResolvers();
    await first.left.promise;
  }
}

function isSameTerm(one: Term, other: Term): boolean {
  return one.incarnation === other.incarnation && one.term === other.term;
}

function isLater(one: Term, other: Term): boolean {
  return one.incarnation !== other.incarnation || one.term > other.term;
}

/** Checks only that the body holds a command. The owner validates its content. */
function readEnvelope(body: Json): CommandEnvelope {
  const { tenant, sessionId, command, ...more } = (body ?? {}) as {
    [Key in keyof CommandEnvelope]?: unknown;
  };
  const isCommand = typeof command === "object" && command !== null;
  if (typeof tenant === "string" && typeof sessionId === "string" && isCommand) {
    const { term, limitMs } = more;
    return {
      tenant,
      sessionId,
      command: command as Command,
      term: readTerm(term),
      // Absent in envelopes from earlier releases.
      limitMs: typeof limitMs === "number" && limitMs > 0 ? limitMs : undefined,
    };
  }
  throw new FlotillaError("invalid_input", "cannot read the session command in this envelope");
}

/** Absent in envelopes from earlier releases. */
function readTerm(value: unknown): Term | undefined {
  const { incarnation, term } = (value ?? {}) as Partial<Term>;
  const isTerm = typeof incarnation === "string" && typeof term === "number";
  return isTerm ? { incarnation, term } : undefined;
}

/**
 * True when a refusal is final although an earlier try may have been stored. An owner checks a client id
 * before it refuses a command. A command without an id may have been stored, and refused at a later try
 * because the session has changed, even by the first try itself, unless no session could ever accept it.
 */
function isDecided({ type }: Command, error: unknown): boolean {
  if (type === "append" || type === "tool_result" || type === "wake_set")
    return hasCode(error, ...decidedCodes);
  // Without a conflict no earlier try was stored, because even a deleted session keeps its id.
  if (type === "create") return hasCode(error, ...decidedCodes) && !hasCode(error, "conflict");
  if (type === "check_agents") return true;
  return hasCode(error, ...unstorableCodes);
}

/**
 * True when a second copy changes nothing, because of its id, epoch or attempt. For other commands only
 * the response to the last copy shows that no copy is in flight. A late copy would undo another caller's
 * change.
 */
function isDoneOnce({ type }: Command): boolean {
  return !repeatable.has(type);
}

/** Not tried at all, unlike a command whose owner was fenced while storing it. */
function notAccepted(): FlotillaError {
  const message = "another pod owns this session's log: send it there";
  return new FlotillaError("not_owner", message, { details: { taken: false } });
}

function isNotAccepted(error: unknown): boolean {
  return error instanceof FlotillaError && error.details?.["taken"] === false;
}

function moved(): FlotillaError {
  return new FlotillaError("timeout", "another pod has taken this session's log meanwhile");
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
    "no pod answered in time, and it may have been stored: send it again with the same id",
    { cause },
  );
}
