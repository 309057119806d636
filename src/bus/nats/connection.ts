import { readFile } from "node:fs/promises";
import type * as driver from "@nats-io/transport-node";
import { contentionMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { between, type Random } from "../../base/random.ts";
import { settledWithin, withTimeout } from "../../base/timeout.ts";
import type { NatsSettings } from "./config.ts";

/**
 * A connection to servers of NATS, which is made again whenever it is lost. What is published while it is
 * away is lost, which the publisher is told.
 */
export type NatsConnection = {
  readonly namespace: string;
  /** `connecting` only before the first try has ended. */
  readonly state: "connecting" | "connected" | "away" | "closed";
  /** Settles with the first try, and rejects with what to do about its failure. It is tried again all the same. */
  readonly started: Promise<void>;
  /** The servers' version, while it is connected. */
  readonly serverVersion: string | undefined;
  /**
   * The driver's own connection, for what streams need of it, while it is connected. Declarations can't name
   * its type, because the driver may not be installed.
   */
  readonly client: object | undefined;
  /** Sends all messages, or none. `reply` is where a server answers if no process subscribes to the first. */
  publish(
    subject: string,
    messages: readonly Uint8Array[],
    options?: { reply?: string },
  ): "sent" | "away" | "full";
  /** The callback must not throw. */
  subscribe(subject: string, onMessage: (message: NatsMessage) => void): () => void;
  /** Calls back each time that it was connected, and what was published before may have been missed. */
  onConnected(listener: () => void): () => void;
  /** Resolves when the servers have all that was published, or soon after if they don't say so. */
  flush(): Promise<void>;
  close(): Promise<void>;
};

export type NatsMessage = {
  readonly subject: string;
  readonly data: Uint8Array;
  /** The message is a server's: no process subscribes to what was published with this as reply. */
  readonly isNoResponders: boolean;
};

export type NatsConnectionParts = { clock: Clock; random: Random; log: Logger };

// Earlier servers are no longer maintained, and some lose what they have acknowledged.
const oldestServer = [2, 11] as const;
// A piece of an envelope and what is around it.
const smallestPayload = 640 * 1024;
const connectTimeoutMs = 5_000;
// A dead connection is noticed after three of these.
const pingMs = 500;
const reconnectMs = 250;
const flushTimeoutMs = 500;
// What was handed over and has perhaps not left this process. More is refused.
const maxWaitingBytes = 16 * 1024 * 1024;
// Servers are asked whether they have it after so much.
const flushAfterBytes = 256 * 1024;

/** Connects to NATS in the background. The package of its client is loaded with the first connection. */
export function connectNats(settings: NatsSettings, parts: NatsConnectionParts): NatsConnection {
  const { clock, random, log } = parts;
  const { namespace } = settings;
  const where = settings.servers.join(", ");
  type Entry = { subject: string; onMessage: (message: NatsMessage) => void; stop?: () => void };
  const subscriptions = new Set<Entry>();
  const listeners = new Set<() => void>();
  const started = Promise.withResolvers<void>();
  // A caller that doesn't wait for it isn't to be ended by it.
  started.promise.catch(() => {});
  let state: NatsConnection["state"] = "connecting";
  let connection: driver.NatsConnection | undefined;
  let failures = 0;
  let cancelRetry = () => {};
  let waitingBytes = 0;
  let flushing = false;

  const isClosed = () => state === "closed";

  const connected = () => {
    state = "connected";
    waitingBytes = 0;
    failures = 0;
    for (const listener of listeners) listener();
  };
  const away = (error: unknown) => {
    if (isClosed()) return;
    if (state === "connected") {
      log.warn({ servers: where }, "NATS is away: polling, and envelopes to other pods are lost");
    } else if (failures === 0) {
      log.error({ servers: where, error: messageOf(error) }, "NATS can't be used: trying again");
    }
    state = "away";
  };

  const listen = (entry: Entry) => {
    if (!connection) return;
    const subscription = connection.subscribe(entry.subject, {
      callback(error, message) {
        if (error) {
          log.error({ subject: entry.subject, error: messageOf(error) }, "NATS subscription ended");
          return;
        }
        const { subject, data, headers } = message;
        const isNoResponders = data.length === 0 && headers?.code === 503;
        entry.onMessage({ subject, data, isNoResponders });
      },
    });
    entry.stop = () => subscription.unsubscribe();
  };

  const attempt = async (): Promise<void> => {
    try {
      const opened = await open(settings, parts);
      const violations: string[] = [];
      void watch(opened, violations);
      try {
        await checkServer(opened, settings, violations, clock);
      } catch (error) {
        await opened.close().catch(() => {});
        throw error;
      }
      if (isClosed()) {
        await opened.close();
        return;
      }
      connection = opened;
      for (const entry of subscriptions) listen(entry);
      log.info({ servers: where, version: opened.info?.version, namespace }, "NATS connected");
      connected();
      started.resolve();
    } catch (error) {
      away(error);
      failures++;
      started.reject(error);
      retry();
    }
  };

  const retry = () => {
    if (isClosed()) return;
    cancelRetry();
    cancelRetry = clock.after(contentionMs(Math.max(1, failures), random), () => void attempt());
  };

  /** Follows a connection until its end. The client connects again by itself. */
  const watch = async (watched: driver.NatsConnection, violations: string[]): Promise<void> => {
    for await (const status of watched.status()) {
      if (status.type === "error") {
        const violation = violationOf(status.error);
        if (violation !== undefined) violations.push(violation);
        if (connection === watched)
          log.error({ servers: where, error: messageOf(status.error) }, "NATS reports an error");
      } else if (connection !== watched || isClosed()) continue;
      else if (status.type === "disconnect") away(undefined);
      else if (status.type === "reconnect") {
        log.info({ servers: where, server: status.server }, "NATS is back");
        connected();
      }
    }
    if (connection !== watched || isClosed()) return;
    connection = undefined;
    away(undefined);
    retry();
  };

  /** Learns what has left this process, so that what waits is bounded. */
  const drained = () => {
    if (flushing || waitingBytes < flushAfterBytes || !connection) return;
    flushing = true;
    const bytes = waitingBytes;
    connection.flush().then(
      () => {
        flushing = false;
        waitingBytes = Math.max(0, waitingBytes - bytes);
        drained();
      },
      // It was lost with the connection.
      () => (flushing = false),
    );
  };

  void attempt();
  return {
    namespace,
    started: started.promise,
    get state() {
      return state;
    },
    get serverVersion() {
      return state === "connected" ? connection?.info?.version : undefined;
    },
    get client() {
      return state === "connected" ? connection : undefined;
    },
    publish(subject, messages, { reply } = {}) {
      if (state !== "connected" || !connection) return "away";
      const bytes = messages.reduce((sum, { length }) => sum + length, 0);
      if (waitingBytes + bytes > maxWaitingBytes) return "full";
      try {
        for (const [nth, message] of messages.entries()) {
          connection.publish(subject, message, nth === 0 && reply ? { reply } : {});
        }
      } catch (error) {
        log.warn({ error: messageOf(error) }, "NATS took no message");
        return "away";
      }
      waitingBytes += bytes;
      drained();
      return "sent";
    },
    subscribe(subject, onMessage) {
      const entry: Entry = { subject, onMessage };
      subscriptions.add(entry);
      listen(entry);
      return () => {
        subscriptions.delete(entry);
        if (connection && !connection.isClosed()) entry.stop?.();
      };
    },
    onConnected(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    async flush() {
      if (state !== "connected" || !connection) return;
      await settledWithin(clock, flushTimeoutMs, connection.flush()).catch(() => {});
    },
    async close() {
      if (isClosed()) return;
      state = "closed";
      cancelRetry();
      listeners.clear();
      subscriptions.clear();
      started.reject(new FlotillaError("closed", "the connection to NATS was closed"));
      const left = connection;
      connection = undefined;
      await left?.close().catch(() => {});
    },
  };
}

/** The subject of what a deployment does, such as `mail.<address>`. */
export function subjectOf(namespace: string, ...rest: readonly string[]): string {
  return ["flotilla", namespace, ...rest].join(".");
}

/** Where servers answer requests of a deployment: other programs of its account have other inboxes. */
export function inboxOf(namespace: string): string {
  return `_INBOX.${subjectOf(namespace)}`;
}

async function open(
  settings: NatsSettings,
  parts: NatsConnectionParts,
): Promise<driver.NatsConnection> {
  const { connect, ...rest } = await loadDriver(settings);
  const authenticator = await authenticatorOf(settings, rest);
  const tls = await tlsOf(settings);
  try {
    return await connect({
      servers: [...settings.servers],
      name: "flotilla",
      inboxPrefix: inboxOf(settings.namespace),
      timeout: connectTimeoutMs,
      maxReconnectAttempts: -1,
      // An operator may correct what servers know of us while we run.
      ignoreAuthErrorAbort: true,
      ...paceOf(parts),
      pingInterval: pingMs,
      maxPingOut: 2,
      noAsyncTraces: true,
      ...(authenticator && { authenticator }),
      ...(tls && { tls }),
    });
  } catch (error) {
    throw startError(error, settings);
  }
}

/**
 * Paces tries by a clock that only grows. The client's own pace compares the wall clock with when it last
 * dialed a server: if it's set back, the client wouldn't dial for as long.
 */
function paceOf({ clock, random }: NatsConnectionParts): Partial<driver.NodeConnectionOptions> {
  const dialedMs = new Map<string, number>();
  return {
    // Its own pace is over, whenever it was.
    reconnectDelayHandler: () => -Infinity,
    reconnectToServer([server]) {
      const { listen } = server!;
      const pauseMs = between(random, reconnectMs, 1.5 * reconnectMs);
      const nowMs = clock.monotonic();
      const delay = Math.max(0, (dialedMs.get(listen) ?? -Infinity) + pauseMs - nowMs);
      dialedMs.set(listen, nowMs + delay);
      return { server: server!, delay };
    },
  };
}

async function loadDriver({ use }: NatsSettings): Promise<typeof driver> {
  try {
    return await import("@nats-io/transport-node");
  } catch (error) {
    throw new FlotillaError(
      "unsupported",
      `\`nats\` needs its client: npm install @nats-io/transport-node${use === "all" ? " @nats-io/jetstream" : ""}`,
      { cause: error },
    );
  }
}

type Authenticators = Pick<
  typeof driver,
  | "credsAuthenticator"
  | "nkeyAuthenticator"
  | "tokenAuthenticator"
  | "usernamePasswordAuthenticator"
>;

async function authenticatorOf(
  { credentials }: NatsSettings,
  make: Authenticators,
): Promise<driver.Authenticator | undefined> {
  if (!credentials) return undefined;
  if ("token" in credentials) return make.tokenAuthenticator(credentials.token);
  if ("user" in credentials)
    return make.usernamePasswordAuthenticator(credentials.user, credentials.password);
  const isFile = "file" in credentials;
  try {
    const authenticator = isFile
      ? make.credsAuthenticator(await readFile(credentials.file))
      : make.nkeyAuthenticator(Buffer.from(credentials.nkey));
    // What can't be read shows with the first signature, and here it has a name.
    authenticator("a nonce");
    return authenticator;
  } catch (error) {
    throw new FlotillaError(
      "invalid_option",
      isFile
        ? `nats.credentials.file can't be used (${messageOf(error)}): name a file that \`nsc\` or \`nats\` has written`
        : "nats.credentials.nkey isn't a seed: copy it from where it was made",
    );
  }
}

async function tlsOf({ tls }: NatsSettings): Promise<driver.TlsOptions | undefined> {
  if (!tls) return undefined;
  const { handshakeFirst = false, ...files } = tls;
  const read = async (name: keyof typeof files) => {
    const path = files[name];
    try {
      return path === undefined ? undefined : await readFile(path, "utf8");
    } catch (error) {
      throw new FlotillaError(
        "invalid_option",
        `nats.tls.${name} can't be read (${messageOf(error)}): name a file in PEM`,
      );
    }
  };
  const [ca, cert, key] = await Promise.all([read("caFile"), read("certFile"), read("keyFile")]);
  return {
    ...(handshakeFirst && { handshakeFirst }),
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
  };
}

/** What keeps a connection from being made, in a sentence that says what to do. */
function startError(error: unknown, { servers, tls }: NatsSettings): FlotillaError {
  const where = servers.join(", ");
  const { name, message, code = "", cause } = (error ?? {}) as Partial<Error> & { code?: string };
  const reason = code || message || "no answer";
  if (name === "AuthorizationError" || name === "UserAuthenticationExpiredError") {
    return new FlotillaError(
      "unauthorized",
      `the NATS servers at ${where} refuse these credentials: set nats.credentials to what they know`,
      { cause: error },
    );
  }
  if (/CERT|TLS|SSL|SIGNATURE|ISSUER/.test(`${code} ${(cause as { code?: string })?.code ?? ""}`)) {
    return new FlotillaError(
      "unavailable",
      `the certificate of a NATS server at ${where} doesn't verify (${reason}): name its authority in nats.tls.caFile, and the host that it is made out to in nats.servers`,
      { cause: error },
    );
  }
  if (tls && message?.includes("tls")) {
    return new FlotillaError(
      "unavailable",
      `the NATS servers at ${where} offer no TLS: configure it there, or leave out nats.tls`,
      { cause: error },
    );
  }
  return new FlotillaError(
    "unavailable",
    `no NATS server answers at ${where} (${reason}): start one, or correct nats.servers`,
    { cause: error },
  );
}

/** Refuses servers that are too old or take too little, and users that may not do what is needed. */
async function checkServer(
  connection: driver.NatsConnection,
  { namespace, use }: NatsSettings,
  violations: readonly string[],
  clock: Clock,
): Promise<void> {
  const { version = "", server_name: name = "", max_payload: limit = 0 } = connection.info ?? {};
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [needMajor, needMinor] = oldestServer;
  if (major < needMajor || (major === needMajor && minor < needMinor)) {
    throw new FlotillaError(
      "unsupported",
      `the NATS server ${name} is ${version}: use ${oldestServer.join(".")} or later`,
    );
  }
  if (limit < smallestPayload) {
    throw new FlotillaError(
      "unsupported",
      `the NATS server ${name} takes ${limit} bytes at most: set max_payload to 1MB or more`,
    );
  }
  const used = use === "all" ? ["mail", "wake", "beat", "log"] : ["mail", "wake"];
  const probes = used.map((what) => subjectOf(namespace, what, "probe"));
  const subscriptions = probes.map((probe) => {
    const subscription = connection.subscribe(probe, { callback() {} });
    connection.publish(probe);
    return subscription;
  });
  const late = () =>
    new FlotillaError("unavailable", `the NATS server ${name} didn't answer in time: try again`);
  // Refusals come before the answer to this, and are seen a moment later.
  await withTimeout(clock, connectTimeoutMs, connection.flush(), late);
  await withTimeout(clock, connectTimeoutMs, connection.flush(), late);
  for (const each of subscriptions) if (!each.isClosed()) each.unsubscribe();
  if (violations.length === 0) return;
  throw new FlotillaError(
    "forbidden",
    `this user may not ${violations[0]} on the NATS server ${name}: allow it to publish and subscribe to flotilla.${namespace}.>`,
  );
}

function violationOf(error: Error): string | undefined {
  if (error.name !== "PermissionViolationError") return undefined;
  const { operation, subject } = error as driver.PermissionViolationError;
  return `${operation === "publish" ? "publish" : "subscribe"} to ${subject}`;
}
