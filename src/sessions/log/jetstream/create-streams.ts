import { type Clock, sleep } from "../../../base/clock.ts";
import { FlotillaError, hasCode } from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Random } from "../../../base/random.ts";
import { retryDelayMs } from "../call-deadline.ts";
import type { PublishAnswer, StreamEngine, StreamSettings } from "./engine.ts";
import { toBody } from "./message.ts";
import { forbidden, mayNotOf, refuseCreation } from "./requirements.ts";
import {
  decodeMeta,
  type Deployment,
  livesOf,
  type LogLife,
  logStream,
  type Meta,
  metaStream,
  metaStreamName,
  metaSubject,
  refuseStream,
  streamName,
} from "./streams.ts";

/** Which logs there are, and the making of their streams. */
export type Streams = {
  /** The present lives of all logs; empty if there are none yet. */
  lives(options?: { isFresh?: boolean }): Promise<readonly LogLife[]>;
  /** Makes the streams of so many logs, unless a pod has done so. */
  create(logs: number): Promise<void>;
  /** Makes the stream of one life of a log. No log is there yet. */
  make(life: LogLife): Promise<void>;
  /** What the meta message says, and its place. Rejects while there is none. */
  meta(): Promise<StoredMeta>;
  /**
   * Changes the life of a log, or nothing, if the meta message is still the one that was read. Returns
   * whether it was; undefined if that isn't known.
   */
  change(read: StoredMeta, life?: LogLife): Promise<boolean | undefined>;
};

export type StoredMeta = { readonly meta: Meta; readonly sequence: number };

const publishLimitMs = 2_000;
/** Servers that were just started elect the leaders of their streams first. */
const createLimitMs = 30_000;

export function createStreams({
  engine,
  deployment,
  ids,
  clock,
  random,
}: {
  engine: StreamEngine;
  deployment: Deployment;
  ids: Ids;
  clock: Clock;
  random: Random;
}): Streams {
  let known: readonly LogLife[] = [];
  let isMade = false;

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
    if (stored?.meta.state === "live") {
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

  const draw = (logs: number): Meta => ({
    clusterId: deployment.clusterId,
    state: "prepared",
    logs: Array.from({ length: logs }, () => ({ incarnation: ids.next(), firstSequence: 1 })),
  });

  return {
    async lives({ isFresh = false } = {}) {
      if (known.length > 0 && !isFresh) return known;
      const found = await readLives(engine, deployment);
      if (found.length > 0) known = found;
      return known;
    },

    async create(logs) {
      const first = draw(logs);
      const endMs = clock.monotonic() + createLimitMs;
      for (let tries = 1; ; tries++) {
        const isLate = clock.monotonic() >= endMs;
        try {
          if (await advance(first)) return;
        } catch (error) {
          const mayNot = mayNotOf(error);
          if (mayNot !== undefined) throw forbidden(mayNot);
          // A stream that was just made may have no leader yet.
          if (isLate || !hasCode(error, "store_unavailable")) throw error;
        }
        if (isLate) throw notMade(deployment);
        if (tries > 2) await sleep(clock, retryDelayMs(tries, random));
      }
    },

    make: (life) => make(logStream(deployment, life)),

    async meta() {
      const stored = await readMeta(engine, deployment);
      if (stored?.meta.state !== "live") throw notMade(deployment);
      known = livesOf(stored.meta);
      return stored;
    },

    async change({ meta, sequence }, life) {
      const logs = meta.logs.map((each, logId) => {
        if (logId !== life?.logId) return each;
        const { logId: _, ...changed } = life;
        return changed;
      });
      const answer = await offer({ ...meta, logs }, sequence);
      const isOwn = answer.type === "acked" && answer.sequence === sequence + 1;
      if (isOwn) known = livesOf({ ...meta, logs });
      if (isOwn || answer.type === "full" || answer.type === "too_large") return isOwn;
      return undefined;
    },
  };
}

/** The present lives of a deployment's logs; empty if they aren't made yet. */
export async function readLives(
  engine: Pick<StreamEngine, "lastOn">,
  deployment: Deployment,
): Promise<readonly LogLife[]> {
  const stored = await readMeta(engine, deployment);
  return stored?.meta.state === "live" ? livesOf(stored.meta) : [];
}

async function readMeta(
  engine: Pick<StreamEngine, "lastOn">,
  deployment: Deployment,
): Promise<StoredMeta | undefined> {
  const name = metaStreamName(deployment);
  const stored = await engine.lastOn(name, metaSubject(deployment));
  if (!stored) return undefined;
  const meta = decodeMeta(stored.body);
  if (!meta) throw refused(`the stream ${name} holds what this release can't read: upgrade it`);
  if (meta.clusterId !== deployment.clusterId) {
    throw refused(
      `the stream ${name} belongs to the deployment ${meta.clusterId}, and the database to ${deployment.clusterId}: set nats.namespace to one that is free, or connect to the database of those streams`,
    );
  }
  if (meta.state === "closed") throw refused("the logs have left these servers: remove nats");
  return { meta, sequence: stored.sequence };
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
}

function notMade(deployment: Deployment): FlotillaError {
  return new FlotillaError(
    "store_unavailable",
    `the streams of logs couldn't be made: ${metaStreamName(deployment)} takes no message, so look at the log of the NATS servers`,
  );
}

function refused(why: string): FlotillaError {
  return new FlotillaError("unsupported", why);
}
