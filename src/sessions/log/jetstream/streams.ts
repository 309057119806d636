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
};

/**
 * Lives of a log before the present one. A record has the same offset in all of them, so a database that has
 * one of them up to `archived` or further has the same of the present one.
 */
export type EarlierLives = {
  readonly incarnations: readonly string[];
  readonly archived: number;
};

/** What the message of the stream `META` says. */
export type Meta = {
  readonly clusterId: string;
  /** `prepared`: the streams are being made. `closed`: the logs live elsewhere now. */
  readonly state: "prepared" | "live" | "closed";
  readonly logs: readonly Omit<LogLife, "logId">[];
};

/** Ten minutes of 130 messages a second that no archive takes, and what is kept besides. */
export const usualLogBytes = 256 * 1_024 * 1_024;
const incarnationForm = /^[A-Za-z0-9_-]{1,64}$/;
/** Log ids are dealt to 256 groups of sessions. */
const maxLogs = 256;

export function streamName({ namespace }: Deployment, { logId, incarnation }: LogLife): string {
  return `FLOTILLA_${namespace}_${logId}_${incarnation}`;
}

/** The prefix of the subjects of a log's messages. */
export function subjectPrefix({ namespace }: Deployment, { logId, incarnation }: LogLife): string {
  return `flotilla.${namespace}.log.${logId}.${incarnation}`;
}

export function metaStreamName({ namespace }: Deployment): string {
  return `FLOTILLA_${namespace}_META`;
}

export function metaSubject({ namespace }: Deployment): string {
  return `flotilla.${namespace}.meta`;
}

/** All streams of a deployment, each with the subjects that are published to it. */
export function publishedStreams(
  deployment: Deployment,
  lives: readonly LogLife[],
): { stream: string; subjects: string[] }[] {
  const kinds = ["record", "owner", "mark"] as const;
  return [
    { stream: metaStreamName(deployment), subjects: [metaSubject(deployment)] },
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

/** Says what is wrong with a stream that is there, and what to do. Undefined: it is as it was made. */
export function refuseStream(wanted: StreamSettings, found: StreamSettings): string | undefined {
  const cluster = found.metadata["flotilla.cluster"];
  if (cluster !== wanted.metadata["flotilla.cluster"]) {
    const whose = cluster === undefined ? "isn't Flotilla's" : "belongs to another deployment";
    return `the stream ${wanted.name} ${whose}: set nats.namespace to one that is free in this account`;
  }
  const changed = comparedSettings.filter(
    (each) => JSON.stringify(wanted[each]) !== JSON.stringify(found[each]),
  );
  if (changed.length === 0) return undefined;
  const differences = changed.map(
    (each) => `${each} is ${JSON.stringify(found[each])}, not ${JSON.stringify(wanted[each])}`,
  );
  return `the stream ${wanted.name} was changed by hand: set it back (${differences.join("; ")})`;
}

const comparedSettings = [
  "subjects",
  "storage",
  "replicas",
  "discard",
  "maxBytes",
  "maxMessages",
  "maxPerSubject",
  "maxAgeMs",
  "firstSequence",
  "allowDirect",
  "denyDelete",
  "isCompressed",
  "isForeign",
] as const satisfies readonly (keyof StreamSettings)[];

export function livesOf(meta: Meta): LogLife[] {
  return meta.logs.map((each, logId) => ({ logId, ...each }));
}

/** Undefined if the bytes aren't what a Flotilla of this release has written. */
export function decodeMeta(body: Uint8Array): Meta | undefined {
  const found = fromBody(body);
  if (typeof found !== "object" || found === null) return undefined;
  const { clusterId, state, logs } = found as Record<string, unknown>;
  if (typeof clusterId !== "string" || clusterId === "") return undefined;
  if (state !== "prepared" && state !== "live" && state !== "closed") return undefined;
  if (!Array.isArray(logs) || logs.length === 0 || logs.length > maxLogs) return undefined;
  if (!logs.every(isLife)) return undefined;
  return { clusterId, state, logs };
}

function isLife(found: unknown): found is Meta["logs"][number] {
  if (typeof found !== "object" || found === null) return false;
  const { incarnation, firstSequence, follows } = found as Record<string, unknown>;
  return (
    isIncarnation(incarnation) &&
    Number.isSafeInteger(firstSequence) &&
    (firstSequence as number) >= 1 &&
    (follows === undefined || isEarlier(follows))
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
