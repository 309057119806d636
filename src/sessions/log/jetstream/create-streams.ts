import { type Clock, sleep } from "../../../base/clock.ts";
import { FlotillaError, hasCode } from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Random } from "../../../base/random.ts";
import { isEncoded, type StoredText } from "../../../store/codec/codec.ts";
import { settledWithin } from "../../../base/timeout.ts";
import { retryDelayMs } from "../call-deadline.ts";
import { changeOf, type ChangedStream, refuseStream } from "./changed-streams.ts";
import type { PublishAnswer, StreamEngine, StreamSettings } from "./engine.ts";
import { toBody } from "./message.ts";
import { checkPermissions, forbidden, mayNotOf, refuseCreation } from "./requirements.ts";
import {
  decodeMeta,
  type Deployment,
  livesOf,
  type LogLife,
  logStream,
  type Meta,
  type MetaState,
  metaStream,
  metaStreamName,
  metaSubject,
  publishedStreams,
  shareStream,
  streamName,
} from "./streams.ts";

/** Which logs there are, and the making of their streams. */
export type Streams = {
  /**
   * The present lives of all logs; empty if there are none yet. `isFresh`: as the servers have them now; those
   * that are known, if servers don't say so within `limitMs`.
   */
  lives(options?: { isFresh?: boolean; limitMs?: number }): Promise<readonly LogLife[]>;
  /** Makes the streams of so many logs, unless a pod has done so. */
  create(logs: number): Promise<void>;
  /** Makes the stream of documents that shares of throttles are in. */
  createShares(): Promise<void>;
  /** Makes the stream of one life of a log. No log is there yet. */
  make(life: LogLife): Promise<void>;
  /** What the meta message says, and its place. Rejects while there is none. */
  meta(): Promise<StoredMeta>;
  /**
   * Changes the life of a log, or nothing, if the meta message is still the one that was read. Returns
   * whether it was; undefined if that isn't known.
   */
  change(read: StoredMeta, life?: LogLife): Promise<boolean | undefined>;
  /** Which streams of a log aren't as they were made. Undefined if it has another life by now. */
  changed(log: Pick<LogLife, "logId" | "incarnation">): Promise<LogStreams | undefined>;
  /** What the meta message says of the logs as a whole; undefined while there is none. */
  state(): Promise<MetaState | undefined>;
  /** Makes streams for logs that are in the database. No pod takes them before they are `live`. */
  prepare(lives: readonly LogLife[]): Promise<void>;
  /**
   * Has the meta message say that logs which were prepared are `live`, or that those which were are `closed`.
   * `check` throws where that isn't this process's any more, and the message must be as it was before it.
   */
  turn(to: "live" | "closed", check: () => Promise<void>): Promise<void>;
  /**
   * Has the meta message carry the secret of the database, where logs are `live`. Returns whether nothing is
   * left to do: after a change the next call tells.
   */
  keepSecret(secret: string): Promise<boolean>;
};

/** What was changed of the streams of a log. */
export type LogStreams = {
  readonly own: ChangedStream | undefined;
  /** The first message that the stream of the log has. */
  readonly firstSequence: number;
  /** Those that all logs share. They count as streams of the first one. */
  readonly shared: readonly ChangedStream[];
};

export type StoredMeta = { readonly meta: Meta; readonly sequence: number };

const publishLimitMs = 2_000;
/** Servers that were just started elect the leaders of their streams first. */
const createLimitMs = 30_000;

export type StreamsParts = {
  engine: StreamEngine;
  deployment: Deployment;
  ids: Ids;
  clock: Clock;
  random: Random;
  /** Whether logs are seen too that are on their way to these streams or from there. Default false. */
  seesMoving?: boolean | undefined;
  /** Encodes the secret, as it does what is stored. Default: it is kept as it is. */
  text?: StoredText | undefined;
};

