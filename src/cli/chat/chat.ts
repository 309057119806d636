import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import type { FilePart } from "../../protocol/file.ts";
import type { Person } from "../../protocol/frames.ts";
import type { Entry, Part } from "../../protocol/message.ts";
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
import { createPeopleLines } from "./people-lines.ts";
import type { Transcript } from "./transcript.ts";

type Calls =
  | "create"
  | "get"
  | "entries"
  | "send"
  | "stop"
  | "fork"
  | "edit"
  | "wake"
  | "wakes"
  | "cancelWake";

/** The calls that a conversation needs, directly on the store or through a server. */
export type ChatService = Pick<SessionService, Calls> & {
  upload(
    tenant: string,
    sessionId: string,
    content: Blob,
    file: { filename: string; mediaType: string },
  ): Promise<FilePart>;
  join(
    tenant: string,
    sessionId: string,
    position: JoinPosition,
    sink: Sink<FeedEvent | ConnectionLost>,
  ): Joined;
  /** Shows the user as there, and who else is, until it is called off. */
  attend(
    tenant: string,
    sessionId: string,
    user: string,
    onPeople: (people: readonly Person[]) => void,
  ): () => void;
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
  onEntry: (entry: Entry) => void;
  /** Called after output where no more is expected. */
  onIdle?: () => void;
  /** Whether the user is shown to others, and others to the user. */
  hasPeople?: boolean;
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
  const { service, session, user, transcript, clock, random, ids, onEntry, onIdle } = parts;
  const { tenant, sessionId } = session;
  const peopleLines = parts.hasPeople ? createPeopleLines(clock) : undefined;
  let people: readonly Person[] = [];
  let unattend = () => {};
  const over = new AbortController();
  let joined: Joined | undefined;
  let losses = 0;
  let finish: (error?: unknown) => void = () => {};
  const ended = new Promise<void>((resolve, reject) => {
    finish = (error) => (error === undefined ? resolve() : reject(error as Error));
  });
  ended.catch(() => {});

  const leave = (error?: unknown): void => {
    over.abort();
    unattend();
    joined?.leave();
    finish(error);
  };

  /** Between answers, so that none is cut in two. */
  const showPeople = (): void => {
    if (!peopleLines || transcript.state.state !== "idle") return;
    const lines = peopleLines.take(people);
    for (const line of lines) transcript.notice(line);
    if (lines.length > 0) onIdle?.();
  };
  const attend = (): void => {
    unattend();
    unattend = service.attend(tenant, sessionId, user, (now) => {
      if (over.signal.aborted) return;
      people = now;
      showPeople();
    });
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
        for (const entry of transcript.event(event)) onEntry(entry);
        if (event.type === "joined" && peopleLines) attend();
        if (event.type === "deleted") leave();
        else if (transcript.state.state === "idle") {
          showPeople();
          onIdle?.();
        }
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
    async send(parts: readonly Part[]): Promise<number> {
      const id = ids.next();
      transcript.typed(id);
      let mayBeStored = false;
      for (let tries = 1; ; tries++) {
        try {
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

    /** Resolves to true where there was an answer to stop. */
    stop: (): Promise<boolean> => service.stop(tenant, sessionId, { author: user, by: "user" }),
  };
}

/** A conversation on the store itself. */
export function chatOnStore(service: SessionService): ChatService {
  return {
    ...service,
    upload: (tenant, sessionId, content, file) =>
      service.upload(tenant, sessionId, content.stream(), file),
    attend(tenant, sessionId, user, onPeople) {
      const attending = service.presence(tenant, sessionId, user, {
        push({ people }) {
          onPeople(people);
          return true;
        },
        // It is lost without harm: the next join asks anew.
        fail() {},
      });
      attending.ready.catch(() => {});
      return () => attending.leave();
    },
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
    entries: (_, sessionId, { after = 0, limit = 100 }) =>
      sessions.entries(sessionId, { after, limit }),
    upload: (_, sessionId, content, file) => sessions.upload(sessionId, content, file),
    fork: async (_, sessionId, fork) => (await sessions.fork(sessionId, fork)) as SessionView,
    async edit(_, sessionId, { messageId, parts, id, users }) {
      const options = { ...(id && { id }), ...(users && { users }) };
      const { session: made, ...sent } = await sessions.edit(sessionId, messageId, parts, options);
      return { ...sent, session: made as SessionView };
    },
    wake: (_, sessionId, { author: __, at, ...wake }) =>
      sessions.wake(sessionId, { ...wake, ...(at !== undefined && { at: String(at) }) }),
    wakes: (_, sessionId) => sessions.wakes(sessionId),
    cancelWake: (_, sessionId, { key }) => sessions.cancelWake(sessionId, key),
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
    attend(_, sessionId, __, onPeople) {
      const { presence } = session(sessionId);
      return presence.subscribe(() => onPeople(presence.get()));
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
