import type { Clock } from "../base/clock.ts";
import type { FlotillaError } from "../base/errors.ts";
import { fraction, type Random } from "../base/random.ts";
import { jitteredMs } from "./backoff.ts";
import { asError } from "./http.ts";
import { createListenerSet, type ListenerSet, type Store } from "./observable.ts";
import { isDefinite, delayedStop, type SetWanted } from "./socket/subscription.ts";

/** Makes the watches of one kind: the same for the same id, each time. */
export type WatchFactory = <View>(
  get: (id: string) => Promise<View>,
  hasEnded: (view: View) => boolean,
) => (id: string) => WatchHandle<View>;

/** A task or a run, polled while there are listeners. */
export type Watched<View> = Store<WatchedSnapshot<View>>;

export type WatchedSnapshot<View> = {
  /**
   * `idle`: no listeners. `loading`: nothing is known yet. `live`: it is polled. `away`: the server is
   * unreachable right now, and `value` is the last known one. `ended`: it won't change any more. `gone`:
   * it doesn't exist, or the caller may not see it.
   */
  readonly status: "idle" | "loading" | "live" | "away" | "ended" | "gone";
  readonly value?: View;
  readonly error?: FlotillaError;
};

type WatchParts<View> = {
  read: () => Promise<View>;
  hasEnded: (view: View) => boolean;
  /** The error of a closed client. */
  closed: () => FlotillaError | undefined;
  clock: Clock;
  random: Random;
};

type WatchHandle<View> = Watched<View> & {
  /** Polls now: it may have been started over. */
  poll(): void;
};

const pollMs = 1_000;

export function createWatchFactory(parts: { clock: Clock; random: Random }): {
  watch: WatchFactory;
  end(error: FlotillaError): void;
} {
  let closeError: FlotillaError | undefined;
  const pollers: (() => void)[] = [];
  return {
    watch<View>(get: (id: string) => Promise<View>, hasEnded: (view: View) => boolean) {
      // Weak, so that watches that the application has dropped are collected.
      const all = new Map<string, WeakRef<WatchHandle<View>>>();
      pollers.push(() => {
        for (const each of all.values()) each.deref()?.poll();
      });
      return (id: string) => {
        const found =
          all.get(id)?.deref() ??
          createWatchHandle({ ...parts, read: () => get(id), hasEnded, closed: () => closeError });
        all.set(id, new WeakRef(found));
        return found;
      };
    },
    end(error) {
      closeError = error;
      for (const each of pollers) each();
    },
  };
}

/** Polls, because servers have no stream of tasks and runs. */
function createWatchHandle<View>(parts: WatchParts<View>): WatchHandle<View> {
  const { read, hasEnded, clock, random } = parts;
  let snapshot: WatchedSnapshot<View> = { status: "idle" };
  let text = "";
  let failures = 0;
  let round = 0;
  let isWanted = false;
  let cancel: (() => void) | undefined;
  const listeners: ListenerSet<[]> = createListenerSet((): void => want(listeners.size > 0));

  const update = (next: WatchedSnapshot<View>) => {
    if (next.status === snapshot.status && next.value === snapshot.value) return;
    snapshot = next;
    listeners.emit();
  };
  const lastValue = () => (snapshot.value === undefined ? {} : { value: snapshot.value });

  const pollOnce = async (): Promise<void> => {
    const ownRound = ++round;
    cancel?.();
    const error = parts.closed();
    if (error) {
      want(listeners.size > 0);
      if (snapshot.status !== "ended") update({ status: "gone", ...lastValue(), error });
      return;
    }
    let waitMs = pollMs;
    try {
      const found = await read();
      if (ownRound !== round) return;
      failures = 0;
      const foundText = JSON.stringify(found);
      // An unchanged value stays the same object.
      const value = foundText === text ? snapshot.value! : found;
      text = foundText;
      update({ status: hasEnded(value) ? "ended" : "live", value });
      if (hasEnded(value)) return;
    } catch (thrown) {
      if (ownRound !== round) return;
      const error = asError(thrown);
      if (isDefinite(error.code)) return update({ status: "gone", ...lastValue(), error });
      update({ status: "away", ...lastValue(), error });
      waitMs += (error.retryAfterMs ?? 0) + jitteredMs(++failures, fraction(random));
    }
    if (ownRound === round) cancel = clock.after(waitMs, () => void pollOnce());
  };
  const want: SetWanted = delayedStop(clock, {
    closed: parts.closed,
    start() {
      isWanted = true;
      update({ status: snapshot.value === undefined ? "loading" : "live", ...lastValue() });
      void pollOnce();
    },
    stop() {
      isWanted = false;
      round++;
      cancel?.();
      snapshot = { status: "idle", ...lastValue() };
    },
  });

  return {
    get: () => snapshot,
    subscribe: listeners.add,
    poll() {
      if (isWanted) void pollOnce();
    },
  };
}