export function createStreams(parts: StreamsParts): Streams {
  const { engine, deployment, ids, clock, random, seesMoving = false, text } = parts;
  let known: readonly LogLife[] = [];
  let knownSequence = 0;
  let isMade = false;

  /** A server that is behind names lives before those that are known. */
  const learn = (lives: readonly LogLife[], sequence: number): readonly LogLife[] => {
    if (sequence >= knownSequence) [known, knownSequence] = [lives, sequence];
    return known;
  };

  /** Makes a stream, and checks one that is there. */
  const make = async (settings: StreamSettings): Promise<void> => {
    const answer = await engine.create(settings);
    const found = answer.type === "refused" ? undefined : await engine.state(settings.name);
    if (found) {
      const why = refuseStream(settings, found.settings);
      if (why !== undefined) throw refused(why);
    }
    if (answer.type === "made") return;
    throw refused(refuseCreation(settings.name, answer, deployment));
  };

  /** Changes the meta message, if no other pod has. */
  const offer = async (meta: Meta, lastSequence: number): Promise<PublishAnswer> => {
    const message = { subject: metaSubject(deployment), headers: {}, body: toBody(meta) };
    const stream = metaStreamName(deployment);
    const condition = { stream, lastSequence, limitMs: publishLimitMs };
    const answer = await engine.publish(message, condition);
    if (answer.type === "silent" && answer.mayNot !== undefined) throw forbidden(answer.mayNot);
    return answer;
  };

  /** Brings the making of the logs one step on. Returns whether they are all there. */
  const advance = async (first: Meta): Promise<boolean> => {
    if (!isMade) await make(metaStream(deployment));
    isMade = true;
    const stored = await readMeta(engine, deployment);
    const state = stored?.meta.state;
    if (state === "moving") throw isMoving();
    if (state === "closed") throw hasLeft();
    if (stored && state === "live") {
      known = livesOf(stored.meta);
      return true;
    }
    if (!stored) await offer(first, 0);
    else {
      // Any pod may finish what another has prepared.
      for (const life of livesOf(stored.meta)) await make(logStream(deployment, life));
      await offer({ ...stored.meta, state: "live" }, stored.sequence);
    }
    return false;
  };

  /** Repeats a step until it says that all is done, as long as servers may take for an election. */
  const untilDone = async (step: () => Promise<boolean>): Promise<void> => {
    const endMs = clock.monotonic() + createLimitMs;
    for (let tries = 1; ; tries++) {
      const isLate = clock.monotonic() >= endMs;
      try {
        if (await step()) return;
      } catch (error) {
        const mayNot = mayNotOf(error);
        if (mayNot !== undefined) throw forbidden(mayNot);
        // A stream that was just made may have no leader yet.
        if (isLate || !hasCode(error, "store_unavailable")) throw error;
      }
      if (isLate) throw notMade(deployment);
      if (tries > 2) await sleep(clock, retryDelayMs(tries, random));
    }
  };

  /** Has the meta message say something else than what was read. The next read tells whether it does. */
  const replace = async (stored: StoredMeta | undefined, meta: Meta): Promise<false> => {
    await offer(meta, stored?.sequence ?? 0);
    return false;
  };

  const lookAt = async (wanted: StreamSettings): Promise<ChangedStream | undefined> =>
    changeOf(wanted, await engine.state(wanted.name));

  /** They aren't there before the first throttle, and where they are missing, throttles say so. */
  const lookAtShares = async (): Promise<ChangedStream | undefined> => {
    const change = await lookAt(shareStream(deployment));
    return change?.isLost ? undefined : change;
  };

  const draw = (logs: number): Meta => ({
    clusterId: deployment.clusterId,
    state: "prepared",
    logs: Array.from({ length: logs }, () => ({ incarnation: ids.next(), firstSequence: 1 })),
  });

  return {
    async lives({ isFresh = false, limitMs } = {}) {
      if (known.length > 0 && !isFresh) return known;
      const see = (stored: StoredMeta | undefined): readonly LogLife[] => {
        const found = livesSeen(stored, { seesMoving });
        return stored && found.length > 0 ? learn(found, stored.sequence) : known;
      };
      const reading = readMeta(engine, deployment);
      if (limitMs === undefined || known.length === 0) return see(await reading);
      const orKnown = (error: unknown): readonly LogLife[] => {
        if (hasCode(error, "store_unavailable")) return known;
        throw error;
      };
      return (await settledWithin(clock, limitMs, reading.then(see, orKnown))) ?? known;
    },

    async create(logs) {
      const first = draw(logs);
      await untilDone(() => advance(first));
    },

    createShares: () => make(shareStream(deployment)),
    make: (life) => make(logStream(deployment, life)),

    async meta() {
      const stored = await readMeta(engine, deployment);
      if (stored?.meta.state === "closed") throw hasLeft();
      if (stored?.meta.state !== "live") throw notMade(deployment);
      learn(livesOf(stored.meta), stored.sequence);
      return stored;
    },

    async change({ meta, sequence }, life) {
      const logs = meta.logs.map((each, logId) => {
        if (logId !== life?.logId) return each;
        return withoutId(life);
      });
      const answer = await offer({ ...meta, logs }, sequence);
      const isOwn = answer.type === "acked" && answer.sequence === sequence + 1;
      if (isOwn) learn(livesOf({ ...meta, logs }), answer.sequence);
      if (isOwn || answer.type === "full" || answer.type === "too_large") return isOwn;
      return undefined;
    },

    async changed({ logId, incarnation }) {
      const life = known[logId];
      if (life?.incarnation !== incarnation) return undefined;
      const wanted = logStream(deployment, life);
      const looks = logId === 0 ? [lookAt(metaStream(deployment)), lookAtShares()] : [];
      const [state, ...shared] = await Promise.all([engine.state(wanted.name), ...looks]);
      return {
        own: changeOf(wanted, state),
        shared: shared.filter((each) => each !== undefined),
        firstSequence: state?.firstSequence ?? 0,
      };
    },

    state: async () => (await readMeta(engine, deployment))?.meta.state,

    async prepare(lives) {
      const { clusterId } = deployment;
      const logs = lives.map(withoutId);
      const wanted: Meta = { clusterId, state: "moving", logs };
      await untilDone(async () => {
        if (!isMade) await make(metaStream(deployment));
        isMade = true;
        const stored = await readMeta(engine, deployment);
        const state = stored?.meta.state;
        if (state === "live" || state === "prepared") throw areElsewhere(deployment);
        const isWanted = stored && JSON.stringify(stored.meta) === JSON.stringify(wanted);
        learn(lives, stored?.sequence ?? 0);
        if (isWanted) return true;
        // What can't work is seen before anything says that the logs move.
        for (const life of lives) await make(logStream(deployment, life));
        await make(shareStream(deployment));
        await checkPermissions(engine, publishedStreams(deployment, lives));
        return replace(stored, wanted);
      });
    },

    async turn(to, check) {
      const from = to === "live" ? "moving" : "live";
      await untilDone(async () => {
        const stored = await readMeta(engine, deployment);
        if (stored?.meta.state === to) return true;
        if (stored?.meta.state !== from) throw areElsewhere(deployment);
        await check();
        return replace(stored, { ...stored.meta, state: to });
      });
    },

    async keepSecret(secret) {
      const stored = await readMeta(engine, deployment);
      if (stored?.meta.state !== "live") return true;
      if (secretOf(stored.meta, text) === secret) return true;
      return replace(stored, { ...stored.meta, secret: text?.encode(secret) ?? secret });
    },
  };
}

