import { type Clock, sleep } from "../base/clock.ts";
import { FlotillaError, hasCode } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { encodeJson } from "../base/json.ts";
import { checkNumber, checkOptions, checkText } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import { takeFiles, type TakenFiles } from "../files/take.ts";
import { livePods } from "../pods/sql.ts";
import { type Entry, estimateMessageTokens } from "../protocol/message.ts";
import { coldReads, type Database, type Row } from "../store/database.ts";
import { untilKnown, writeUntilKnown } from "../store/retry.ts";
import { cursorsOf } from "../store/walk.ts";
import { previewOf } from "./conversation/append.ts";
import type { NewEntry, Traced } from "./conversation/command.ts";
import { type ForkStart, type Header, maxAgents, maxUsers } from "./conversation/header.ts";
import { toForkView } from "./list.ts";
import { type CallDeadline, retryDelayMs } from "./log/call-deadline.ts";
import type { CommandRouter } from "./log/command-router.ts";
import {
  decodeLineage,
  encodeLineage,
  isSamePlace,
  type Lineage,
  lineageUpTo,
  maxSegments,
  placeOfRow,
} from "./log/forks.ts";
import type { Reads } from "./log/journal.ts";
import {
  type ForkCursor,
  holdEntries,
  readFork,
  readForksOf,
  readSummaryUpTo,
} from "./log/sql/forks.ts";
import { toEntry } from "./log/sql/reading.ts";
import type { Edited, ForkSession, ForksPage, SessionService, SessionView } from "./service.ts";
import {
  checkMessage,
  checkNames,
  checkSessionId,
  maxIdChars,
  maxMetadataBytes,
} from "./validate.ts";

type ForkParts = {
  database: Database;
  journal: Reads;
  router: Pick<CommandRouter, "submit">;
  ids: Ids;
  clock: Clock;
  random: Random;
  maxPayloadBytes: number;
  tracedBy: (headers: TraceHeaders | undefined) => Traced;
  headerOf: (tenant: string, sessionId: string) => Promise<Header>;
  view: (tenant: string, sessionId: string) => Promise<SessionView>;
  startDeadline: () => CallDeadline;
  /** Keeps the files of a message for a session, which has to be there. */
  keepFiles: (tenant: string, sessionId: string, files: TakenFiles) => Promise<void>;
  /** Lets go of what a fork holds that isn't there. Never rejects. */
  letGo: (sessionId: string) => Promise<void>;
};

/** A fork that is to be made. */
type NewFork = Pick<ForkSession, "agents" | "users" | "metadata"> & {
  readonly tenant: string;
  readonly parentId: string;
  readonly sessionId: string;
  readonly atSeq: number;
  readonly first?: NewEntry & Traced;
};

const ofSession = ["id", "agents", "users", "metadata"];
const forkNames = [...ofSession, "atSeq"];
const editNames = [...ofSession, "messageId", "author", "parts", "messageMetadata", "trace"];
const maxForks = 200;
/** What is read of a parent to know what a fork of an earlier place begins with. */
const startPage = { limit: 1_000, maxBytes: 1024 * 1024 };
/** How far back the summary of an earlier place is searched. A history that an agent gets goes no further. */
const maxSummaryEntries = 10_000;

