import { type ErrorCode, FlotillaError, hasCode } from "../../base/errors.ts";
import type { createAssembler } from "../../protocol/assembler/assembler.ts";
import type { Entry } from "../../protocol/message.ts";
import { callLater, wallClockMs, watchSight } from "../browser.ts";
import { createEventReader } from "../facts/live/event-stream.ts";
import {
  createTail,
  type TailEvent,
  type TailPage,
  type TailView,
} from "../facts/sessions/tail.ts";
import { sessionAsks, type SessionKey } from "./sessions.ts";

/** A session that is followed while something subscribes to it. */
export type FollowedSession = {
  view(): TailView;
  subscribe(listener: () => void): () => void;
  /** Reads the entries before the first one. */
  loadOlder(): Promise<void>;
};

const firstEntries = 60;
const olderEntries = 100;
// The server says something every 15 seconds at least.
const silenceMs = 40_000;
const pausesMs = [300, 1_000, 2_000, 5_000, 10_000];

/**
 * Follows a session from its end. It goes on by itself, behind the last entry, after whatever breaks the
 * connection; a tab that isn't in sight follows nothing.
 */
export function followSession(key: SessionKey): FollowedSession {
  let assembler: typeof createAssembler | undefined;
  const tail = createTail((options) => assembler!(options));
  const listeners = new Set<() => void>();
  let stop: (() => void) | undefined;
  let isNoticed = false;
  let older: Promise<void> | undefined;
  const unwatched = new AbortController().signal;

  /** Once for each frame, however many tokens come in it. */
  const changed = () => {
    if (isNoticed) return;
    isNoticed = true;
    requestAnimationFrame(() => {
      isNoticed = false;
      for (const listener of listeners) listener();
    });
  };

  /** Entries behind a place, up to another one; a page may hold fewer than were asked for. */
  const readRange = async (
    { after, upTo }: { after: number; upTo: number },
    signal: AbortSignal,
  ): Promise<TailPage> => {
    const entries: Entry[] = [];
    for (let from = after; ;) {
      const limit = Math.max(1, upTo - from);
      const page = await sessionAsks.entries(key, { after: from, limit }, signal);
      entries.push(...page.entries);
      from = page.entries.at(-1)?.seq ?? upTo;
      if (from >= upTo || page.next === null) return { ...page, entries };
    }
  };

  const begin = async (signal: AbortSignal) => {
    const { lastSeq } = await sessionAsks.session(key, signal);
    const after = Math.max(0, lastSeq - firstEntries);
    tail.begin(await readRange({ after, upTo: lastSeq }, signal));
    changed();
  };

  /** Follows until something ends it; says whether it goes on where it was. */
  const followOnce = async (attempt: AbortController): Promise<"again" | "anew" | "gone"> => {
    const { signal } = attempt;
    if (!tail.position()) await begin(signal);
    // Not needed to show what is stored, and a fifth of the page.
    assembler ??= (await import("../../protocol/assembler/assembler.ts")).createAssembler;
    const { lastSeq, incarnation, lastMessageId } = tail.position()!;
    const from = {
      lastSeq: String(lastSeq),
      incarnation,
      ...(lastMessageId !== undefined && { lastMessageId }),
    };
    const response = await sessionAsks.events(key, from, signal);
    if (!response.ok || !response.body) throw await refusalIn(response);
    const bytes = response.body.getReader();
    const events = createEventReader();
    let isQuiet = callLater(silenceMs, () => attempt.abort());
    try {
      for (;;) {
        const { done, value } = await bytes.read();
        if (done) return "again";
        isQuiet();
        isQuiet = callLater(silenceMs, () => attempt.abort());
        for (const { type, value: said } of events.push(value)) {
          if (type === "error") throw errorIn(said);
          const step = tail.take({ ...said, type } as TailEvent, wallClockMs());
          changed();
          if (step === "go on") continue;
          if (step === "gone") return "gone";
          return step === "start over" ? "anew" : "again";
        }
      }
    } finally {
      isQuiet();
      attempt.abort();
    }
  };

  const follow = async (ended: AbortSignal) => {
    let failures = 0;
    while (!ended.aborted) {
      await inSight(ended);
      if (ended.aborted) return;
      const attempt = new AbortController();
      let isHidden = false;
      const leave = () => attempt.abort();
      ended.addEventListener("abort", leave);
      const unwatch = watchSight((isInSight) => {
        if (isInSight) return;
        isHidden = true;
        attempt.abort();
      });
      const before = tail.view();
      try {
        const outcome = await followOnce(attempt);
        if (outcome === "gone") return;
        if (outcome === "anew") await begin(ended);
      } catch (error) {
        if (ended.aborted) return;
        if (hasCode(error, "not_found", "forbidden")) {
          tail.end(error);
          changed();
          return;
        }
      } finally {
        unwatch();
        ended.removeEventListener("abort", leave);
      }
      // What has brought something is tried again soon.
      failures = tail.view() === before ? failures + 1 : 0;
      if (isHidden) continue;
      tail.lost();
      changed();
      await pause(pausesMs[Math.min(failures, pausesMs.length - 1)]!, ended);
    }
  };

  return {
    view: tail.view,
    subscribe(listener) {
      listeners.add(listener);
      if (listeners.size === 1) {
        const ending = new AbortController();
        stop = () => ending.abort();
        void follow(ending.signal);
      }
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0) stop?.();
      };
    },
    loadOlder() {
      const { fromSeq } = tail.view();
      if (fromSeq <= 1) return Promise.resolve();
      const after = Math.max(0, fromSeq - 1 - olderEntries);
      older ??= readRange({ after, upTo: fromSeq - 1 }, unwatched)
        .then(({ entries }) => {
          tail.prepend(entries);
          changed();
        })
        .finally(() => (older = undefined));
      return older;
    },
  };
}

/** Resolves once the page is in sight. */
function inSight(ended: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    let unwatch = () => {};
    const done = () => {
      ended.removeEventListener("abort", done);
      queueMicrotask(() => unwatch());
      resolve();
    };
    ended.addEventListener("abort", done);
    unwatch = watchSight((isInSight) => {
      if (isInSight) done();
    });
  });
}

function pause(ms: number, ended: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      cancel();
      ended.removeEventListener("abort", done);
      resolve();
    };
    const cancel = callLater(ms, done);
    ended.addEventListener("abort", done);
  });
}

async function refusalIn(response: Response): Promise<FlotillaError> {
  try {
    return errorIn(((await response.json()) as { error?: object }).error ?? {});
  } catch {
    return errorIn({});
  }
}

function errorIn(said: { code?: ErrorCode; message?: string }): FlotillaError {
  const { code = "unavailable", message = "the server can't be followed" } = said;
  return new FlotillaError(code, message);
}
