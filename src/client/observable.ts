/**
 * A value that changes, for user interfaces: `get` returns the same object until it changes, and
 * listeners are called after it has.
 */
export type Store<Value> = {
  get(): Value;
  /** Calls back after each change, until the returned function is called. */
  subscribe(listener: () => void): () => void;
};

export type ListenerSet<Args extends unknown[]> = {
  /** Each call adds a listener, also of the same function. */
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
      // A listener added meanwhile isn't called for this change, nor is one that was removed.
      const now = [...all];
      for (const own of now) if (all.has(own)) guarded(() => own.listener(...args));
    },
    get size() {
      return all.size;
    },
  };
}

/** Reports an error of a listener globally, so that the other listeners are still called. */
export function guarded(call: () => void): void {
  try {
    call();
  } catch (error) {
    const { reportError } = globalThis as { reportError?: (error: unknown) => void };
    if (reportError) reportError(error);
    else console.error(error);
  }
}
