import { backoffMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import type { Entry } from "../../protocol/message.ts";
import type {
  Joined,
  Sent,
  SessionEvent,
  SessionService,
  SessionView,
} from "../../sessions/service.ts";
import { harmless, oneLine } from "../output.ts";
import { causeOf, errorOf, queryOf, type Server } from "../connect.ts";
import type { Transcript } from "./transcript.ts";

/** What a conversation needs of sessions, straight from the store or over HTTP. */
export type ChatService = Pick<SessionService, "create" | "get" | "send" | "stop" | "join">;

type TalkParts = {
  service: ChatService;
  session: SessionView;
  /** Who writes; the server knows where it isn't said. */
  user: string;
  transcript: Transcript;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** Told when something was shown, and nothing more is on its way. */
  onQuiet?: () => void;
};

const waits = { baseMs: 500, factor: 2, maxMs: 10_000, jitter: 0.2 };

/** A conversation that goes on over lost connections: it says so, and goes on at its last place. */
export function startTalk(parts: TalkParts) {
  const { service, session, user, transcript, clock, random, ids, onQuiet } = parts;
  const { tenant, sessionId } = session;
  const over = new AbortController();
  const waiting = new Set<(entry: Entry) => void>();
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
    let isHere = false;
    joined = service.join(tenant, sessionId, transcript.place, {
      push(event) {
        if (over.signal.aborted) return false;
        if (event.type === "joined") {
          if (losses > 0) transcript.say("(connected again)");
          isHere = true;
          losses = 0;
        }
        for (const entry of transcript.event(event)) for (const each of waiting) each(entry);
        if (event.type === "deleted") leave();
        else if (transcript.state.state === "idle") onQuiet?.();
        return true;
      },
      fail: (error) => void lost(error, isHere),
    });
    joined.ready.catch(() => {});
  };

  const lost = async (error: unknown, wasHere: boolean): Promise<void> => {
    if (over.signal.aborted) return;
    if (!mayPass(error)) return leave(error);
    if (wasHere || losses === 0) {
      const { lastSeq } = transcript.place;
      transcript.say(`(connection lost: ${why(error)}; going on after #${lastSeq})`);
    }
    losses++;
    if (await waited(losses)) join();
  };

  /** False where it is over meanwhile. */
  const waited = async (times: number): Promise<boolean> => {
    const pause = sleep(clock, backoffMs(times, random, waits), over.signal);
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
          const isRefused = !mayPass(error);
          if (!isRefused && tries === 1) {
            transcript.say(`(not acknowledged: ${why(error)}; trying again)`);
          }
          if (!isRefused && (await waited(tries))) continue;
          throw mayBeStored ? unknown(error) : error;
        }
      }
    },

    /** The first entry that fits, among those still to come. Undefined where it is over before. */
    async seen(fits: (entry: Entry) => boolean): Promise<Entry | undefined> {
      let look: ((entry: Entry) => void) | undefined;
      const found = new Promise<Entry>((resolve) => {
        look = (entry) => {
          if (fits(entry)) resolve(entry);
        };
        waiting.add(look);
      });
      const entry = await Promise.race([found, ended]);
      waiting.delete(look!);
      return entry ?? undefined;
    },

    /** True where there was an answer to stop. */
    stop: (): Promise<boolean> => service.stop(tenant, sessionId, { author: user, by: "user" }),
  };
}

export type Talk = ReturnType<typeof startTalk>;

const hopeless = [
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
function mayPass(error: unknown): boolean {
  return error instanceof FlotillaError && !hasCode(error, ...hopeless);
}

/** A refusal says nothing of an earlier try that may have been stored. */
function unknown(cause: unknown): FlotillaError {
  return new FlotillaError("unknown_outcome", messageOf(cause), { cause });
}

function why(error: unknown): string {
  return harmless(oneLine(messageOf(error), 200));
}

/** A conversation as a server offers it. The tenant is what the key or the token says. */
export function chatOverHttp({ ask, json }: Server): ChatService {
  const at = (sessionId: string) => `sessions/${encodeURIComponent(sessionId)}`;

  return {
    create: (_, input) => json<SessionView>("POST", "sessions", input),
    get: (_, sessionId) => json<SessionView>("GET", at(sessionId)),
    send: (_, sessionId, { id, parts }) =>
      json<Sent>("POST", `${at(sessionId)}/messages`, { id, parts }),
    async stop(_, sessionId) {
      return (await json<{ done: boolean }>("POST", `${at(sessionId)}/stop`)).done;
    },
    join(_, sessionId, place, sink) {
      const over = new AbortController();
      const { lastSeq, incarnation, lastMessageId } = place;
      const query = queryOf({ lastSeq, incarnation, lastMessageId });
      const follow = async (): Promise<void> => {
        const { signal } = over;
        const answer = await ask("GET", `${at(sessionId)}/events${query}`, { signal });
        for await (const { type, data } of eventsIn(answer.body ?? [])) {
          const said = JSON.parse(data) as object;
          if (type === "error") throw errorOf(said);
          if (!sink.push({ ...said, type } as SessionEvent)) return;
        }
        throw new FlotillaError("unavailable", "the server has ended the stream");
      };
      const ready = follow().catch((error: unknown) => {
        if (over.signal.aborted) return;
        const told =
          error instanceof FlotillaError
            ? error
            : new FlotillaError("unavailable", causeOf(error), { cause: error });
        sink.fail(told);
      });
      return { ready, leave: () => over.abort() };
    },
  };
}

type StreamEvent = { readonly type: string; readonly data: string };

// More than any event that a server sends.
const eventCharsMost = 64 * 1024 * 1024;

/** Server-sent events, one by one. Comments, which only keep a connection alive, are passed over. */
export async function* eventsIn(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<StreamEvent> {
  const decoder = new TextDecoder();
  let rest = "";
  let type = "message";
  let data: string[] = [];
  for await (const bytes of body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop()!;
    if (rest.length > eventCharsMost) {
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
