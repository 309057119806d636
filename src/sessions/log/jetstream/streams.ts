import type { StreamSettings } from "./engine.ts";
import { fromBody, messageSubject } from "./message.ts";

/**
 * The streams of a deployment: one for each log, and one whose only message says which logs there are.
 * Another life of a log is another stream, so a writer of the old one reaches no reader.
 */
export type Deployment = {
  /** Tells deployments in one account from each other. Checked with the config. */
  readonly namespace: string;
  /** Random, chosen with the database. Streams of another deployment have another. */
  readonly clusterId: string;
  /** Copies of each message. A quorum of 3 survives the loss of one server; 1 is for one's own machine. */
  readonly replicas: 1 | 3;
  /** A full log refuses records. Its stream reserves these bytes on every server that keeps it. */
  readonly maxLogBytes: number;
};

/** One life of a log: its stream, and where its offsets begin. */
export type LogLife = {
  readonly logId: number;
  readonly incarnation: string;
  readonly firstSequence: number;
  /** The lives before it, if servers have lost messages of those. */
  readonly follows?: EarlierLives;
  /**
   * What its stream is named by, where the log came from the database: it may have been on streams before,
   * which are still there, under the same incarnation. Default: the incarnation.
   */
  readonly stream?: string;
  /** The last term before its first message, where the log came from the database. Default 0. */
  readonly term?: number;
};

/**
 * Lives of a log before the present one. A record has the same offset in all of them, so a database that has
 * one of them up to `archived` or further has the same of the present one.
 */
export type EarlierLives = {
  readonly incarnations: readonly string[];
  readonly archived: number;
};

export type MetaState = (typeof metaStates)[number];

const metaStates = ["prepared", "moving", "live", "closed"] as const;

/** What the message of the stream `META` says. */
export type Meta = {
  readonly clusterId: string;
  /**
   * `prepared`: the streams are being made. `moving`: they are being made for logs that are in the database,
   * and no pod takes them yet. `closed`: the logs go back to the database, or are there.
   */
  readonly state: MetaState;
  readonly logs: readonly Omit<LogLife, "logId">[];
  /**
   * What processes of the deployment sign their envelopes with, encoded as records are: a copy of what the
   * database has, for a pod that starts while that is away.
   */
  readonly secret?: string;
};

/** Ten minutes of 130 messages a second that no archive takes, and what is kept besides. */
export const usualLogBytes = 256 * 1_024 * 1_024;
/** Tens of thousands of throttles and keys. */
const maxShareBytes = 64 * 1_024 * 1_024;
/** Longer than any lease with the longest call, of which each may take a day. */
const shareAgeMs = 3 * 86_400_000;
/** Names no throttle: permissions are tried with it. */
const probedHash = "0";
const incarnationForm = /^[A-Za-z0-9_-]{1,64}$/;
/** Log ids are dealt to 256 groups of sessions. */
const maxLogs = 256;

export function streamName({ namespace }: Deployment, life: LogLife): string {
  return `FLOTILLA_${namespace}_${life.logId}_${streamOf(life)}`;
}

function streamOf({ stream, incarnation }: LogLife): string {
  return stream ?? incarnation;
}

/** The prefix of the subjects of a log's messages. */
export function subjectPrefix({ namespace }: Deployment, life: LogLife): string {
  return `flotilla.${namespace}.log.${life.logId}.${streamOf(life)}`;
}

export function metaStreamName({ namespace }: Pick<Deployment, "namespace">): string {
  return `FLOTILLA_${namespace}_META`;
}

export function metaSubject({ namespace }: Pick<Deployment, "namespace">): string {
  return `flotilla.${namespace}.meta`;
}

export function shareStreamName({ namespace }: Pick<Deployment, "namespace">): string {
  return `FLOTILLA_${namespace}_SHARES`;
}

/** The subject of a throttle's document, which a hash names. */
export function shareSubject({ namespace }: Pick<Deployment, "namespace">, hash: string): string {
  return `flotilla.${namespace}.share.${hash}`;
}

