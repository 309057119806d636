import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import type { Entry } from "../../protocol/message.ts";
import type {
  Joined,
  Sent,
  FeedEvent,
  SessionService,
  SessionView,
} from "../../sessions/service.ts";
import { sanitize, oneLine } from "../output.ts";
import { causeOf, errorFromBody, queryOf, type Server } from "../connect.ts";
import type { Transcript } from "./transcript.ts";

/** The calls that a conversation needs, directly on the store or over HTTP. */
export type ChatService = Pick<SessionService, "create" | "get" | "send" | "stop" | "join">;

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

type StreamEvent = { readonly type: string; readonly data: string };

const reconnectBackoff = { baseMs: 500, factor: 2, maxMs: 10_000, jitter: 0.2 };
// More than any event of a server.
const maxEventChars = 64 * 1024 * 1024;

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

  const onLost = async (error: unknown, hadJoined: boolean): Promise<void> => {
    if (over.signal.aborted) return;
    if (!isTransient(error)) return leave(error);
    if (hadJoined || losses === 0) {
      const { lastSeq } = transcript.place;
      transcript.notice(`(connection lost: ${reasonText(error)}; resuming after #${lastSeq})`);
    }
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

/** A conversation through a server. The key or the token determines the tenant. */
export function chatOverHttp({ request, json }: Server): ChatService {
  const at = (sessionId: string) => `sessions/${encodeURIComponent(sessionId)}`;

  return {
    create: (_, input) => json<SessionView>("POST", "sessions", input),
    get: (_, sessionId) => json<SessionView>("GET", at(sessionId)),
    send: (_, sessionId, { id, parts }) =>
      json<Sent>("POST", `${at(sessionId)}/messages`, { id, parts }),
    async stop(_, sessionId) {
      return (await json<{ done: boolean }>("POST", `${at(sessionId)}/stop`)).done;
    },
    join(_, sessionId, position, sink) {
      const over = new AbortController();
      const { lastSeq, incarnation, lastMessageId } = position;
      const query = queryOf({ lastSeq, incarnation, lastMessageId });
      const follow = async (): Promise<void> => {
        const { signal } = over;
        const answer = await request("GET", `${at(sessionId)}/events${query}`, { signal });
        for await (const { type, data } of parseEventStream(answer.body ?? [])) {
          const body = JSON.parse(data) as object;
          if (type === "error") throw errorFromBody(body);
          if (!sink.push({ ...body, type } as FeedEvent)) return;
        }
        throw new FlotillaError("unavailable", "the server ended the stream");
      };
      const ready = follow().catch((error: unknown) => {
        if (over.signal.aborted) return;
        const reason =
          error instanceof FlotillaError
            ? error
            : new FlotillaError("unavailable", causeOf(error), { cause: error });
        sink.fail(reason);
      });
      return { ready, leave: () => over.abort() };
    },
  };
}

/** Parses server-sent events. Skips comments, which only keep the connection alive. */
export async function* parseEventStream(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<StreamEvent> {
  const decoder = new TextDecoder();
  let rest = "";
  let type = "message";
  let data: string[] = [];
  for await (const bytes of body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop()!;
    if (rest.length > maxEventChars) {
      throw new FlotillaError(
        "unsupported",
        "the server sent an event of more than ${maxEventChars} characters",
      );
    }
    for (const line of lines) {
      const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line)!;
      if (line === "") {
        if (data.length > 0) yield { type, data: data.join("\n") };
        type = "message";
        data = [];
      } else if (field === "event") type = value ?? "";
      else if (field === "data") data.push(value ?? "");
    }
  }
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
  return sanitize(oneLine(messageOf(error), 200));
}
