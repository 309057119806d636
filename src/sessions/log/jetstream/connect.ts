import type {
  ClusterInfo,
  JetStreamClient,
  JetStreamManager,
  StoredMsg,
  StreamConfig,
  StreamInfo,
} from "@nats-io/jetstream";
import type { MsgHdrs, NatsConnection, PermissionViolationError } from "@nats-io/transport-node";
import { type Clock, sleep } from "../../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../../base/errors.ts";
import type {
  CreateAnswer,
  PublishAnswer,
  StoredMessage,
  StreamCopy,
  StreamEngine,
  StreamSettings,
} from "./engine.ts";
import { noPermission } from "./requirements.ts";

export type ConnectStreamsParts = {
  /** A connection of its own, or what gives one that others use too, unless it is away. */
  connection: NatsConnection | (() => NatsConnection | undefined);
  clock: Clock;
  /** The monitoring addresses of the servers, such as `http://10.0.0.5:8222`. */
  monitors?: readonly string[];
  /** Reads JSON over HTTP. */
  readJson: (url: string) => Promise<unknown>;
};

/** How long the servers may take to make a stream. */
const createLimitMs = 5_000;
/** How long they may take for anything else but a publish. */
const requestLimitMs = 2_000;
/**
 * How long an answer is waited for until the same is asked again. A stream without a leader answers nothing,
 * and the leader that it gets knows nothing of what was asked before.
 */
const askAgainMs = 400;
/** How long a replay waits for the next message. */
const replayIdleMs = 1_000;
const replayRetryMs = 50;
const replayTries = 3;
/** What one request of a replay asks for, about, so that others have their turn between two of them. */
const replayBytes = 1_024 * 1_024;
const firstReplayMessages = 64;
const maxReplayMessages = 1_000;
/** What it is answered with at most, about. */
const maxReplayBytes = 4 * 1_024 * 1_024;
/** Requests of a replay at a time: servers read and send while what has come is taken in. */
const replayRequests = 3;
/** The shortest window in which servers compare message ids, of which none are sent. */
const duplicatesNanos = 100_000_000;
const nanosPerMs = 1_000_000;

/** Codes of JetStream's errors. */
const codes = {
  wrongLast: 10071,
  storeFailed: 10077,
  tooLarge: 10054,
  notFound: 10037,
  noStream: 10059,
  nameTaken: 10058,
  noStorage: 10047,
  noResources: 10023,
  noPeers: 10005,
} as const;

