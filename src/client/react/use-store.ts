import { useMemo, useSyncExternalStore } from "react";
import type { Client } from "../client.ts";
import type { Store } from "../observable.ts";

/** A store's value. On a server, and while its page is hydrated: what it is at first. */
export function useStore<Value>(store: Store<Value>, first: Value): Value {
  return useSyncExternalStore(store.subscribe, store.get, () => first);
}

/**
 * What a client has under an id, as a store that is the same for as long as both are. The client is
 * asked for it only by a page that shows it: a server would keep a handle of every id that it renders.
 */
export function useOpened<Value>(
  open: (client: Client, id: string) => Store<Value>,
  client: Client,
  id: string,
): Store<Value> {
  return useMemo(() => {
    let opened: Store<Value> | undefined;
    const store = () => (opened ??= open(client, id));
    return { get: () => store().get(), subscribe: (listener) => store().subscribe(listener) };
  }, [open, client, id]);
}
