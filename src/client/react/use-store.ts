import { useSyncExternalStore } from "react";
import type { Store } from "../store.ts";

/** A store's value. On a server, while it is hydrated, and without a store: what it is at first. */
export function useStore<Value>(store: Store<Value> | undefined, first: Value): Value {
  return useSyncExternalStore(
    store?.subscribe ?? never,
    () => store?.get() ?? first,
    () => first,
  );
}

const never = () => () => {};