/** What is used of JetStream, on real servers. Their client is loaded when this is called. */
export async function connectStreams(parts: ConnectStreamsParts): Promise<StreamEngine> {
  const { connection: given, clock, monitors = [], readJson } = parts;
  const { jetstream, jetstreamManager } = await loadClient();
  const { headers: newHeaders } = await import("@nats-io/transport-node");
  const current = typeof given === "function" ? given : () => given;
  let known: Promise<Streaming> | undefined;
  let knownFor: NatsConnection | undefined;

  const bind = async (connection: NatsConnection): Promise<Streaming> => ({
    connection,
    // Neither asks the servers for anything yet.
    manager: await jetstreamManager(connection, { checkAPI: false, timeout: requestLimitMs }),
    maker: await jetstreamManager(connection, { checkAPI: false, timeout: createLimitMs }),
    client: jetstream(connection, { timeout: requestLimitMs }),
  });
  /** A connection that was closed is replaced by another. */
  const streaming = (): Promise<Streaming> => {
    const connection = current();
    if (!connection) throw unavailable(new Error("the connection to them is away"));
    if (!known || knownFor !== connection) {
      knownFor = connection;
      known = bind(connection);
    }
    return known;
  };

  /**
   * The messages from a sequence on, as many as one replica sends at once. One that is behind, hangs or
   * dies ends early, so another is asked if there were none.
   */
  const readOn = async (stream: string, from: number, to: number): Promise<StoredMessage[]> => {
    for (let tries = 1; ; tries++) {
      const { found, error } = await readBatch(stream, from, to);
      if (found.length > 0) return found;
      if (tries === replayTries) {
        if (error) throw unavailable(error);
        return found;
      }
      await sleep(clock, replayRetryMs);
    }
  };

  const readBatch = async (stream: string, from: number, to: number) => {
    const { manager } = await streaming();
    const found: StoredMessage[] = [];
    const over = Promise.withResolvers<Error | undefined>();
    let heardMs = clock.monotonic();
    // One timer for all messages: there may be thousands a second.
    const watch = (): void => {
      const leftMs = heardMs + replayIdleMs - clock.monotonic();
      if (leftMs <= 0) over.resolve(undefined);
      else cancel = clock.after(leftMs, watch);
    };
    let cancel = clock.after(replayIdleMs, watch);
    const messages = await manager.direct.getBatch(stream, {
      seq: from,
      batch: Math.min(maxReplayMessages, to - from + 1),
      max_bytes: maxReplayBytes,
      callback(done, message) {
        if (done) return over.resolve(done.err);
        heardMs = clock.monotonic();
        found.push(toStored(message)!);
      },
    });
    const error = await over.promise;
    cancel();
    messages.stop();
    return { found, error };
  };

  /** Asks for what may be asked twice. The first answer counts, and the limit of the first question. */
  const asked = <Value>(ask: (servers: Streaming) => Promise<Value>): Promise<Value | undefined> =>
    answered(() => {
      const { promise, resolve, reject } = Promise.withResolvers<Value>();
      let cancel = () => {};
      const askOnce = async (): Promise<Value> => ask(await streaming());
      const askOn = (): void => {
        cancel = clock.after(askAgainMs, askOn);
        askOnce().then(resolve, reject);
      };
      askOn();
      return promise.finally(() => cancel());
    });

  return {
    async publish({ subject, headers, body }, { lastSequence, of, limitMs }) {
      const encoded: MsgHdrs = newHeaders();
      for (const [name, value] of Object.entries(headers)) encoded.set(name, value);
      try {
        const { client } = await streaming();
        const expect = of === "subject" ? { lastSubjectSequence: lastSequence } : { lastSequence };
        const options = { headers: encoded, expect, timeout: limitMs };
        const ack = await client.publish(subject, body, options);
        return { type: "acked", stream: ack.stream, sequence: ack.seq };
      } catch (error) {
        return toAnswer(error);
      }
    },

    read: (stream, sequence) =>
      asked(async ({ manager }) => {
        const found = await manager.direct.getMessage(stream, { seq: sequence });
        // Any replica may have answered. The leader is behind least.
        return toStored(found ?? (await manager.streams.getMessage(stream, { seq: sequence })));
      }),

    lastOn: (stream, subject) =>
      asked(async ({ manager }) =>
        toStored(await manager.streams.getMessage(stream, { last_by_subj: subject })),
      ),

    async *readFrom(stream, { from, to }) {
      let next = from;
      let count = firstReplayMessages;
      let asked: { from: number; to: number; found: Promise<StoredMessage[]> }[] = [];
      const ask = (first: number, last: number) => {
        const found = readOn(stream, first, last);
        // Its failure is seen when it is awaited, which doesn't happen if the reader stops before.
        found.catch(() => {});
        return { from: first, to: last, found };
      };
      for (;;) {
        while (asked.length < replayRequests && next <= to) {
          asked.push(ask(next, Math.min(to, next + count - 1)));
          next = asked.at(-1)!.to + 1;
        }
        const first = asked.shift();
        if (!first) return;
        const messages = await first.found;
        const last = messages.at(-1)?.sequence;
        if (last === undefined) return;
        const isGap = messages[0]!.sequence > first.from;
        if (isGap) {
          // Messages are missing only where a log was trimmed, and the others asked for those too.
          asked = [];
          next = last + 1;
        } else if (last < first.to) asked.unshift(ask(last + 1, first.to));
        const bytes = messages.reduce((sum, { body }) => sum + body.length, 0);
        const fitting = Math.floor((replayBytes * messages.length) / Math.max(1, bytes));
        count = Math.min(maxReplayMessages, Math.max(1, fitting));
        yield* messages;
      }
    },

    state: (stream) =>
      asked(async ({ manager }) => {
        const { config, state, cluster } = await manager.streams.info(stream);
        // An empty stream names the first sequence that it had or will have.
        const isEmpty = state.messages === 0;
        return {
          settings: toSettings(config),
          firstSequence: isEmpty ? state.last_seq + 1 : state.first_seq,
          lastSequence: state.last_seq,
          bytes: state.bytes,
          copies: toCopies(cluster),
        };
      }),

    async create(settings) {
      const { maker } = await streaming();
      try {
        await maker.streams.add(toConfig(settings));
        return { type: "made" };
      } catch (error) {
        return toRefusal(error);
      }
    },

    async purge(stream, below) {
      await answered(async () => (await streaming()).manager.streams.purge(stream, { seq: below }));
    },

    async facts() {
      const { connection, manager } = await streaming();
      const hasJetStream = await manager.getAccountInfo().then(
        () => true,
        (error: unknown) => {
          if (nameOf(error) === "JetStreamNotEnabled") return false;
          throw unavailable(error);
        },
      );
      const { version = "", max_payload: maxPayloadBytes = 0 } = connection.info ?? {};
      const answers = await Promise.allSettled(
        monitors.map(async (url) => readJson(new URL("/varz", url).href)),
      );
      const pages = answers.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
      const silent = answers.flatMap((each) =>
        each.status === "rejected" ? [messageOf(each.reason)] : [],
      );
      // An address that leads to several servers, one after the other, tells of one.
      const servers = [
        ...new Map(pages.map((page, nth) => [serverOf(page) ?? nth, page])).values(),
      ];
      return {
        version,
        hasJetStream,
        maxPayloadBytes,
        flushes: servers.map(flushesFirst),
        versions: servers.flatMap(versionOf),
        silent,
      };
    },

    async close() {
      // What others use too is theirs to close.
      if (typeof given !== "function") await given.close();
    },
  };
}

