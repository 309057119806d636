import { join } from "node:path";

/** Gives the URL of an empty store with this name. */
export type FreshStore = (name: string) => Promise<string>;

export function sqliteStores(folder: string): FreshStore {
  return (name) => Promise.resolve(`sqlite:${join(folder, `${name}.db`)}`);
}
