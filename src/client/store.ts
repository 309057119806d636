/**
 * A value that changes, as user interfaces follow it: `get` gives the same object until it has
 * changed, and listeners are called after it has.
 */
export type Store<Value> = {
  get(): Value;
  /** Calls back after each change, until the function that it returns is called. */
  subscribe(listener: () => void): () => void;
};