type Streaming = {
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  readonly maker: JetStreamManager;
  readonly client: JetStreamClient;
};

async function loadClient(): Promise<typeof import("@nats-io/jetstream")> {
  try {
    return await import("@nats-io/jetstream");
  } catch (error) {
    throw new FlotillaError(
      "unsupported",
      '`nats.use: "all"` needs the client of streams: npm install @nats-io/jetstream',
      { cause: error },
    );
  }
}

/** Undefined where what was asked for isn't there. */
async function answered<Value>(ask: () => Promise<Value>): Promise<Value | undefined> {
  try {
    return await ask();
  } catch (error) {
    const code = apiCode(error);
    if (code === codes.notFound || code === codes.noStream) return undefined;
    throw unavailable(error);
  }
}

function unavailable(cause: unknown): FlotillaError {
  if (hasCode(cause, "store_unavailable")) return cause;
  const mayNot = forbiddenBy(cause);
  const message = `the NATS servers didn't answer: ${messageOf(cause)}`;
  const details = mayNot === undefined ? {} : { details: { mayNot } };
  return new FlotillaError("store_unavailable", message, { cause, ...details });
}

/**
 * An error is an answer only if it says that the message wasn't stored. `10077` carries whatever a server's
 * store says: a limit holds on all servers alike, but a disk that fails is one server's own.
 */
export function toAnswer(error: unknown): PublishAnswer {
  const why = messageOf(error);
  const code = apiCode(error);
  const lastSequence = why.trimEnd().split(" ").at(-1) ?? "";
  if (code === codes.wrongLast && /^\d{1,20}$/.test(lastSequence)) {
    return { type: "wrong_last", lastSequence: Number(lastSequence) };
  }
  const isLimit = /^maximum (?:bytes|messages) exceeded/.test(why);
  if (code === codes.storeFailed && isLimit) return { type: "full" };
  if (code === codes.tooLarge) return { type: "too_large" };
  const mayNot = forbiddenBy(error);
  return { type: "silent", why, ...(mayNot !== undefined && { mayNot }) };
}

function toRefusal(error: unknown): CreateAnswer {
  const code = apiCode(error);
  const why = messageOf(error);
  if (code === codes.nameTaken) return { type: "different" };
  if (forbiddenBy(error) !== undefined) return { type: "refused", code: noPermission, why };
  const isStorage = code === codes.noStorage || code === codes.noResources;
  // A server that is away now comes back, or its operator is told of it again and again.
  const isAway = code === codes.noPeers && why.includes("offline");
  if (code === undefined || isAway || (statusOf(error) === 503 && !isStorage)) {
    throw unavailable(error);
  }
  return { type: "refused", code, why };
}