/** Forks of sessions: they begin with the entries of another one, which are shared and not copied. */
export function createForks(parts: ForkParts): Pick<SessionService, "fork" | "edit" | "forks"> {
  const { database, journal, router, ids, clock, random, headerOf } = parts;

  /**
   * Has the entries stay that the fork begins with, also once its parent is deleted. Where logs are ahead of
   * the database, it waits until that has them. The hold comes before the session: one that was never used
   * is let go later, after its id was taken out of use.
   */
  const hold = async (
    { tenant, parentId, sessionId, atSeq }: NewFork,
    lineage: Lineage,
    deadline: CallDeadline,
  ): Promise<void> => {
    const place = { sessionId: parentId, atSeq };
    const segments = encodeLineage(lineageUpTo(lineage, parentId, atSeq));
    const row = { sessionId, parentId, atSeq, segments };
    for (let tries = 1; ; tries++) {
      await writeUntilKnown(database, holdEntries(row, tenant), {
        clock,
        random,
        ...untilKnown,
        limitMs: deadline.leftMs,
        writeOptions: { channels: [] },
      });
      const [held] = await deadline.read(() => database.read(readFork(sessionId)));
      if (held && isSamePlace(placeOfRow(held), place)) return;
      if (held) throw idTaken(sessionId);
      // Deleted since it was read, or the database doesn't have so much of it yet.
      await deadline.read(() => headerOf(tenant, parentId));
      if (deadline.leftMs <= 1) throw notArchived(parentId);
      await sleep(clock, retryDelayMs(tries, random));
    }
  };

  /** The summary that an agent had at an earlier place, if it is among the entries that count. */
  const summaryUpTo = async (lineage: Lineage, atSeq: number): Promise<Entry | undefined> => {
    for (const { sessionId, upTo } of lineage.toReversed()) {
      const count = maxSummaryEntries - (atSeq - upTo);
      if (count <= 0) return undefined;
      const [row] = await database.read(readSummaryUpTo(sessionId, upTo, count), { cold: true });
      if (row) return toEntry(row);
    }
    return undefined;
  };

  const startOf = async (parent: Header, lineage: Lineage, atSeq: number): Promise<ForkStart> => {
    const { sessionId, epoch, preview, previewAuthor, tokens } = parent;
    const { summarySeq, compactedSeq } = parent;
    const summed = { summarySeq, compactedSeq };
    if (atSeq === parent.lastSeq) {
      return { sessionId, atSeq, epoch, ...summed, tokens, preview, previewAuthor };
    }
    const here = lineageUpTo(lineage, sessionId, atSeq);
    const [entries, summary] = await Promise.all([
      journal.tail(sessionId, { after: 0, upTo: atSeq, ...startPage }),
      summarySeq <= atSeq ? undefined : summaryUpTo(here, atSeq),
    ]);
    const earlier = { summarySeq: summary?.seq ?? 0, compactedSeq: summary?.throughSeq ?? 0 };
    const start = summarySeq <= atSeq ? summed : earlier;
    const last = entries.findLast(({ kind, parts: said }) => kind === "message" && previewOf(said));
    return {
      sessionId,
      atSeq,
      epoch,
      ...start,
      tokens: tokensAfter(start.compactedSeq, entries, atSeq),
      preview: last ? previewOf(last.parts) : "",
      previewAuthor: last?.author ?? "",
    };
  };

  /** Before the hold: what the owner of the fork refuses then leaves nothing, and its id is free. */
  const checkAgents = async (
    { tenant, parentId }: NewFork,
    agents: readonly string[],
    { leftMs: timeoutMs }: CallDeadline,
  ): Promise<void> => {
    if (agents.length === 0) return;
    const command = { type: "check_agents", agents } as const;
    await router.submit(tenant, parentId, command, { timeoutMs });
  };

  /** Pods of an earlier release would read a fork with a gap, and delete what it needs. */
  const checkPods = async (): Promise<void> => {
    const pods = await database.read(livePods());
    if (!pods.some(isOfEarlierRelease)) return;
    throw new FlotillaError(
      "unsupported",
      "a pod of an earlier release is up, which knows no forks: fork once all pods are updated",
    );
  };

  /** Whether the fork exists already. Refused if its id is that of anything else. */
  const exists = (header: Header | undefined, fork: NewFork): boolean => {
    if (!header) return false;
    const { tenant, parentId, atSeq } = fork;
    const isSame =
      header.tenant === tenant &&
      header.status !== "deleted" &&
      isSamePlace(header.parent, { sessionId: parentId, atSeq });
    if (isSame) return true;
    throw idTaken(fork.sessionId);
  };

  const lineageOf = async ({ tenant, sessionId, parent }: Header): Promise<Lineage> => {
    if (!parent) return [];
    const [row] = await database.read(readFork(sessionId));
    if (row) return decodeLineage(row["segments"] as string);
    // It goes with the session, which may have been deleted since its header was read.
    await headerOf(tenant, sessionId);
    throw new FlotillaError("store_corrupt", `it isn't stored where ${sessionId} was forked from`);
  };

  /** Returns false if it existed before. */
  const make = async (fork: NewFork, deadline: CallDeadline): Promise<boolean> => {
    const { tenant, parentId, sessionId, atSeq, users = [], metadata, first } = fork;
    const text =
      metadata === undefined
        ? null
        : encodeJson("the metadata", metadata, { maxBytes: maxMetadataBytes });
    const before = await deadline.read(() => journal.header(sessionId));
    if (exists(before, fork)) return false;
    const parent = await deadline.read(() => headerOf(tenant, parentId));
    checkPlace(parent, atSeq);
    const { agents = parent.agents } = fork;
    await checkAgents(fork, agents, deadline);
    const lineage = await deadline.read(() => lineageOf(parent));
    if (lineageUpTo(lineage, parentId, atSeq).length > maxSegments) throw tooDeep();
    await deadline.read(checkPods);
    await hold(fork, lineage, deadline);
    const start = await deadline.read(() => startOf(parent, lineage, atSeq));
    const command = {
      type: "create",
      sessionId,
      tenant,
      agents,
      users,
      metadata: text,
      fork: start,
      ...(first && { first }),
    } as const;
    try {
      const { leftMs: timeoutMs } = deadline;
      const { duplicate = false } = await router.submit(tenant, sessionId, command, { timeoutMs });
      return !duplicate;
    } catch (error) {
      // The id is that of another session, or was taken out of use. After any other refusal the same fork may
      // still be made, by a caller that was first and whose command is on its way.
      if (hasCode(error, "conflict")) await parts.letGo(sessionId);
      throw error;
    }
  };

  return {
    async fork(tenant, parentId, input) {
      checkOptions("fork", input, forkNames);
      checkSessionId(parentId);
      checkLists(input);
      const { id: sessionId = ids.next(), atSeq, ...rest } = input;
      checkSessionId(sessionId);
      checkNumber("atSeq", atSeq, { min: 0, max: Number.MAX_SAFE_INTEGER });
      if (atSeq === 0) {
        throw new FlotillaError(
          "invalid_input",
          "a fork begins with one entry at least: for none, create a session",
        );
      }
      const deadline = parts.startDeadline();
      await make({ ...rest, tenant, parentId, sessionId, atSeq }, deadline);
      return deadline.read(() => parts.view(tenant, sessionId));
    },

    async edit(tenant, parentId, input): Promise<Edited> {
      checkOptions("edit", input, editNames);
      checkSessionId(parentId);
      checkLists(input);
      const { id: sessionId = ids.next(), messageId, author, parts: given, trace } = input;
      const { messageMetadata: metadata, ...rest } = input;
      checkSessionId(sessionId);
      checkText("messageId", messageId, { max: maxIdChars });
      const withMetadata = metadata !== undefined && { metadata };
      const files = takeFiles(given);
      const said = files?.parts ?? given;
      checkMessage({ id: messageId, author, parts: said, ...withMetadata }, parts.maxPayloadBytes);
      const deadline = parts.startDeadline();
      const edited = await deadline.read(async () => {
        // One that was made may be asked for again after its parent was deleted.
        const made = await journal.header(sessionId);
        if (made?.tenant === tenant && made.parent?.sessionId === parentId) return made.parent;
        await headerOf(tenant, parentId);
        // The fork refers to all files that its parent refers to.
        if (files) await parts.keepFiles(tenant, parentId, files);
        return { atSeq: beforeMessage(await journal.newest(parentId, messageId), messageId) };
      });
      const { atSeq } = edited;
      const first = {
        clientId: messageId,
        messageId,
        role: "user",
        author,
        parts: said,
        tokens: estimateMessageTokens(said),
        ...withMetadata,
        ...parts.tracedBy(trace),
      } as const;
      const { agents, users, metadata: ofSession } = rest;
      const fork = {
        tenant,
        parentId,
        sessionId,
        atSeq,
        first,
        ...(agents && { agents }),
        ...(users && { users }),
        ...(ofSession !== undefined && { metadata: ofSession }),
      };
      const isNew = await make(fork, deadline);
      if (!isNew) {
        const [stored] = await deadline.read(() =>
          journal.storedIds([{ sessionId, clientId: messageId }]),
        );
        if (stored?.seq !== atSeq + 1) throw idTaken(sessionId);
      }
      const session = await deadline.read(() => parts.view(tenant, sessionId));
      return { session, seq: atSeq + 1, messageId, duplicate: !isNew };
    },

    async forks(tenant, parentId, query = {}): Promise<ForksPage> {
      const { atSeq, user, cursor, limit = 50 } = query;
      checkOptions("forks", query, ["atSeq", "user", "cursor", "limit"]);
      checkNumber("limit", limit, { min: 1, max: maxForks });
      if (atSeq !== undefined) {
        checkNumber("atSeq", atSeq, { min: 0, max: Number.MAX_SAFE_INTEGER });
      }
      await headerOf(tenant, parentId);
      const cursors = cursorsOf("forks", { tenant, parentId, atSeq, user });
      const first = { atSeq: atSeq ?? 0, sessionId: "" };
      const after = cursor === undefined ? first : placeOfCursor(cursors.decode(cursor));
      const rows = await coldReads(database).read(readForksOf(parentId, after, limit + 1));
      const within = rows.filter((row) => atSeq === undefined || Number(row["at_seq"]) === atSeq);
      const walked = within.slice(0, limit);
      const shown = walked.flatMap((row) => {
        const view = viewOfFork(row, parentId);
        return view && (user === undefined || view.users.includes(user)) ? [view] : [];
      });
      const page = fitPage(shown, within.length > limit);
      const isCut = page.items.length < shown.length;
      const last = isCut
        ? walked.find((row) => row["session_id"] === page.items.at(-1)!.sessionId)
        : walked.at(-1);
      const next =
        page.hasMore && last ? cursors.encode(`${last["at_seq"]}.${last["session_id"]}`) : null;
      return { forks: page.items, next };
    },
  };
}

