import type { Head } from "../journal.ts";

/** A pod's sign of life, which it sends to all others, and to itself. */
export type Beat = {
  /** The deployment whose pods these are. */
  readonly clusterId: string;
  readonly podId: string;
  /** The process of the pod, as other processes on its machine can find it. */
  readonly host: string | null;
  readonly release: string;
  /** Grows with every beat of the pod. */
  readonly count: number;
  /** It takes no turns any more, and hands its logs on. */
  readonly isDraining: boolean;
  /** The logs that it owns, and where they stand. */
  readonly logs: readonly SpokenLog[];
  /** The hash of the agents in its code, by which others know whether to ask for them. */
  readonly agents: string;
  /** Whether it reaches the database. */
  readonly reachesStore: boolean;
  /** The logs that it owns and of which much isn't archived. */
  readonly backlogged: readonly number[];
  /** For how long the oldest record of its logs waits for the archive; absent if none does. */
  readonly lagMs?: number;
};

/** A log of which a beat says that it is the sender's. */
export type SpokenLog = Pick<Head, "logId" | "incarnation" | "term" | "offset" | "recordId">;

const version = 1;
/** Sessions are dealt to 256 logs at most. */
const maxLogs = 256;
/** A beat for all logs of a deployment, with ids of the longest form. */
const maxBeatBytes = 256 * 1_024;
const idForm = /^[\x21-\x7e]{1,256}$/;
const incarnationForm = /^[A-Za-z0-9_-]{1,64}$/;
const releaseForm = /^[\x20-\x7e]{1,64}$/;
const agentsForm = /^[0-9a-f]{64}$/;
const maxHostChars = 512;

export function encodeBeat(beat: Beat): Uint8Array {
  const { clusterId, podId, host, release, count, isDraining, agents, reachesStore } = beat;
  const { backlogged } = beat;
  const logs = beat.logs.map(({ logId, incarnation, term, offset, recordId }) => [
    logId,
    incarnation,
    term,
    offset,
    recordId,
  ]);
  const state = isDraining ? "draining" : "ready";
  return Buffer.from(
    JSON.stringify({
      v: version,
      cluster: clusterId,
      pod: podId,
      host,
      release,
      count,
      state,
      logs,
      agents,
      sql: reachesStore,
      ...(backlogged.length > 0 && { behind: backlogged }),
      ...(beat.lagMs !== undefined && { lag: beat.lagMs }),
    }),
  );
}

/**
 * Undefined if the bytes are no beat. Any process with the credentials of the servers can publish one, so
 * nothing of it is believed before it is checked.
 */
export function decodeBeat(data: Uint8Array): Beat | undefined {
  if (data.length > maxBeatBytes) return undefined;
  const found = parse(data);
  if (typeof found !== "object" || found === null) return undefined;
  const { v, cluster, pod, host, release, count, state, logs, agents, sql, behind, lag } =
    found as Record<string, unknown>;
  if (v !== version || !isText(cluster, idForm) || !isText(pod, idForm)) return undefined;
  if (host !== null && (typeof host !== "string" || host.length > maxHostChars)) return undefined;
  if (!isText(release, releaseForm) || !isText(agents, agentsForm)) return undefined;
  if (!isCount(count, 1) || typeof sql !== "boolean") return undefined;
  if (lag !== undefined && !isCount(lag, 0)) return undefined;
  if (state !== "ready" && state !== "draining") return undefined;
  const spoken = logsOf(logs);
  const backlogged = backloggedOf(behind);
  if (!spoken || !backlogged) return undefined;
  return {
    clusterId: cluster,
    podId: pod,
    host,
    release,
    count,
    isDraining: state === "draining",
    logs: spoken,
    agents,
    reachesStore: sql,
    backlogged,
    ...(lag !== undefined && { lagMs: lag }),
  };
}

function backloggedOf(found: unknown = []): number[] | undefined {
  if (!Array.isArray(found) || found.length > maxLogs) return undefined;
  return found.every((each) => isCount(each, 0)) ? found : undefined;
}

function logsOf(found: unknown): SpokenLog[] | undefined {
  if (!Array.isArray(found) || found.length > maxLogs) return undefined;
  const spoken = new Map<number, SpokenLog>();
  for (const each of found as unknown[]) {
    if (!Array.isArray(each) || each.length !== 5) return undefined;
    const [logId, incarnation, term, offset, recordId] = each as unknown[];
    if (!isCount(logId, 0) || logId >= maxLogs || spoken.has(logId)) return undefined;
    if (!isText(incarnation, incarnationForm) || !isText(recordId, idForm)) return undefined;
    if (!isCount(term, 1) || !isCount(offset, 0)) return undefined;
    spoken.set(logId, { logId, incarnation, term, offset, recordId });
  }
  return [...spoken.values()];
}

function parse(data: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data)) as unknown;
  } catch {
    return undefined;
  }
}

function isText(found: unknown, form: RegExp): found is string {
  return typeof found === "string" && form.test(found);
}

function isCount(found: unknown, least: number): found is number {
  return Number.isSafeInteger(found) && (found as number) >= least;
}