/** The secret that a meta message carries, if this process can decode it. */
function secretOf({ secret }: Meta, text: StoredText | undefined): string | undefined {
  const decoded = secret === undefined ? undefined : (text?.decode(secret) ?? secret);
  return decoded === undefined || isEncoded(decoded) ? undefined : decoded;
}

/** What the streams of a namespace say of their deployment, for a process that can't ask the database. */
export async function readDeployment(
  engine: Pick<StreamEngine, "lastOn">,
  { namespace, text }: { namespace: string; text?: StoredText | undefined },
): Promise<{ clusterId: string; state: MetaState; secret: string | undefined } | undefined> {
  const stored = await readAnyMeta(engine, namespace);
  if (!stored) return undefined;
  const { clusterId, state } = stored.meta;
  return { clusterId, state, secret: secretOf(stored.meta, text) };
}

/** Whether logs are on the streams of a namespace, and pods take them there. */
export async function areLive(
  engine: Pick<StreamEngine, "lastOn">,
  { namespace }: { namespace: string },
): Promise<boolean> {
  return (await readDeployment(engine, { namespace }))?.state === "live";
}

function withoutId(life: LogLife): Omit<LogLife, "logId"> {
  const { logId: _, ...rest } = life;
  return rest;
}

/** The present lives of a deployment's logs; empty if they aren't made yet. */
export async function readLives(
  engine: Pick<StreamEngine, "lastOn">,
  deployment: Deployment,
  { seesMoving = false }: { seesMoving?: boolean } = {},
): Promise<readonly LogLife[]> {
  return livesSeen(await readMeta(engine, deployment), { seesMoving });
}

