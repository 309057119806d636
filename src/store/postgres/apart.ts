import { FlotillaError } from "../../base/errors.ts";
import type { PostgresStore } from "./config.ts";

type PoolOptions = Pick<PostgresStore, "password" | "ssl"> & {
  connectionString?: string;
  host?: string;
  port?: number;
  user?: string;
  database?: string;
};

/** The same store on connections of our own, opened as a caller's pool opens its. */
export function apartFromPool({ pool, ...store }: PostgresStore): PostgresStore & { url: string } {
  if (store.url !== undefined || !pool) return { url: "", ...store };
  const options = (pool.options ?? {}) as PoolOptions;
  const { connectionString: url, password, ssl } = options;
  if (url === undefined) {
    return {
      url: urlOf(options),
      ...(password !== undefined && { password }),
      ...(ssl !== undefined && { ssl }),
      ...store,
    };
  }
  // As the driver does: what the URL says counts more than the options beside it.
  const silent = ssl !== undefined && !/[?&]ssl/.test(url);
  return { url, ...(silent && { ssl }), ...store };
}

/** What isn't said stays out, so that the driver looks for it in the environment. */
function urlOf({ host, port, user, database }: PoolOptions): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ host, port, user })) {
    if (value !== undefined) query.set(name, String(value));
  }
  return `postgres:///${encodeURIComponent(database ?? "")}?${query.toString()}`;
}

/** A store that can be sent to another thread, and what can't: a function that knows the password. */
export type SentStore<Sent = PostgresStore> = {
  readonly store: Sent;
  readonly password?: () => string | Promise<string>;
};

export function forThread(given: PostgresStore): SentStore {
  const { password, ssl, ...store } = apartFromPool(given);
  // The driver hides a key from whoever copies the rest.
  const key = typeof ssl === "object" ? ssl.key : undefined;
  const plain: PostgresStore = {
    ...store,
    ...(typeof password === "string" && { password }),
    ...(ssl !== undefined && {
      ssl: typeof ssl === "object" ? { ...ssl, ...(key !== undefined && { key }) } : ssl,
    }),
  };
  try {
    structuredClone(plain);
  } catch (error) {
    throw new FlotillaError(
      "invalid_option",
      "store: the heartbeat runs on a thread of its own, where functions and objects of `ssl` can't go: give `ca`, `cert` and `key` as text; beside a `pool`, give `url` and such an `ssl` too",
      { cause: error },
    );
  }
  return { store: plain, ...(typeof password === "function" && { password }) };
}
