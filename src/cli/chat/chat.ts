import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import type { Entry } from "../../protocol/message.ts";
import type { Client } from "../../client/client.ts";
import type { SessionEvent } from "../../client/session/session.ts";
import type {
  FeedEvent,
  Joined,
  JoinPosition,
  SessionService,
  SessionView,
  Sink,
} from "../../sessions/service.ts";
import { oneLine } from "../output.ts";
import type { Transcript } from "./transcript.ts";

/** The calls that a conversation needs, directly on the store or through a server. */
export type ChatService = Pick<SessionService, "create" | "get" | "send" | "stop"> & {
  join(
    tenant: string,
    sessionId: string,
    position: JoinPosition,
    sink: Sink<FeedEvent | ConnectionLost>,
  ): Joined;
};

/** The connection is lost, and the service itself reconnects. */
type ConnectionLost = { readonly type: "away" };

type TerminalChatParts = {
  service: ChatService;
  session: SessionView;
  /** The author of messages. Over HTTP the server decides it. */
  user: string;
  transcript: Transcript;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** Called after output where no more is expected. */
  onIdle?: () => void;
};

export type TerminalChat = ReturnType<typeof startTerminalChat>;

const reconnectBackoff = { baseMs: 500, factor: 2, maxMs: 10_000, jitter: 0.2 };

const permanentCodes = [
  "conflict",
  "forbidden",
  "invalid_input",
  "invalid_option",
  "not_found",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
  "store_corrupt",
  "store_missing",
  "store_newer",
  "store_outdated",
  "unauthorized",
  "unsupported",
] as const;

/** A conversation that survives lost connections: it prints a notice, and resumes from its position. */
export function startTerminalChat(parts: TerminalChatParts) {
  const { service, session, user, transcript, clock, random, ids, onIdle } = parts;
  const { tenant, sessionId } = session;
  const over = new AbortController();
  const entryWaiters = new Set<(entry: Entry) => void>();
  let joined: Joined | undefined;
  let losses = 0;
  let finish: (error?: unknown) => void = () => {};
  const ended = new Promise<void>((resolve, reject) => {
    finish = (error) => (error === undefined ? resolve() : reject(error as Error));
  });
  ended.catch(() => {});

  const leave = (error?: unknown): void => {
    over.abort();
    joined?.leave();
    finish(error);
  };

  const join = (): void => {
    let hasJoined = false;
    joined = service.join(tenant, sessionId, transcript.place, {
      push(event) {
        if (over.signal.aborted) return false;
        if (event.type === "away") {
          if (losses++ === 0) noticeLoss();
          return true;
        }
        if (event.type === "joined") {
          if (losses > 0) transcript.notice("(reconnected)");
          hasJoined = true;
          losses = 0;
        }
        for (const entry of transcript.event(event)) for (const each of entryWaiters) each(entry);
        if (event.type === "deleted") leave();
        else if (transcript.state.state === "idle") onIdle?.();
        return true;
      },
      fail: (error) => void onLost(error, hasJoined),
    });
    joined.ready.catch(() => {});
  };

  const noticeLoss = (error?: unknown): void => {
    const reason = error === undefined ? "" : `: ${reasonText(error)}`;
    const { lastSeq } = transcript.place;
    transcript.notice(`(connection lost${reason}; resuming after #${lastSeq})`);
  };

  const onLost = async (error: unknown, hadJoined: boolean): Promise<void> => {
    if (over.signal.aborted) return;
    if (!isTransient(error)) return leave(error);
    if (hadJoined || losses === 0) noticeLoss(error);
    losses++;
    if (await backOff(losses)) join();
  };

  /** Resolves to false where the conversation ends meanwhile. */
  const backOff = async (times: number): Promise<boolean> => {
    const pause = sleep(clock, backoffMs(times, random, reconnectBackoff), over.signal);
    return pause.then(
      () => true,
      () => false,
    );
  };

  join();
  return {
    ended,
    leave: () => leave(),

    /** Sends a message until it is stored. Its id keeps retries from storing it twice. */
    async send(text: string): Promise<number> {
      const id = ids.next();
      transcript.typed(id);
      let mayBeStored = false;
      for (let tries = 1; ; tries++) {
        try {
          const parts = [{ type: "text", text }];
          return (await service.send(tenant, sessionId, { id, author: user, parts })).seq;
        } catch (error) {
          mayBeStored ||= hasCode(error, "timeout", "unknown_outcome");
          const isRefused = !isTransient(error);
          if (!isRefused && tries === 1) {
            transcript.notice(`(not acknowledged: ${reasonText(error)}; trying again)`);
          }
          if (!isRefused && (await backOff(tries))) continue;
          throw mayBeStored ? unknownOutcome(error) : error;
        }
      }
    },

    /** Resolves to the next entry that fits; undefined where the conversation ends before. */
    async waitForEntry(fits: (entry: Entry) => boolean): Promise<Entry | undefined> {
      let check: ((entry: Entry) => void) | undefined;
      const found = new Promise<Entry>((resolve) => {
        check = (entry) => {
          if (fits(entry)) resolve(entry);
        };
        entryWaiters.add(check);
      });
      const entry = await Promise.race([found, ended]);
      entryWaiters.delete(check!);
      return entry ?? undefined;
    },

    /** Resolves to true where there was an answer to stop. */
    stop: (): Promise<boolean> => service.stop(tenant, sessionId, { author: user, by: "user" }),
  };
}

/**
 * A conversation through a server. The client reconnects by itself, and sends a message until it is stored
 * or refused. The key or the token determines the tenant.
 */
export function chatThroughServer({ sessions, session, connection }: Client): ChatService {
  return {
    create: async (_, input) => (await sessions.create(input)) as SessionView,
    get: async (_, sessionId) => (await sessions.get(sessionId)) as SessionView,
    send: (_, sessionId, { id, parts }) => session(sessionId).send(parts, id ? { id } : {}),
    stop: (_, sessionId) => session(sessionId).stop(),
    join(_, sessionId, __, sink) {
      const followed = session(sessionId);
      let hasJoined = false;
      let nextIndex = 0;
      const onEvent = (event: SessionEvent): void => {
        switch (event.type) {
          case "joined": {
            hasJoined = true;
            const { incarnation = "" } = followed.get();
            return void sink.push({ ...event, incarnation });
          }
          case "entry":
            return void sink.push({ type: "entries", entries: [event.entry] });
          case "chunks": {
            const { fromStart, ...rest } = event;
            const index = fromStart ? 0 : nextIndex;
            nextIndex = index + event.chunks.length;
            return void sink.push({ ...rest, index });
          }
          case "gone":
            if (hasJoined && event.error.code === "not_found") sink.push({ type: "deleted" });
            else sink.fail(event.error);
            return;
          case "away":
          case "reset":
          case "state":
            sink.push(event);
        }
      };
      const stopWatching = connection.subscribe(() => {
        const state = connection.get();
        if (state.status === "refused") sink.fail(state.error);
      });
      const unfollow = followed.on(onEvent);
      const leave = (): void => {
        stopWatching();
        unfollow();
      };
      return { ready: Promise.resolve(), leave };
    },
  };
}

/** Permanent errors stay; all others are worth another try. */
function isTransient(error: unknown): boolean {
  return error instanceof FlotillaError && !hasCode(error, ...permanentCodes);
}

/** An error that says nothing about an earlier try, which may have been stored. */
function unknownOutcome(cause: unknown): FlotillaError {
  return new FlotillaError("unknown_outcome", messageOf(cause), { cause });
}

function reasonText(error: unknown): string {
  return oneLine(messageOf(error), 200);
}
