import { type ActAbout, entryOf } from "../audit/act.ts";
import { currentActor, isOperator } from "../audit/actor.ts";
import { readFull } from "../audit/sql.ts";
import type { Clock } from "../base/clock.ts";
import { FlotillaError, hasCode, storeAwayCodes } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { encodeJson } from "../base/json.ts";
import { checkNumber, checkText } from "../base/options.ts";
import { fitPage, maxPageBytes } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import { settledWithin } from "../base/timeout.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { Files } from "../files/files.ts";
import { takeFiles, type TakenFiles } from "../files/take.ts";
import { linksOf } from "../links/links.ts";
import { type Entry, estimateMessageTokens } from "../protocol/message.ts";
import { coldReads, type Database } from "../store/database.ts";
import { auditFull } from "../store/audit.ts";
import { prepareLoggedTasks, type TaskToStart } from "../tasks/enqueue/logged-tasks.ts";
import type { NewTask } from "../tasks/sql/enqueue.ts";
import type { Audited, Target, Traced } from "./conversation/command.ts";
import { maxAgents, type Header, maxUsers } from "./conversation/header.ts";
import type { Hub } from "./delivery/delivery.ts";
import type { Inboxes } from "./inbox.ts";
import { createForks } from "./fork.ts";
import type { ForkCollector } from "./fork-collector.ts";
import { type Ahead, listSessions, readSession, readSessionAhead } from "./list.ts";
import type { CommandRouter } from "./log/command-router.ts";
import type { Reads } from "./log/journal.ts";
import type { Heads } from "./log/heads.ts";
import { createLastPages } from "./last-pages.ts";
import { type CallDeadline, startDeadline } from "./log/call-deadline.ts";
import { attend } from "./people/attend.ts";
import type { People } from "./people/people.ts";
import type { GetOptions, Joined, SessionService, SessionView } from "./service.ts";
import { pageOfTurns } from "./turn-page.ts";
import { createToolResults } from "./tool-results.ts";
import { createWakeCalls, createWakes } from "./wakes.ts";
import {
  checkCreate,
  checkMessage,
  checkNames,
  checkSessionId,
  checkGivenId,
  maxIdChars,
  maxMetadataBytes,
} from "./validate.ts";

export type ServiceParts = {
  database: Database;
  journal: Reads;
  /** For plain reads. Commands read from `journal`. */
  coldJournal: Pick<Reads, "header" | "entries" | "turns">;
  heads: Heads;
  router: CommandRouter;
  hub: Hub;
  inboxes: Inboxes;
  people: Pick<People, "enter">;
  forks: Pick<ForkCollector, "letGo">;
  ids: Ids;
  clock: Clock;
  random: Random;
  maxPayloadBytes: number;
  files: Pick<Files, "keep" | "upload">;
  /** The trace context of the caller, or else the given one. Default: no tracing. */
  currentTrace?: (given: TraceHeaders | undefined) => string | null;
  /** The journal, if it is ahead of the database. */
  ahead?: Ahead | undefined;
  /** The committed header of a session, if this process knows it for certain. */
  localHeader: (sessionId: string) => Header | undefined;
};

const maxPageEntries = 1_000;
// A database that hangs holds up no act that its log can store.
const auditLookMs = 1_000;
/** How far back the last answer is searched. */
const maxLastAnswerEntries = 200;
const lastAnswerPageBytes = 256 * 1024;
/** How many of the names that a change of members has are in its entry. */
const maxNamesAudited = 20;
/** How often an answer is read again if it keeps being replaced. */
const maxLookups = 5;