/** All streams of a deployment, each with the subjects that are published to it. */
export function publishedStreams(
  deployment: Deployment,
  lives: readonly LogLife[],
): { stream: string; subjects: string[] }[] {
  const kinds = ["record", "owner", "mark"] as const;
  return [
    { stream: metaStreamName(deployment), subjects: [metaSubject(deployment)] },
    { stream: shareStreamName(deployment), subjects: [shareSubject(deployment, probedHash)] },
    ...lives.map((life) => ({
      stream: streamName(deployment, life),
      subjects: kinds.map((kind) => messageSubject(subjectPrefix(deployment, life), kind)),
    })),
  ];
}

export function logStream(deployment: Deployment, life: LogLife): StreamSettings {
  return {
    ...durable(deployment),
    name: streamName(deployment, life),
    subjects: [`${subjectPrefix(deployment, life)}.>`],
    // A full log refuses a message instead of forgetting another.
    discard: "new",
    maxBytes: deployment.maxLogBytes,
    maxPerSubject: -1,
    firstSequence: life.firstSequence,
    metadata: metadataOf(deployment, life.incarnation),
  };
}

export function metaStream(deployment: Deployment): StreamSettings {
  return {
    ...durable(deployment),
    name: metaStreamName(deployment),
    subjects: [metaSubject(deployment)],
    discard: "old",
    maxBytes: -1,
    maxPerSubject: 1,
    firstSequence: 1,
    metadata: metadataOf(deployment, "meta"),
  };
}

/**
 * One document for each throttle and key. What no pod has written for three days has no share left in it, and
 * where documents would take more, the one goes that was written longest ago: pods that have a share of it make it again.
 */
export function shareStream(deployment: Deployment): StreamSettings {
  return {
    ...durable(deployment),
    name: shareStreamName(deployment),
    subjects: [shareSubject(deployment, "*")],
    discard: "old",
    maxBytes: maxShareBytes,
    maxPerSubject: 1,
    maxAgeMs: shareAgeMs,
    firstSequence: 1,
    metadata: metadataOf(deployment, "shares"),
  };
}

function durable({ replicas }: Deployment) {
  return {
    storage: "file",
    replicas,
    maxMessages: -1,
    maxAgeMs: 0,
    allowDirect: true,
    denyDelete: true,
    isCompressed: false,
    isForeign: false,
  } as const;
}

function metadataOf({ clusterId }: Deployment, incarnation: string): Record<string, string> {
  return { "flotilla.cluster": clusterId, "flotilla.incarnation": incarnation };
}

export function livesOf(meta: Meta): LogLife[] {
  return meta.logs.map((each, logId) => ({ logId, ...each }));
}

/** Undefined if the bytes aren't what a Flotilla of this release has written. */
export function decodeMeta(body: Uint8Array): Meta | undefined {
  const found = fromBody(body);
  if (typeof found !== "object" || found === null) return undefined;
  const { clusterId, state, logs, secret } = found as Record<string, unknown>;
  if (typeof clusterId !== "string" || clusterId === "") return undefined;
  if (!isMetaState(state)) return undefined;
  if (!Array.isArray(logs) || logs.length === 0 || logs.length > maxLogs) return undefined;
  if (!logs.every(isLife)) return undefined;
  return { clusterId, state, logs, ...(typeof secret === "string" && { secret }) };
}

function isMetaState(found: unknown): found is MetaState {
  return metaStates.some((each) => each === found);
}

function isLife(found: unknown): found is Meta["logs"][number] {
  if (typeof found !== "object" || found === null) return false;
  const { incarnation, firstSequence, follows, stream, term } = found as Record<string, unknown>;
  return (
    isIncarnation(incarnation) &&
    Number.isSafeInteger(firstSequence) &&
    (firstSequence as number) >= 1 &&
    (follows === undefined || isEarlier(follows)) &&
    (stream === undefined || isIncarnation(stream)) &&
    (term === undefined || (Number.isSafeInteger(term) && (term as number) >= 0))
  );
}

function isIncarnation(found: unknown): boolean {
  return typeof found === "string" && incarnationForm.test(found);
}

function isEarlier(found: unknown): boolean {
  if (typeof found !== "object" || found === null) return false;
  const { incarnations, archived } = found as Record<string, unknown>;
  const isList = Array.isArray(incarnations) && incarnations.every(isIncarnation);
  return isList && Number.isSafeInteger(archived);
}
