import * as agents from "../../src/sessions/agents/sql.ts";
import type { Header } from "../../src/sessions/conversation/header.ts";
import type { Changes } from "../../src/sessions/log/changes.ts";
import * as archive from "../../src/sessions/log/sql/archive.ts";
import * as forks from "../../src/sessions/log/sql/forks.ts";
import * as heads from "../../src/sessions/log/sql/heads.ts";
import * as moves from "../../src/sessions/log/sql/moves.ts";
import * as placed from "../../src/sessions/log/sql/placed-changes.ts";
import * as reading from "../../src/sessions/log/sql/reading.ts";
import * as records from "../../src/sessions/log/sql/records.ts";
import * as sessions from "../../src/sessions/sql.ts";
import { sql } from "../../src/store/sql.ts";
import { entry as actEntry, newEntry } from "./audit.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

const agent = { tenant: "default", name: "helper", settings: "{}", secrets: "{}" };
const head = {
  logId: 1,
  incarnation: "first",
  term: 2,
  owner: "pod-1",
  host: null,
  offset: 7,
  recordId: "record-7",
  beat: 3,
};
const header: Header = {
  sessionId: "session-1",
  tenant: "default",
  agents: ["helper"],
  users: ["ada"],
  status: "active",
  lastSeq: 2,
  epoch: 1,
  work: null,
  pending: [],
  summarySeq: 0,
  compactedSeq: 0,
  tokens: 5,
  compactionFailures: 0,
  failedAtTokens: 0,
  needsCompaction: false,
  metadataVersion: 0,
  preview: "hello",
  previewAuthor: "ada",
  createdAtMs: 1,
  activeAtMs: 2,
};
const entry = {
  sessionId: "session-1",
  seq: 2,
  kind: "message",
  role: "user",
  author: "ada",
  messageId: "message-2",
  clientId: "client-2",
  tokens: 5,
  parts: [],
  atMs: 2,
} as const;
const step = {
  key: "search",
  seq: 3,
  kind: "done",
  inputHash: null,
  value: "1",
  tookMs: 5,
  forgets: true,
} as const;
const plain: Changes = {
  entries: [entry],
  headers: [header],
  members: [],
  metadata: new Map(),
  reads: [],
  checkpoints: [],
  ended: [],
  steps: [],
  stepsOver: [],
  turns: [],
  acts: [],
  deleted: [],
  tenants: undefined,
  tasks: [],
};
const full: Changes = {
  entries: [{ ...entry, kind: "summary", replaces: 1 }],
  headers: [header],
  members: [header],
  metadata: new Map([["session-1", "{}"]]),
  reads: [{ sessionId: "session-1", user: "ada", seq: 2 }],
  checkpoints: [{ sessionId: "session-1", epoch: 1, attempt: 1, body: "{}" }],
  ended: [{ sessionId: "session-2", epoch: 1 }],
  steps: [{ sessionId: "session-1", epoch: 1, attempt: 2, step }],
  stepsOver: [{ sessionId: "session-2", epoch: 1 }],
  turns: [
    {
      sessionId: "session-2",
      epoch: 1,
      attempt: 1,
      agent: "helper",
      podId: "pod-1",
      beganAtMs: 1,
      firstChunkAtMs: 2,
      endedAtMs: 3,
      outcome: "completed",
      usage: { input: 10, output: 2, cached: 4, model: "small", cost: 0.5 },
    },
  ],
  acts: [{ ...newEntry, before: "{}", after: "{}" }],
  deleted: ["session-3"],
  tenants: undefined,
  tasks: [
    {
      taskId: "task-1",
      tenant: "default",
      name: "mail",
      payload: "{}",
      priority: 0,
      delayMs: 0,
      maxAttempts: null,
      key: "once",
      trace: null,
      origin: { id: "session-1", what: "session" },
    },
  ],
};
const counted: Changes = {
  ...plain,
  tenants: [{ tenant: "default", sessions: 0, turns: 1, bytes: 200 }],
};
const waiting: Changes = { ...plain, headers: [{ ...header, approvals: { seq: 2, calls: [] } }] };
const watermark = {
  logId: 1,
  incarnation: "first",
  offset: 8,
  recordId: "record-8",
  chain: "0123456789abcdef",
};
const flush = { from: 7, to: watermark, flushId: "flush-1" };
const asideItem = {
  offset: 8,
  place: 0,
  sessionId: "session-1",
  seq: 2,
  body: "{}",
  reason: "the value is too long",
};
const before = { activeAtMs: 9, sessionId: "session-9" };
const filter = { agent: "helper", status: "active", state: "idle" } as const;
const inbox = { tenant: "default", user: "ada", limit: 10, maxConsidered: 100, maxCounted: 50 };

