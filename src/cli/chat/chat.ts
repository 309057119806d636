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

/** What a conversation needs of sessions, straight from the store or over HTTP. */
export type ChatService = Pick<SessionService, "create" | "get" | "send" | "stop" | "join">;

type TerminalChatParts = {
  service: ChatService;
  session: SessionView;
  /** Who writes; the server knows where it isn't said. */
  user: string;
  transcript: Transcript;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** Told when something was shown, and nothing more is on its way. */
  onIdle?: () => void;
};

const reconnectBackoff = { baseMs: 500, factor: 2, maxMs: 10_000, jitter: 0.2 };

/** A conversation that goes on over lost connections: it says so, and goes on at its last place. */
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
          if (losses > 0) transcript.notice("(connected again)");
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
      transcript.notice(`(connection lost: ${reasonText(error)}; going on after #${lastSeq})`);
    }
    losses++;
    if (await backOff(losses)) join();
  };

  /** False where it is over meanwhile. */
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

    /** Stores a message, however often that has to be tried: its id makes it one. */
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

    /** The first entry that fits, among those still to come. Undefined where it is over before. */
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

    /** True where there was an answer to stop. */
    stop: (): Promise<boolean> => service.stop(tenant, sessionId, { author: user, by: "user" }),
  };
}

export type TerminalChat = ReturnType<typeof startTerminalChat>;

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

/** What is refused stays refused; all else is worth another try. */
function isTransient(error: unknown): boolean {
  return error instanceof FlotillaError && !hasCode(error, ...permanentCodes);
}

/** A refusal says nothing of an earlier try that may have been stored. */
function unknownOutcome(cause: unknown): FlotillaError {
  return new FlotillaError("unknown_outcome", messageOf(cause), { cause });
}

function reasonText(error: unknown): string {
  return sanitize(oneLine(messageOf(error), 200));
}

/** A conversation as a server offers it. The tenant is what the key or the token says. */
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
        throw new FlotillaError("unavailable", "the server has ended the stream");
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

type StreamEvent = { readonly type: string; readonly data: string };

// More than any event that a server sends.
const maxEventChars = 64 * 1024 * 1024;

/** Server-sent events, one by one. Comments, which only keep a connection alive, are passed over. */
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
      throw new FlotillaError("unsupported", "the server sends an event that never ends");
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
