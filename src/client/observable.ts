/**
 * A value that changes, as user interfaces follow it: `get` gives the same object until it has
 * changed, and listeners are called after it has.
 */
export type Store<Value> = {
  get(): Value;
  /** Calls back after each change, until the function that it returns is called. */
  subscribe(listener: () => void): () => void;
};

export type ListenerSet<Args extends unknown[]> = {
  /** Each call adds one more, also of the same function. */
  add(listener: (...args: Args) => void): () => void;
  emit(...args: Args): void;
  readonly size: number;
};

export function createListenerSet<Args extends unknown[] = []>(
  onSize: () => void = () => {},
): ListenerSet<Args> {
  const all = new Set<{ listener: (...args: Args) => void }>();
  return {
    add(listener) {
      const own = { listener };
      all.add(own);
      onSize();
      return () => {
        if (all.delete(own)) onSize();
      };
    },
    emit(...args) {
      // Who is added meanwhile hears of the next change, and who has left of none.
      const now = [...all];
      for (const own of now) if (all.has(own)) guarded(() => own.listener(...args));
    },
    get size() {
      return all.size;
    },
  };
}

/** What a listener throws is its own affair: others are told all the same, and it isn't lost. */
export function guarded(call: () => void): void {
  try {
    call();
  } catch (error) {
    const { reportError } = globalThis as { reportError?: (error: unknown) => void };
    if (reportError) reportError(error);
    else console.error(error);
  }
}