function nameOf(error: unknown): string | undefined {
  return error instanceof Error ? error.name : undefined;
}

/** What the user may not do, such as `publish to x`. The client wraps what the server says of a subject. */
function forbiddenBy(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (error.name !== "PermissionViolationError") return forbiddenBy(error.cause);
  const { operation, subject } = error as Partial<PermissionViolationError>;
  return `${operation === "subscription" ? "subscribe" : "publish"} to ${subject}`;
}

/** The code of an error of JetStream's own; undefined for any other. */
function apiCode(error: unknown): number | undefined {
  const { code } = error as { code?: unknown };
  return error instanceof Error && typeof code === "number" && code >= 10_000 ? code : undefined;
}

function statusOf(error: unknown): unknown {
  return (error as { status?: unknown }).status;
}

function toStored(found: StoredMsg | null): StoredMessage | undefined {
  if (!found) return undefined;
  const { seq: sequence, subject, header, data: body } = found;
  return { sequence, subject, headers: toHeaders(header), body };
}

function toHeaders(headers: MsgHdrs | undefined): Record<string, string> {
  const found: Record<string, string> = {};
  if (!headers) return found;
  for (const [name, values] of headers) found[name] = values[0]!;
  return found;
}

function toConfig(settings: StreamSettings): Partial<StreamConfig> & { name: string } {
  return {
    name: settings.name,
    subjects: [...settings.subjects],
    retention: "limits",
    storage: settings.storage,
    num_replicas: settings.replicas,
    discard: settings.discard,
    max_bytes: settings.maxBytes,
    max_msgs: settings.maxMessages,
    max_msgs_per_subject: settings.maxPerSubject,
    max_age: settings.maxAgeMs * nanosPerMs,
    max_msg_size: -1,
    max_consumers: -1,
    duplicate_window: duplicatesNanos,
    ...(settings.firstSequence > 1 && { first_seq: settings.firstSequence }),
    allow_direct: settings.allowDirect,
    deny_delete: settings.denyDelete,
    compression: settings.isCompressed ? "s2" : "none",
    metadata: { ...settings.metadata },
  };
}

function toSettings(config: StreamInfo["config"]): StreamSettings {
  const { mirror, sources, sealed, retention, subject_transform: transform, republish } = config;
  return {
    name: config.name,
    subjects: config.subjects ?? [],
    storage: config.storage,
    replicas: config.num_replicas,
    discard: config.discard,
    maxBytes: config.max_bytes,
    maxMessages: config.max_msgs,
    maxPerSubject: config.max_msgs_per_subject,
    maxAgeMs: config.max_age / nanosPerMs,
    firstSequence: Math.max(1, config.first_seq ?? 1),
    allowDirect: config.allow_direct,
    denyDelete: config.deny_delete,
    isCompressed: config.compression === "s2",
    isForeign: Boolean(
      mirror || sources?.length || sealed || transform || republish || retention !== "limits",
    ),
    metadata: config.metadata ?? {},
  };
}

/** The leader, and what it says of the others. */
function toCopies({ leader, replicas = [] }: ClusterInfo = {}): StreamCopy[] {
  const others = replicas.map(({ name, offline, current }) => ({
    server: name,
    state: offline ? ("offline" as const) : current ? ("current" as const) : ("behind" as const),
  }));
  return leader && others.length > 0 ? [{ server: leader, state: "current" }, ...others] : others;
}

function serverOf(page: unknown): string | undefined {
  const { server_id: id } = (page ?? {}) as { server_id?: unknown };
  return typeof id === "string" ? id : undefined;
}

function versionOf(page: unknown): string[] {
  const { version } = (page ?? {}) as { version?: unknown };
  return typeof version === "string" ? [version] : [];
}

function flushesFirst(page: unknown): boolean {
  type Page = { jetstream?: { config?: { sync_always?: unknown } } };
  return (page as Page | null)?.jetstream?.config?.sync_always === true;
}
