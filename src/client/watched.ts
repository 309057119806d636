import type { FlotillaError } from "../base/errors.ts";
import type { Store } from "./store.ts";

/** A task or a run as it goes on, looked at while somebody listens. */
export type Watched<View> = Store<WatchedSnapshot<View>> & {
  /** Resolves with how it is once it has ended, however it did. */
  ended(options?: { signal?: AbortSignal }): Promise<View>;
};

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