export const sessionStatements: RoomStatements = {
  "src/sessions/sql.ts": sqlFile(sessions, {
    readSessions: () => [
      sessions.readSessions("default", ["session-1"]),
      sessions.readSessions("default", ["session-1"], { ...filter, user: "ada" }),
    ],
    readOwner: () => sessions.readOwner("default", "session-1"),
    readLogOf: () => sessions.readLogOf("default", "session-1"),
    countSessions: () => sessions.countSessions(),
    countSessionsOf: () => sessions.countSessionsOf("default", "ada", 2_001),
    walkSessionsBelow: () =>
      sessions.walkSessionsBelow("default", { user: "ada" }, { before, count: 10 }),
    sessionsBelow: () => [
      sessions.sessionsBelow("default", filter, { before, count: 10 }),
      sessions.sessionsBelow("default", { user: "ada" }, { before, count: 10 }),
      sessions.sessionsBelow("default", { metadata: { "ticket.id": 7 } }, { before, count: 10 }),
      sessions.sessionsBelow("default", { only: ["session-1"] }, { before, count: 10 }),
    ],
    busySessionsBelow: () =>
      sessions.busySessionsBelow("default", { user: "ada" }, { before, count: 10 }),
    sessionsAwaiting: () => [
      sessions.sessionsAwaiting(
        { by: "until", atMs: 5, id: "session-1" },
        { tenant: undefined, count: 51 },
      ),
      sessions.sessionsAwaiting(
        { by: "since", atMs: 5, id: "session-1" },
        { tenant: "acme", count: 51 },
      ),
    ],
    readInboxRows: () => [
      sessions.readInboxRows(inbox),
      sessions.readInboxRows({ ...inbox, only: ["session-1"] }),
    ],
  }),
  "src/sessions/log/sql/placed-changes.ts": sqlFile(placed, {
    rowsOf: noStatement,
    loggedOf: noStatement,
  }),
  "src/sessions/log/sql/records.ts": sqlFile(records, {
    storeRecords: () => [
      records.storeRecords([{ at: head, recordId: "record-8", changes: plain }]),
      records.storeRecords([{ at: head, recordId: "record-8", changes: full }]),
      records.storeRecords([{ at: head, recordId: "record-8", changes: counted }]),
      records.storeRecords([{ at: head, recordId: "record-8", changes: waiting }]),
    ],
    storeChanges: () => records.storeChanges([{ at: head, changes: plain }], () => sql`true`),
  }),
  "src/sessions/log/sql/archive.ts": sqlFile(archive, {
    readAllWatermarks: () => archive.readAllWatermarks(),
    countAside: () => archive.countAside(),
    readWatermark: () => archive.readWatermark(1),
    readFirstWatermark: () => archive.readFirstWatermark(),
    insertWatermark: () => archive.insertWatermark(watermark),
    moveToLife: () => archive.moveToLife(watermark, { ...watermark, incarnation: "next" }),
    storeFlush: () => [
      archive.storeFlush({ ...flush, changes: plain, aside: [] }),
      archive.storeFlush({ ...flush, changes: full, aside: [asideItem] }),
    ],
    storeAside: () => archive.storeAside(watermark, [asideItem]),
    probeEntry: () => archive.probeEntry(entry),
    findSeqs: () => archive.findSeqs([{ sessionId: "session-1", seq: 2 }]),
    readLastIds: () => archive.readLastIds("session-1", 4_096),
    toWatermark: noStatement,
  }),
  "src/sessions/log/sql/forks.ts": sqlFile(forks, {
    heldSeqOf: noStatement,
    holdEntries: () =>
      forks.holdEntries(
        { sessionId: "session-2", parentId: "session-1", atSeq: 2, segments: "[]" },
        "default",
      ),
    readFork: () => forks.readFork("session-2"),
    readForksOf: () => forks.readForksOf("session-1", { atSeq: 0, sessionId: "" }, 50),
    walkForks: () => forks.walkForks("", 500),
    readSummaryUpTo: () => forks.readSummaryUpTo("session-1", 20, 10_000),
    letGo: () => [
      forks.letGo({ sessionId: "session-2", parentId: "session-1" }),
      forks.letGo({ sessionId: "session-2", parentId: "session-1" }, { isOther: true }),
    ],
  }),
  "src/sessions/log/sql/heads.ts": sqlFile(heads, {
    readHeads: () => heads.readHeads(),
    insertHeads: () => heads.insertHeads(["first"]),
    readPlace: () => heads.readPlace(),
    leaveForStreams: () => heads.leaveForStreams(),
    moveHeads: () => heads.moveHeads([{ at: head, recordId: "record-8" }]),
    takeHead: () => heads.takeHead(head, { podId: "pod-2", host: null, recordId: "record-8" }),
    beatHeads: () => heads.beatHeads("pod-1", [{ logId: 1, term: 2 }]),
    releaseHeads: () => heads.releaseHeads("pod-1", [{ logId: 1, term: 2 }]),
    toHead: noStatement,
    toLiveHead: noStatement,
  }),
  "src/sessions/log/sql/moves.ts": sqlFile(moves, {
    leaveDatabase: () => moves.leaveDatabase([{ ...head, chain: "00" }], sql`1 = 1`),
    returnToDatabase: () => moves.returnToDatabase([{ ...head, archived: 6 }], sql`1 = 1`),
  }),
  "src/sessions/log/sql/reading.ts": sqlFile(reading, {
    findIds: () => reading.findIds([{ sessionId: "session-1", clientId: "client-2" }]),
    readHeader: () => reading.readHeader("session-1"),
    readBusy: () => reading.readBusy(1),
    readEntries: () => [
      reading.readEntries("session-1", { after: 1, limit: 10 }),
      reading.readEntries("session-1", { after: 1, limit: 10, maxBytes: 1_000 }),
    ],
    readTail: () => [
      reading.readTail("session-1", { after: 1, upTo: 9, limit: 10 }),
      reading.readTail("session-1", { after: 1, upTo: 9, limit: 10, maxBytes: 1_000 }),
    ],
    readNewest: () => reading.readNewest("session-1", "message-2"),
    readTurns: () => [
      reading.readTurns("session-1", { limit: 10 }),
      reading.readTurns("session-1", { before: { epoch: 3, attempt: 1 }, limit: 10 }),
    ],
    toEndedTurn: noStatement,
    readCheckpoint: () => reading.readCheckpoint("session-1"),
    toEntry: noStatement,
    toHeader: noStatement,
    partOf: noStatement,
  }),
  "src/sessions/agents/sql.ts": sqlFile(agents, {
    readAgents: () => agents.readAgents("default", ["helper"]),
    countPlainSecrets: () => agents.countPlainSecrets(),
    storedByNames: () => agents.storedByNames(["helper"], 10),
    listAgents: () => agents.listAgents("default", "", 10),
    createAgent: () => agents.createAgent(agent, 100, actEntry),
    replaceAgent: () => agents.replaceAgent(agent, 1, actEntry),
    removeAgent: () => agents.removeAgent("default", "helper", actEntry),
  }),
};