function livesSeen(
  stored: StoredMeta | undefined,
  { seesMoving }: { seesMoving: boolean },
): readonly LogLife[] {
  const state = stored?.meta.state;
  if (state === "closed" && !seesMoving) throw hasLeft();
  const isSeen = state === "live" || (seesMoving && state !== "prepared");
  return stored && isSeen ? livesOf(stored.meta) : [];
}

async function readMeta(
  engine: Pick<StreamEngine, "lastOn">,
  deployment: Deployment,
): Promise<StoredMeta | undefined> {
  const stored = await readAnyMeta(engine, deployment.namespace);
  if (stored && stored.meta.clusterId !== deployment.clusterId) {
    throw isOfOthers({ ...deployment, found: stored.meta.clusterId });
  }
  return stored;
}

/** The meta message of whatever deployment has the namespace. */
async function readAnyMeta(
  engine: Pick<StreamEngine, "lastOn">,
  namespace: string,
): Promise<StoredMeta | undefined> {
  const name = metaStreamName({ namespace });
  const stored = await engine.lastOn(name, metaSubject({ namespace }));
  if (!stored) return undefined;
  const meta = decodeMeta(stored.body);
  if (meta) return { meta, sequence: stored.sequence };
  throw refused(`the stream ${name} holds what this release can't read: upgrade it`);
}

/** Of streams that aren't those of the database. */
export function isOfOthers({
  namespace,
  clusterId,
  found,
}: Pick<Deployment, "namespace" | "clusterId"> & { found: string }): FlotillaError {
  return refused(
    `the stream ${metaStreamName({ namespace })} belongs to the deployment ${found}, and the database to ${clusterId}: set nats.namespace to one that is free, or connect to the database of those streams`,
  );
}

/** Checks the streams of logs that are there, as a pod that starts finds them. */
export async function checkStreams(
  engine: Pick<StreamEngine, "state">,
  deployment: Deployment,
  lives: readonly LogLife[],
): Promise<void> {
  for (const life of lives) {
    const found = await engine.state(streamName(deployment, life));
    if (!found) {
      throw refused(
        `the stream ${streamName(deployment, life)} of log ${life.logId} is gone: restore it from a backup of the servers`,
      );
    }
    const why = refuseStream(logStream(deployment, life), found.settings);
    if (why !== undefined) throw refused(why);
  }
  for (const shared of [metaStream(deployment), shareStream(deployment)]) {
    const found = await engine.state(shared.name);
    const why = found && refuseStream(shared, found.settings);
    if (why !== undefined) throw refused(why);
  }
}

function notMade(deployment: Deployment): FlotillaError {
  return new FlotillaError(
    "store_unavailable",
    `the streams of logs couldn't be made: ${metaStreamName(deployment)} takes no message, so look at the log of the NATS servers`,
  );
}

function isMoving(): FlotillaError {
  return refused(
    "the logs of this store's sessions are being moved to NATS, which isn't finished: run `flotilla promote --to nats` again",
  );
}

function hasLeft(): FlotillaError {
  return new FlotillaError(
    "store_unavailable",
    "the logs of this store's sessions are being moved to the database: if that isn't finished in a moment, run `flotilla promote --to postgres` again",
  );
}

export function areElsewhere(deployment: Pick<Deployment, "namespace">): FlotillaError {
  return refused(
    `the stream ${metaStreamName(deployment)} doesn't say what the database does of where logs are: one of the two was restored from a back-up. Restore both from the same time, or set nats.namespace to one that is free`,
  );
}

function refused(why: string): FlotillaError {
  return new FlotillaError("unsupported", why);
}
