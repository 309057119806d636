import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { callUntilAnswered } from "../../store/retry.ts";

/**
 * A store that is away when its pod starts. It is opened in the background, and used in three steps: nothing
 * reaches it, then only what lets the pod in, then everything.
 */
export type LateStore = {
  /** What the pod works on: every call is refused until the pod is let in. */
  readonly database: Database;
  /** The same for what comes before that: it is refused only until the store is reached. */
  readonly early: Pick<Database, "read" | "write">;
  /**
   * Resolves once the store is reached, and nothing speaks against this pod. Rejects with what does, or
   * with `closed`.
   */
  readonly whenAllowed: Promise<void>;
  /** Resolves if the pod can't be let in, with why: it isn't to go on then. */
  readonly whenRefused: Promise<FlotillaError>;
  /** Repeats a step while the store is away again. */
  repeat<Answer>(step: () => Promise<Answer>): Promise<Answer>;
  /** Lets everything through. Throws if the pod is leaving. */
  letIn(): void;
  /** Has every call fail from now on, with this error. */
  refuse(error: unknown): void;
  /** Ends what waits for the store. One that the pod was let in to goes on. */
  leave(): void;
};

export type LateStoreParts = {
  /** Opens the store, and closes it again where it can't be used. */
  open: () => Promise<Database>;
  /** Refuses what can't work on the store that was reached. */
  check: (opened: Database) => Promise<void>;
  /** What is known of the store before it is reached. */
  known: Omit<Database, "read" | "write" | "close" | "subscribe">;
  clock: Clock;
  random: Random;
  log: Logger;
};

type State =
  | { readonly type: "away" }
  | { readonly type: "reached"; readonly opened: Database }
  | { readonly type: "open"; readonly opened: Database }
  | { readonly type: "refused"; readonly opened?: Database; readonly error: FlotillaError }
  | { readonly type: "closed" };

/** What may pass by itself, as in a failover. Everything else is wrong with this pod or its store. */
const passing = [
  "store_busy",
  "store_full",
  "store_read_only",
  "store_unavailable",
  "unknown_outcome",
] as const;
/** How soon a refused call may be tried again. */
const soonMs = 1_000;

/** `started` is the failure with which the store was found away. */
export function createLateStore(parts: LateStoreParts, started: unknown): LateStore {
  const { clock, random, log } = parts;
  const leaving = new AbortController();
  const refused = Promise.withResolvers<FlotillaError>();
  let state: State = { type: "away" };
  let lastWhy = messageOf(started);

  const use = (isEarly: boolean): Database => {
    if (state.type === "open" || (isEarly && "opened" in state)) return state.opened!;
    if (state.type === "refused") throw state.error;
    if (state.type === "closed") throw isClosed();
    throw new FlotillaError(
      "store_unavailable",
      `the database has been away since this pod started: ${lastWhy}`,
      { retryAfterMs: soonMs },
    );
  };
  const calls = (isEarly: boolean): Pick<Database, "read" | "write"> => ({
    read: async (statement, options) => use(isEarly).read(statement, options),
    write: async (statements, options) => use(isEarly).write(statements, options),
  });
  const early = calls(true);

  const repeat: LateStore["repeat"] = (step) =>
    callUntilAnswered(step, {
      clock,
      random,
      signal: leaving.signal,
      codes: passing,
      onFailed({ error }) {
        const why = messageOf(error);
        // Each reason once, and not each of many tries.
        if (why !== lastWhy) log.warn({ error: why }, "the store can't be used yet, retrying");
        lastWhy = why;
      },
    });

  const reach = async (): Promise<void> => {
    const opened = await repeat(parts.open);
    if (leaving.signal.aborted) {
      await opened.close();
      throw isClosed();
    }
    state = { type: "reached", opened };
    await repeat(() => parts.check(opened));
    if (leaving.signal.aborted) throw isClosed();
  };
  const left = new Promise<never>((_, reject) => {
    leaving.signal.addEventListener("abort", () => reject(isClosed()), { once: true });
  });
  const reaching = reach();
  // A server that hangs holds up no stop: what is opened after it is closed at once.
  const whenAllowed = Promise.race([reaching, left]);
  // It is awaited by the pod, which may be stopped before that.
  for (const each of [reaching, left, whenAllowed]) each.catch(() => {});

  return {
    database: {
      ...parts.known,
      ...calls(false),
      // Processes with NATS are notified by that.
      subscribe: () => () => {},
      async close() {
        leaving.abort();
        const opened = "opened" in state ? state.opened : undefined;
        state = { type: "closed" };
        await opened?.close();
      },
    },
    early,
    whenAllowed,
    whenRefused: refused.promise,
    repeat,
    letIn() {
      if (state.type !== "reached" || leaving.signal.aborted) throw isClosed();
      state = { ...state, type: "open" };
    },
    refuse(thrown) {
      if (state.type === "closed" || leaving.signal.aborted) return;
      const error =
        thrown instanceof FlotillaError
          ? thrown
          : new FlotillaError("internal", messageOf(thrown), { cause: thrown });
      state = { ...("opened" in state && { opened: state.opened }), type: "refused", error };
      refused.resolve(error);
    },
    leave: () => leaving.abort(),
  };
}

/** What a pod does with a store that is back, in this order. */
export type LateSteps = {
  /** Has the pod be in the table of pods. */
  list(): Promise<void>;
  /** Refuses a pod that may not run beside others, once it is there. */
  checkOthers(): Promise<void>;
  /** The pod is let in. */
  begin(): void;
  /** What follows meanwhile, and is repeated while the store is away again. */
  readonly rest: readonly (() => Promise<unknown>)[];
};

/** Lets a pod in to its store, or has the store refuse it. Resolves early when the pod is `leaving`. */
export async function joinLate(
  store: Omit<LateStore, "database">,
  leaving: AbortSignal,
  { list, checkOthers, begin, rest }: LateSteps,
): Promise<void> {
  const left = new Promise<void>((resolve) => {
    leaving.addEventListener("abort", () => resolve(), { once: true });
  });
  try {
    await store.whenAllowed;
    if (leaving.aborted) return;
    await Promise.race([list(), left]);
    if (leaving.aborted) return;
    await store.repeat(checkOthers);
    store.letIn();
    begin();
    for (const step of rest) await store.repeat(step);
  } catch (error) {
    store.refuse(error);
  }
}

/** Whether this is the failure of a store that can't be reached, and not of one that refuses this program. */
export function isAway(error: unknown): boolean {
  return (
    hasCode(error, "store_unavailable", "unknown_outcome") &&
    error.details?.["refuses"] === undefined
  );
}

function isClosed(): FlotillaError {
  return new FlotillaError("closed", "the database was closed");
}
