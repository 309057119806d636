import type { Json } from "../../base/json.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import type { Entry, SessionState } from "../../protocol/message.ts";
import type { LiveChunks } from "../runner.ts";
import type { DigestedSet } from "./digested-set.ts";
import type { HeaderView } from "./view.ts";

/**
 * What hubs write to each other, and what is left of it when it was read with care: a pod of another
 * release may say less, more or something else. What can't be read is left out, and whoever misses it
 * finds it in the journal.
 */
export const topics = {
  /** Asked by a gateway: which sessions it wants to hear of. */
  follow: "session.follow",
  /** Asked by a gateway: which users' sessions it wants to hear of. */
  watch: "session.watch",
  /** Asked by a gateway every second: how much it should have heard. */
  moved: "session.moved",
  committed: "session.committed",
  touched: "session.touched",
  /** Asked by a gateway: the answer that a runner makes, now and as it goes on. */
  listen: "session.listen",
  chunks: "session.chunks",
} as const;

/** Which letter of how many to this gateway: one that is missing in between is lost. */
export type EnvelopeCount = { readonly born: number; readonly letter: number };

/** The sessions and users that one process wants to hear of from another. */
type Sets<Each> = { readonly sessions: Each; readonly users: Each };

/** What is told of a set. Pods of earlier releases tell only how many there are. */
type ReportedSet = { readonly size: unknown; readonly digest: unknown };

/** A set at one moment. */
export type SetState = Pick<DigestedSet, "size" | "digest">;

export type SessionUpdate = {
  readonly sessionId: string;
  readonly view: HeaderView;
  readonly entries: Entry[];
};

/** Something happened in a session of these users. */
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

/** Our own types are plain data, which their letters carry as they are. */
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
  const { born, letter } = fieldsOf(body);
  return isCount(born) && isCount(letter) ? { born, letter } : undefined;
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
  // A chunk that were left out would put all after it at wrong places.
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