/** Creates the service that all callers use, whichever pod owns the session. */
export function createService(parts: ServiceParts): SessionService {
  const { database, journal, coldJournal, heads, router, hub, ids, maxPayloadBytes } = parts;

  const lastPages = createLastPages(parts);
  const tracedBy = (headers: TraceHeaders | undefined): Traced => {
    const trace = parts.currentTrace?.(headers) ?? null;
    return trace === null ? {} : { trace };
  };

  const headerOf = async (
    tenant: string,
    sessionId: string,
    from: Pick<Reads, "header"> = journal,
  ): Promise<Header> => {
    checkSessionId(sessionId);
    const header = parts.localHeader(sessionId) ?? (await from.header(sessionId));
    if (header && header.tenant === tenant && header.status !== "deleted") return header;
    throw noSession(sessionId);
  };

  const view = async (
    tenant: string,
    sessionId: string,
    options: Pick<GetOptions, "withoutMetadata"> = {},
  ): Promise<SessionView> => {
    checkSessionId(sessionId);
    const found = parts.ahead
      ? await readSessionAhead(parts.ahead, database, { tenant, sessionId, ...options })
      : await readSession(database, tenant, sessionId);
    if (found) return found;
    throw noSession(sessionId);
  };

  const answerOf = async (sessionId: string, messageId: string | undefined): Promise<Entry> => {
    const entry =
      messageId === undefined
        ? await lastAnswer(sessionId)
        : await journal.newest(sessionId, checkText("messageId", messageId, { max: maxIdChars }));
    if (entry?.role === "assistant" && entry.kind === "message") return entry;
    const which = messageId === undefined ? "no answer yet" : "no answer with that message id";
    throw new FlotillaError("not_found", `the session has ${which}`);
  };

  /** In pages of few bytes: the answer is mostly near the end, and later entries may be large. */
  const lastAnswer = async (sessionId: string): Promise<Entry | undefined> => {
    let upTo = Number.MAX_SAFE_INTEGER;
    for (let left = maxLastAnswerEntries; left > 0;) {
      const page = { after: 0, upTo, limit: left, maxBytes: lastAnswerPageBytes };
      const entries = await journal.tail(sessionId, page);
      const found = entries.findLast(
        ({ role, kind }) => role === "assistant" && kind === "message",
      );
      if (found || entries.length === 0) return found;
      upTo = entries[0]!.seq - 1;
      left -= entries.length;
    }
    return undefined;
  };

  const prepareTasks = (
    tenant: string,
    sessionId: string,
    given: readonly TaskToStart[],
    { trace = null }: { readonly trace?: string | null },
  ): Promise<NewTask[]> => {
    const origin = { id: sessionId, what: "session" } as const;
    return prepareLoggedTasks(given, { ids, maxPayloadBytes, tenant, origin, trace });
  };

  /** The tasks that were stored with an entry. */
  const tasksAt = async (sessionId: string, seq: number): Promise<readonly string[]> => {
    const [entry] = await journal.entries(sessionId, { after: seq - 1, limit: 1 });
    return entry?.seq === seq ? (entry.tasks ?? []) : [];
  };

  let wasAuditFull = false;
  /**
   * Where logs may be ahead of the database, what it said last counts while it is away: the entry of an act is in
   * the record, and reaches the database with it.
   */
  const isAuditFull = async (): Promise<boolean> => {
    const read = async () => (await database.read(readFull())).length > 0;
    if (!parts.ahead) return startDeadline(parts).read(read);
    try {
      wasAuditFull = (await settledWithin(parts.clock, auditLookMs, read())) ?? wasAuditFull;
    } catch (error) {
      if (!hasCode(error, ...storeAwayCodes)) throw error;
    }
    return wasAuditFull;
  };

  /**
   * The entry of an act on a session, which the owner of its log stores with the command if the actor isn't
   * a member. What a program does with the sessions of its users is no operator's act.
   */
  const auditedAs = async (
    action: ActAbout["action"],
    { tenant, sessionId }: { readonly tenant: string; readonly sessionId: string },
    filter?: object,
    author?: string,
  ): Promise<Audited> => {
    const actor = currentActor();
    if (!actor || actor.kind === "program") return {};
    if (await isAuditFull()) throw auditFull();
    const about = { action, subject: sessionId, ...(filter && { filter }) };
    const user = actor.user ?? author;
    // With the tenant of the session, which a command line without one has to name.
    const by = { ...actor, tenant, ...(user !== undefined && { user }) };
    return { act: entryOf(by, ids.next(), about) };
  };

  /**
   * The same for what members do all day, such as a stop. A program with a key for sessions does it for
   * them, so only an operator's is an act. Undefined for others, whose commands must not wait.
   */
  const operatedAs = (...about: Parameters<typeof auditedAs>): Promise<Audited> | undefined => {
    const actor = currentActor();
    return actor && isOperator(actor) ? auditedAs(...about) : undefined;
  };

  /** Submits a command about an answer. If the answer is replaced before the decision, reads it again. */
  const submitAbout = async <Result>(
    tenant: string,
    sessionId: string,
    messageId: string | undefined,
    submit: (answer: Entry, target: Target, deadline: CallDeadline) => Promise<Result>,
  ): Promise<Result> => {
    const deadline = startDeadline(parts);
    for (let lookups = 1; ; lookups++) {
      // The header first: the answer is then the newest at least among the entries up to `lastSeq`.
      const { lastSeq: seenSeq } = await deadline.read(() => headerOf(tenant, sessionId));
      const answer = await deadline.read(() => answerOf(sessionId, messageId));
      const { seq, author } = answer;
      try {
        const target = { seq, messageId: answer.messageId, author, seenSeq };
        return await submit(answer, target, deadline);
      } catch (error) {
        if (lookups === maxLookups || !isReplaced(error)) throw error;
      }
    }
  };

  /** Before the message: what it refers to is never collected, and a session that isn't gets no files. */
  const keepFiles = async (tenant: string, sessionId: string, files: TakenFiles): Promise<void> => {
    await startDeadline(parts).read(() => headerOf(tenant, sessionId));
    await parts.files.keep(tenant, sessionId, files);
  };

  const wakes = createWakes({ ...parts, submit: router.submit, tracedBy });

  return {
    async create(tenant, input) {
      checkCreate(input);
      const { sessionId = ids.next(), agents = [], users = [], metadata } = input;
      const text =
        metadata === undefined
          ? null
          : encodeJson("the metadata", metadata, { maxBytes: maxMetadataBytes });
      const about = { sessionId, tenant, agents, users, metadata: text };
      const isFresh = input.sessionId === undefined;
      const command = { type: "create", ...about, ...(isFresh && { isFresh }) } as const;
      const deadline = startDeadline(parts);
      await router.submit(tenant, sessionId, command);
      return deadline.read(() => view(tenant, sessionId));
    },
    get(tenant, sessionId, { retries = false, ...options } = {}) {
      const read = () => view(tenant, sessionId, options);
      return retries ? startDeadline(parts).read(read) : read();
    },
    async list(tenant, options) {
      const behindMs = parts.ahead?.behindMs();
      const read = () => listSessions(coldReads(database), tenant, options, parts.clock);
      if (behindMs === undefined) return read();
      // From before the read: what is stored meanwhile may be missing.
      const asOf = parts.clock.now() - behindMs;
      return lastPages.read({ ...options, tenant }, async () => ({ ...(await read()), asOf }));
    },
    async entries(tenant, sessionId, { after = 0, limit = 100 }) {
      checkNumber("after", after, { min: 0, max: Number.MAX_SAFE_INTEGER });
      checkNumber("limit", limit, { min: 1, max: maxPageEntries });
      const header = await headerOf(tenant, sessionId, coldJournal);
      const read = await coldJournal.entries(sessionId, { after, limit, maxBytes: maxPageBytes });
      const { items: entries } = fitPage(read, false);
      const head = await heads.of(sessionId, Infinity);
      const reached = entries.at(-1)?.seq ?? 0;
      const lastSeq = Math.max(header.lastSeq, reached);
      const next = entries.length > 0 && reached < lastSeq ? reached : null;
      return { entries, next, lastSeq, incarnation: head!.incarnation };
    },
    async turns(tenant, sessionId, options) {
      const { work } = await headerOf(tenant, sessionId, coldJournal);
      return pageOfTurns(coldJournal, { sessionId, work }, options);
    },
    async started(tenant, sessionId) {
      await headerOf(tenant, sessionId, coldJournal);
      const { started, hasMore } = await linksOf(coldReads(database), sessionId, "session");
      return { started, hasMore };
    },
    async isStored(tenant, sessionId, id) {
      await headerOf(tenant, sessionId);
      return (await journal.storedIds([{ sessionId, clientId: id }])).length > 0;
    },
    async upload(tenant, sessionId, content, file) {
      await startDeadline(parts).read(() => headerOf(tenant, sessionId));
      return parts.files.upload(tenant, sessionId, content, file);
    },
    async send(tenant, sessionId, message) {
      checkSessionId(sessionId);
      const files = takeFiles(message.parts);
      const messageParts = files?.parts ?? message.parts;
      checkMessage({ ...message, parts: messageParts }, maxPayloadBytes);
      if (files) await keepFiles(tenant, sessionId, files);
      const { id = ids.next(), role = "user", author, metadata, to } = message;
      const { tokens = estimateMessageTokens(messageParts) } = message;
      const traced = tracedBy(message.trace);
      const tasks = message.tasks && (await prepareTasks(tenant, sessionId, message.tasks, traced));
      const { seq, duplicate = false } = await router.submit(tenant, sessionId, {
        type: "append",
        clientId: id,
        messageId: id,
        role,
        author,
        parts: messageParts,
        tokens,
        ...(metadata !== undefined && { metadata }),
        ...(to !== undefined && { to }),
        ...traced,
        ...(tasks && { tasks }),
      });
      const sent = { seq: seq!, messageId: id, duplicate };
      if (!tasks) return sent;
      const taskIds = duplicate
        ? await startDeadline(parts).read(() => tasksAt(sessionId, seq!))
        : tasks.map(({ taskId }) => taskId);
      return { ...sent, tasks: taskIds.map((taskId) => ({ taskId })) };
    },
    ...createForks({
      ...parts,
      tracedBy,
      headerOf,
      view,
      startDeadline: () => startDeadline(parts),
      keepFiles,
      letGo: (sessionId) => parts.forks.letGo(sessionId),
    }),
    ...createToolResults({
      journal,
      router,
      ids,
      maxPayloadBytes,
      tracedBy,
      headerOf,
      startDeadline: () => startDeadline(parts),
      submitAbout,
      operatedAs,
    }),
    ...createWakeCalls({
      wakes,
      submit: router.submit,
      headerOf,
      startDeadline: () => startDeadline(parts),
      operatedAs,
    }),
    fireWake: wakes.fire,
    async regenerate(tenant, sessionId, { id = ids.next(), messageId, trace }) {
      checkGivenId("id", id);
      const traced = tracedBy(trace);
      const audited = operatedAs("sessions.regenerate", { tenant, sessionId });
      const ofCaller = { ...traced, ...(audited && (await audited)) };
      return submitAbout(tenant, sessionId, messageId, async (_, target, { leftMs: timeoutMs }) => {
        const command = { type: "regenerate", clientId: id, target, ...ofCaller } as const;
        const result = await router.submit(tenant, sessionId, command, { timeoutMs });
        const { lastSeq, duplicate = false } = result;
        return { seq: lastSeq, messageId: target.messageId, duplicate };
      });
    },
    async stop(
      tenant,
      sessionId,
      { epoch: requestedEpoch, author = "program", by = "program" } = {},
    ) {
      checkText("author", author, { max: maxIdChars });
      const deadline = startDeadline(parts);
      const { work } = await deadline.read(() => headerOf(tenant, sessionId));
      // Fixes the epoch once, so that a retry after a lost response does not stop the next turn.
      const epoch = requestedEpoch ?? (work?.type === "turn" ? work.epoch : undefined);
      if (epoch === undefined) return false;
      const audited = operatedAs("sessions.stop", { tenant, sessionId }, { epoch });
      const ofCaller = { author, by, ...(audited && (await audited)) };
      const command = { type: "stop", epoch, ...ofCaller } as const;
      const timeoutMs = deadline.leftMs;
      return (await router.submit(tenant, sessionId, command, { timeoutMs })).done ?? true;
    },
    async read(tenant, sessionId, { user, seq }) {
      checkSessionId(sessionId);
      checkText("user", user, { max: maxIdChars });
      checkNumber("seq", seq, { min: 0, max: Number.MAX_SAFE_INTEGER });
      await router.submit(tenant, sessionId, { type: "read", user, seq });
    },
    async setMetadata(tenant, sessionId, metadata, { ifVersion } = {}) {
      checkSessionId(sessionId);
      const text = encodeJson("the metadata", metadata, { maxBytes: maxMetadataBytes });
      const audited = operatedAs("sessions.metadata", { tenant, sessionId });
      const answer = await router.submit(tenant, sessionId, {
        type: "metadata",
        metadata: text,
        ...(ifVersion !== undefined && { ifVersion }),
        ...(audited && (await audited)),
      });
      return { metadataVersion: answer.metadataVersion! };
    },
    async changeMembers(tenant, sessionId, change) {
      checkSessionId(sessionId);
      checkNames("addUsers", change.addUsers, maxUsers);
      checkNames("removeUsers", change.removeUsers, maxUsers);
      checkNames("agents", change.agents, maxAgents);
      const { addUsers = [], removeUsers = [], agents = [] } = change;
      const filter = {
        addUsers: addUsers.slice(0, maxNamesAudited),
        removeUsers: removeUsers.slice(0, maxNamesAudited),
        agents: agents.slice(0, maxNamesAudited),
      };
      const audited = await auditedAs("sessions.members", { tenant, sessionId }, filter);
      await router.submit(tenant, sessionId, { type: "members", ...change, ...audited });
    },
    async compact(tenant, sessionId) {
      checkSessionId(sessionId);
      const audited = operatedAs("sessions.compact", { tenant, sessionId });
      const command = { type: "compact", ...(audited && (await audited)) } as const;
      return (await router.submit(tenant, sessionId, command)).done ?? true;
    },
    async archive(tenant, sessionId) {
      checkSessionId(sessionId);
      const audited = await auditedAs("sessions.archive", { tenant, sessionId });
      await router.submit(tenant, sessionId, { type: "archive", ...audited });
    },
    async unarchive(tenant, sessionId) {
      checkSessionId(sessionId);
      const audited = await auditedAs("sessions.unarchive", { tenant, sessionId });
      await router.submit(tenant, sessionId, { type: "unarchive", ...audited });
    },
    async remove(tenant, sessionId) {
      checkSessionId(sessionId);
      const audited = await auditedAs("sessions.remove", { tenant, sessionId });
      await router.submit(tenant, sessionId, { type: "delete", ...audited });
      await parts.forks.letGo(sessionId);
    },
    join(tenant, sessionId, position, sink) {
      let joined: Joined | undefined;
      let left = false;
      const ready = (async () => {
        checkNumber("lastSeq", position.lastSeq, { min: 0, max: Number.MAX_SAFE_INTEGER });
        await headerOf(tenant, sessionId, coldJournal);
        if (left) return;
        joined = hub.join(sessionId, position, sink);
        await joined.ready;
      })();
      ready.catch((error: unknown) => {
        // The hub has already called `fail` for joins that it ended.
        if (!joined && !left) sink.fail(error);
      });
      return {
        ready,
        leave() {
          left = true;
          joined?.leave();
        },
      };
    },
    presence: (tenant, sessionId, user, sink) =>
      attend(parts.people, { sessionId, user, sink }, () =>
        headerOf(tenant, sessionId, coldJournal),
      ),
    inbox: (tenant, user, sink) => parts.inboxes.open(tenant, user, sink),
  };
}

/** True when the owner says that the answer was replaced after it was read. */
function isReplaced(error: unknown): boolean {
  return hasCode(error, "conflict") && error.details?.["replaced"] === true;
}

function noSession(sessionId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${sessionId.slice(0, 80)}`);
}
