import type { ConnectionOptions } from "node:tls";
import { FlotillaError } from "../../base/errors.ts";
import {
  checkChoice,
  checkNumber,
  checkOptions,
  nearest,
  type NumberRange,
} from "../../base/options.ts";

/** A Postgres store by options, for what a URL cannot express. */
export type PostgresStore = PostgresTimeouts & {
  /** As `pg` takes it. Not needed with a `pool`. */
  url?: string;
  /**
   * A pool of your own, used for everything except the heartbeat and listening. Those need
   * connections of their own, opened with `url` or, without one, with the pool's options.
   */
  pool?: PostgresPool;
  /** Replaces the password in the URL. A function is called for every new connection. */
  password?: string | (() => string | Promise<string>);
  /**
   * Replaces `sslmode` and the other TLS parameters in the URL; what `tls.connect` takes, such as
   * `{ ca }`.
   */
  ssl?: boolean | ConnectionOptions;
  /** The schema of Flotilla's tables. Default `flotilla`. */
  schema?: string;
  /** Connections for writes, and as many for reads. Default 4. Two more are for cold reads, two for pages. */
  connections?: number;
  /** The kind of pooler before the server. Detected if not given. */
  pooler?: Pooler;
  /**
   * Opens what only resembles Postgres, such as YugabyteDB or CockroachDB, by statements that need less.
   * Default false: it is refused. See docs/stores.md.
   */
  unproven?: boolean;
};

export type PostgresTimeouts = {
  /** Time limit for opening a connection or waiting for a free one. Default 10,000. */
  connectTimeoutMs?: number;
  /** The server cancels a statement after this time. Default 30,000. */
  statementTimeoutMs?: number;
  /** How long a statement may wait for a lock. Default 10,000. */
  lockTimeoutMs?: number;
  /** The server ends an idle transaction after this time. Default 60,000. */
  idleInTransactionTimeoutMs?: number;
  /** A connection without an answer for this long counts as broken. Default 45,000. */
  answerTimeoutMs?: number;
};

type Pooler = (typeof poolers)[number];

/** The part of a pool of `pg` that Flotilla uses. */
export type PostgresPool = {
  connect(): Promise<{ release(error?: Error | boolean): void }>;
  on(event: "error", listener: (error: Error) => void): unknown;
  readonly options?: object;
};

/** A validated store, with Flotilla's parameters removed from the URL. */
export type CheckedStore = PostgresStore & { readonly schema: string };

/** A store that can be sent to another thread, and the password function, which cannot. */
export type ThreadStore<Sent = PostgresStore> = {
  readonly store: Sent;
  readonly password?: () => string | Promise<string>;
};

type PoolOptions = Pick<PostgresStore, "password" | "ssl"> & {
  connectionString?: string;
  host?: string;
  port?: number;
  user?: string;
  database?: string;
};

const poolers = ["none", "session", "transaction"] as const;

const range: NumberRange = { min: 1, max: 3_600_000 };
export const defaultTimeouts: Readonly<Required<PostgresTimeouts>> = {
  connectTimeoutMs: 10_000,
  statementTimeoutMs: 30_000,
  lockTimeoutMs: 10_000,
  idleInTransactionTimeoutMs: 60_000,
  // A socket whose peer is gone stays silent; after this time it counts as broken.
  answerTimeoutMs: 45_000,
};

const numbers: Readonly<Record<string, NumberRange>> = {
  connections: { min: 1, max: 1_000 },
  ...Object.fromEntries(Object.keys(defaultTimeouts).map((name) => [name, range])),
};
const words = ["schema", "pooler"];
const flags: Readonly<Record<string, boolean>> = {
  "1": true,
  true: true,
  "0": false,
  false: false,
};
const flagNames = ["unproven"];
const others = ["url", "pool", "password", "ssl"];
const ours = [...words, ...flagNames, ...Object.keys(numbers)];
const tlsParameters = ["ssl", "sslmode", "sslcert", "sslkey", "sslrootcert"];
const schemaPattern = /^[a-z_][a-z0-9_]{0,50}$/;

