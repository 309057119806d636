import type { Clock } from "../base/clock.ts";
import type { FlotillaError } from "../base/errors.ts";
import { fraction, type Random } from "../base/random.ts";
import { jitteredMs } from "./backoff.ts";
import { asError } from "./http.ts";
import { createListeners, type Listeners, type Store } from "./observable.ts";
import { isDefinite, lingering, type Want } from "./socket/subscription.ts";

/** Makes the watches of one kind: the same for the same id, each time. */
export type Watch = <View>(
  get: (id: string) => Promise<View>,
  hasEnded: (view: View) => boolean,
) => (id: string) => Watching<View>;

export function createWatch(parts: { clock: Clock; random: Random }): {
  watch: Watch;
  end(error: FlotillaError): void;
} {
  let over: FlotillaError | undefined;
  const enders: (() => void)[] = [];
  return {
    watch<View>(get: (id: string) => Promise<View>, hasEnded: (view: View) => boolean) {
      // Those that nobody holds any more are let go of.
      const all = new Map<string, WeakRef<Watching<View>>>();
      enders.push(() => {
        for (const each of all.values()) each.deref()?.again();
      });
      return (id: string) => {
        const found =
          all.get(id)?.deref() ??
          createWatched({ ...parts, look: () => get(id), hasEnded, over: () => over });
        all.set(id, new WeakRef(found));
        return found;
      };
    },
    end(error) {
      over = error;
      for (const each of enders) each();
    },
  };
}

/** A task or a run as it goes on, looked at while somebody listens. */
export type Watched<View> = Store<WatchedSnapshot<View>>;

export type WatchedSnapshot<View> = {
  /**
   * `idle`: nobody listens. `loading`: nothing is known yet. `live`: it is looked at. `away`: it can't
   * be reached right now, and `value` is as it was. `ended`: nothing will change any more. `gone`: there
   * is none, or the caller may not see it.
   */
  readonly status: "idle" | "loading" | "live" | "away" | "ended" | "gone";
  readonly value?: View;
  readonly error?: FlotillaError;
};

type WatchedParts<View> = {
  look: () => Promise<View>;
  hasEnded: (view: View) => boolean;
  /** Why nothing is looked at any more. */
  over: () => FlotillaError | undefined;
  clock: Clock;
  random: Random;
};

type Watching<View> = Watched<View> & {
  /** Looks now: it may have been started over. */
  again(): void;
};

const everyMs = 1_000;

/** Looks again and again: servers have no stream for these. */
function createWatched<View>(parts: WatchedParts<View>): Watching<View> {
  const { look, hasEnded, clock, random } = parts;
  let snapshot: WatchedSnapshot<View> = { status: "idle" };
  let text = "";
  let failures = 0;
  let round = 0;
  let isWanted = false;
  let cancel: (() => void) | undefined;
  const listeners: Listeners<[]> = createListeners((): void => want(listeners.size > 0));

  const become = (next: WatchedSnapshot<View>) => {
    if (next.status === snapshot.status && next.value === snapshot.value) return;
    snapshot = next;
    listeners.tell();
  };
  const known = () => (snapshot.value === undefined ? {} : { value: snapshot.value });

  const step = async (): Promise<void> => {
    const own = ++round;
    cancel?.();
    const error = parts.over();
    if (error) {
      want(listeners.size > 0);
      if (snapshot.status !== "ended") become({ status: "gone", ...known(), error });
      return;
    }
    let waitMs = everyMs;
    try {
      const seen = await look();
      if (own !== round) return;
      failures = 0;
      const seenText = JSON.stringify(seen);
      // What hasn't changed stays the same object.
      const value = seenText === text ? snapshot.value! : seen;
      text = seenText;
      become({ status: hasEnded(value) ? "ended" : "live", value });
      if (hasEnded(value)) return;
    } catch (thrown) {
      if (own !== round) return;
      const error = asError(thrown);
      if (isDefinite(error.code)) return become({ status: "gone", ...known(), error });
      become({ status: "away", ...known(), error });
      waitMs += (error.retryAfterMs ?? 0) + jitteredMs(++failures, fraction(random));
    }
    if (own === round) cancel = clock.after(waitMs, () => void step());
  };
  const want: Want = lingering(clock, {
    over: parts.over,
    start() {
      isWanted = true;
      become({ status: snapshot.value === undefined ? "loading" : "live", ...known() });
      void step();
    },
    stop() {
      isWanted = false;
      round++;
      cancel?.();
      snapshot = { status: "idle", ...known() };
    },
  });

  return {
    get: () => snapshot,
    subscribe: listeners.add,
    again() {
      if (isWanted) void step();
    },
  };
}