/** Undefined for one that isn't made yet, or is deleted. */
function viewOfFork(row: Row, parentId: string): SessionView | undefined {
  if (row["header"] === null) return undefined;
  const view = toForkView(row);
  const place = { sessionId: parentId, atSeq: Number(row["at_seq"]) };
  return isSamePlace(view?.parent, place) ? view : undefined;
}

function placeOfCursor(place: string): ForkCursor {
  const [, atSeq, sessionId] = /^(\d{1,15})\.(.+)$/s.exec(place) ?? [];
  if (atSeq !== undefined && sessionId !== undefined) return { atSeq: Number(atSeq), sessionId };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}

function checkLists({ agents, users }: Pick<ForkSession, "agents" | "users">): void {
  checkNames("agents", agents, maxAgents);
  checkNames("users", users, maxUsers);
}

function checkPlace({ lastSeq }: Header, atSeq: number): void {
  if (atSeq <= lastSeq) return;
  throw new FlotillaError(
    "invalid_input",
    `the session has ${lastSeq} entries, so it can't be forked at ${atSeq}`,
  );
}

/** The place before a message of a user. */
function beforeMessage(entry: Entry | undefined, messageId: string): number {
  if (!entry) {
    throw new FlotillaError("not_found", `the session has no message ${messageId.slice(0, 80)}`);
  }
  if (entry.kind === "message" && entry.role === "user") return entry.seq - 1;
  throw new FlotillaError(
    "invalid_input",
    "only a user's message can be edited: for another answer, regenerate it",
  );
}