/** Validates a store by URL or by options; options override the URL. */
export function checkStore(given: string | PostgresStore): CheckedStore {
  const store = typeof given === "string" ? { url: given } : given;
  if (isPool(store)) {
    throw new FlotillaError("invalid_option", "store: a pool is given as `{ pool }`");
  }
  checkOptions("store", store, [...others, ...ours]);
  const { pool, url, ssl, password } = store;
  if (pool !== undefined && !isPool(pool)) {
    throw new FlotillaError("invalid_option", "store.pool must be a pool of `pg`");
  }
  if (pool === undefined && (typeof url !== "string" || !/^postgres(ql)?:/i.test(url))) {
    throw new FlotillaError(
      "invalid_option",
      'store must be a URL, or an object with `url: "postgres://…"` or a `pool`',
    );
  }
  const checked = { ...fromUrl(url), ...withoutUndefined(store) } as PostgresStore;
  if (url !== undefined) checked.url = plainUrl(url, ssl !== undefined);
  for (const [name, limits] of Object.entries(numbers)) {
    const value = (checked as Record<string, unknown>)[name];
    if (value !== undefined) checkNumber(`store.${name}`, value, limits);
  }
  if (checked.pooler !== undefined) checkChoice("store.pooler", checked.pooler, poolers);
  if (checked.unproven !== undefined && typeof checked.unproven !== "boolean") {
    throw new FlotillaError(
      "invalid_option",
      "store.unproven must be true or false, 1 or 0 in a URL",
    );
  }
  if (password !== undefined && typeof password !== "string" && typeof password !== "function") {
    throw new FlotillaError("invalid_option", "store.password must be a text or a function");
  }
  if (ssl !== undefined && typeof ssl !== "boolean" && (typeof ssl !== "object" || ssl === null)) {
    throw new FlotillaError("invalid_option", "store.ssl must be true, false or an object");
  }
  const { schema = "flotilla" } = checked;
  checkSchema(schema);
  return { ...checked, schema };
}

/** The same store on connections of our own, opened with the options of the caller's pool. */
export function withoutPool({ pool, ...store }: PostgresStore): PostgresStore & { url: string } {
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
  // As in the driver, the URL overrides the options beside it.
  const silent = ssl !== undefined && !/[?&]ssl/.test(url);
  return { url, ...(silent && { ssl }), ...store };
}

/** Separates what can be sent to the heartbeat thread from the password function. */
export function forThread(given: PostgresStore): ThreadStore {
  const { password, ssl, ...store } = withoutPool(given);
  // The driver makes the key non-enumerable, so a copy would lose it.
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

/** The options of ours that a URL names. */
function fromUrl(url = ""): Record<string, string | number | boolean> {
  const found: Record<string, string | number | boolean> = {};
  for (const [name, value] of parametersOf(url)) {
    if (words.includes(name)) found[name] = value;
    else if (flagNames.includes(name)) found[name] = flags[value] ?? value;
    // Anything but a number stays text, and is refused with the other values.
    else if (name in numbers) found[name] = /^\d+$/.test(value) ? Number(value) : value;
    else refuseTypo(name);
  }
  return found;
}

/** Other parameters are the driver's, which ignores unknown ones. */
function refuseTypo(name: string): void {
  // The driver's parameters that resemble ours contain an underscore.
  const meant = name.includes("_") ? undefined : nearest(name, ours);
  if (meant === undefined) return;
  throw new FlotillaError(
    "invalid_option",
    `store: unknown parameter \`${name}\` in the URL, did you mean \`${meant}\`?`,
  );
}

/** The URL without our parameters, which the driver would not know. */
function plainUrl(url: string, withoutTls: boolean): string {
  const [place, query] = split(url);
  if (query === undefined) return url;
  const kept = query.split("&").filter((each) => {
    const name = each.replace(/=.*$/s, "");
    return each !== "" && !ours.includes(name) && !(withoutTls && tlsParameters.includes(name));
  });
  return kept.length > 0 ? `${place}?${kept.join("&")}` : place;
}

function parametersOf(url: string): [string, string][] {
  return [...new URLSearchParams(split(url)[1] ?? "")];
}

function split(url: string): [string, string | undefined] {
  const at = url.indexOf("?");
  return at < 0 ? [url, undefined] : [url.slice(0, at), url.slice(at + 1)];
}

function isPool(pool: unknown): pool is PostgresPool {
  const { connect, on } = (pool ?? {}) as Record<string, unknown>;
  return typeof connect === "function" && typeof on === "function";
}

function withoutUndefined(store: PostgresStore): PostgresStore {
  return Object.fromEntries(Object.entries(store).filter(([, value]) => value !== undefined));
}

/** The schema is the only name that goes into a statement's text, so it must match a pattern. */
function checkSchema(schema: string): void {
  if (typeof schema === "string" && schemaPattern.test(schema)) return;
  throw new FlotillaError(
    "invalid_option",
    `store.schema must be a lower-case name of letters, digits and _, not ${JSON.stringify(schema)}`,
  );
}

/** Leaves out what is not given, so that the driver reads it from the environment. */
function urlOf({ host, port, user, database }: PoolOptions): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ host, port, user })) {
    if (value !== undefined) query.set(name, String(value));
  }
  return `postgres:///${encodeURIComponent(database ?? "")}?${query.toString()}`;
}
