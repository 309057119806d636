import type { Json } from "../../base/json.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { Entry, SessionState } from "../../protocol/message.ts";
import type { LiveChunks } from "../runner.ts";
import type { DigestedSet } from "./digested-set.ts";
import type { HeaderView } from "./view.ts";

/**
 * The messages between hubs, and their tolerant readers: a pod of another release may send fewer, more or
 * other fields. What cannot be read is left out, and the receiver finds it in the journal.
 */
export const topics = {
  /** Request from a gateway: the sessions that it follows. */
  follow: "session.follow",
  /** Request from a gateway: the users whose sessions it watches. */
  watch: "session.watch",
  /** Request from a gateway, every second: how many envelopes it should have. */
  moved: "session.moved",
  committed: "session.committed",
  touched: "session.touched",
  /** Request from a gateway: the answer that a runner is making, now and as it continues. */
  listen: "session.listen",
  chunks: "session.chunks",
} as const;

/** The number of an envelope to this gateway. A missing number is a lost envelope. */
export type EnvelopeCount = { readonly born: number; readonly envelopes: number };

/** The sessions and users that one process follows at another. */
type Sets<Each> = { readonly sessions: Each; readonly users: Each };

/** A set as another pod reports it. Pods of earlier releases send only the size. */
type ReportedSet = { readonly size: unknown; readonly digest: unknown };

/** A set's state at one moment. */
export type SetState = Pick<DigestedSet, "size" | "digest">;

export type SessionUpdate = {
  readonly sessionId: string;
  readonly view: HeaderView;
  readonly entries: Entry[];
};

/** Something changed in a session of these users. */
export type Touched = {
  readonly tenant: string;
  readonly users: readonly string[];
  readonly sessionId: string;
  readonly offset: number;
};

export type AnswerProgress = {
  readonly sessionId: string;
  readonly epoch: number;
  readonly attempt: number;
  readonly nextIndex: number;
};

type Fields = { readonly [field: string]: unknown };

/** These types are plain data, so they are sent as they are. */
export function asBusJson(body: object): Json {
  return body as unknown as Json;
}

export function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

export function listOf<Found>(value: unknown, read: (each: unknown) => Found | undefined): Found[] {
  if (!Array.isArray(value)) return [];
  return value.map(read).filter((each) => each !== undefined);
}

export function readText(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

export function readEnvelopeCount(body: unknown): EnvelopeCount | undefined {
  const { born, envelopes } = fieldsOf(body);
  return isCount(born) && isCount(envelopes) ? { born, envelopes } : undefined;
}

export function encodeSets({ sessions, users }: Sets<DigestedSet>): object {
  return {
    sessions: sessions.size,
    sessionsDigest: sessions.digest,
    users: users.size,
    usersDigest: users.digest,
  };
}

export function readSets(body: unknown): Sets<ReportedSet> {
  const { sessions, sessionsDigest, users, usersDigest } = fieldsOf(body);
  return {
    sessions: { size: sessions, digest: sessionsDigest },
    users: { size: users, digest: usersDigest },
  };
}

export function isSameSet(reported: ReportedSet, { size, digest }: SetState): boolean {
  return reported.size === size && (reported.digest === undefined || reported.digest === digest);
}

export function readView(value: unknown): HeaderView | undefined {
  const { incarnation, lastSeq, epoch, attempt, runner, waits, state, deleted } = fieldsOf(value);
  if (typeof incarnation !== "string" || typeof deleted !== "boolean") return undefined;
  if (!isCount(lastSeq) || !isCount(epoch) || !isCount(attempt)) return undefined;
  if (runner !== null && typeof runner !== "string") return undefined;
  if (!isState(state)) return undefined;
  const counted = isCount(waits) && { waits };
  return { incarnation, lastSeq, epoch, attempt, runner, ...counted, state, deleted };
}

export function readSessionUpdate(value: unknown): SessionUpdate | undefined {
  const { sessionId, view, entries } = fieldsOf(value);
  const read = readView(view);
  if (typeof sessionId !== "string" || !read) return undefined;
  return { sessionId, view: read, entries: listOf(entries, readEntry) };
}

export function readTouched(value: unknown): Touched | undefined {
  const { tenant, users, sessionId, offset } = fieldsOf(value);
  if (typeof tenant !== "string" || typeof sessionId !== "string") return undefined;
  return {
    tenant,
    users: listOf(users, readText),
    sessionId,
    offset: isCount(offset) ? offset : 0,
  };
}

export function readAnswerProgress(value: unknown): AnswerProgress | undefined {
  const { sessionId, epoch, attempt, nextIndex } = fieldsOf(value);
  if (typeof sessionId !== "string" || !isCount(epoch)) return undefined;
  if (!isCount(attempt) || !isCount(nextIndex)) return undefined;
  return { sessionId, epoch, attempt, nextIndex };
}

export function readLive(value: unknown): LiveChunks | undefined {
  const { sessionId, epoch, attempt, index, fromStart, nextIndex, chunks } = fieldsOf(value);
  if (typeof sessionId !== "string" || !isCount(epoch) || !isCount(attempt)) return undefined;
  // Leaving out one chunk would shift all chunks after it.
  if (!isCount(index) || !Array.isArray(chunks) || !chunks.every(isChunk)) return undefined;
  if (fromStart === undefined) return { sessionId, epoch, attempt, index, chunks };
  if (!isCount(nextIndex)) return undefined;
  return { sessionId, epoch, attempt, index, fromStart: true, nextIndex, chunks };
}

function readEntry(value: unknown): Entry | undefined {
  const { seq, kind, role, author, messageId, parts } = fieldsOf(value);
  const texts = [kind, role, author, messageId];
  if (!isCount(seq) || !Array.isArray(parts)) return undefined;
  return texts.every((each) => typeof each === "string") ? (value as Entry) : undefined;
}

function isState(value: unknown): value is SessionState {
  const { state, epoch, attempt, agent, messageId, upToSeq, stopping } = fieldsOf(value);
  if (state === "idle") return true;
  if (state === "compacting") return isCount(epoch);
  if (state !== "catching_up" && state !== "waiting") return false;
  if (typeof agent !== "string" || typeof messageId !== "string") return false;
  if (typeof stopping !== "boolean") return false;
  return isCount(epoch) && isCount(attempt) && isCount(upToSeq);
}

function isChunk(value: unknown): value is Chunk {
  return typeof fieldsOf(value)["type"] === "string";
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