/** Exact where a page has all of them; else as many as the entries that were read let expect. */
function tokensAfter(compactedSeq: number, entries: readonly Entry[], atSeq: number): number {
  const counted = entries.filter(({ seq }) => seq > compactedSeq);
  if (counted.length === 0) return 0;
  const sum = counted.reduce((all, { tokens }) => all + tokens, 0);
  return Math.round((sum * (atSeq - compactedSeq)) / counted.length);
}

/** A row may hold anything, including metadata of a later release. */
function isOfEarlierRelease(row: Row): boolean {
  try {
    const { sessions } = JSON.parse(String(row["metadata"])) as { sessions?: { forks?: unknown } };
    return typeof sessions === "object" && sessions !== null && sessions.forks !== true;
  } catch {
    return false;
  }
}

function idTaken(sessionId: string): FlotillaError {
  return new FlotillaError(
    "conflict",
    `the id ${sessionId.slice(0, 80)} is that of another session or fork, or of one that was deleted: choose another`,
  );
}

function tooDeep(): FlotillaError {
  return new FlotillaError(
    "conflict",
    `this fork would have entries of more than ${maxSegments} sessions: fork it from an earlier place`,
  );
}

function notArchived(sessionId: string): FlotillaError {
  const message = `the database doesn't have all entries of ${sessionId.slice(0, 80)} yet: try again later`;
  return new FlotillaError("store_unavailable", message, { retryAfterMs: 1_000 });
}
