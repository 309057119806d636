import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Json } from "../../base/json.ts";
import type { Compaction, Header, Turn } from "../conversation/header.ts";
import { busyRecord, oddTexts, record } from "../contract/journal-harness.ts";
import type { NewTask } from "../../tasks/sql/enqueue.ts";
import type { LogRecord } from "./journal.ts";
import { changesOf } from "./changes.ts";
import { decodeRecord, encodeRecord, entryIdsOf, recordVersion } from "./record-codec.ts";

const anyText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.constantFrom(...oddTexts, "", "\u0000", "\ud800", "x\udfff", "\ufeff"),
);
const anyCount = fc.nat(Number.MAX_SAFE_INTEGER);
const anyMs = fc.oneof(anyCount, fc.constantFrom(0, 1.5, 1_800_000_000_000.25));
// As it comes from a client: JSON has no negative zero.
const anyJson = fc.jsonValue().map((value) => JSON.parse(JSON.stringify(value)) as Json);
const orNull = <Value>(any: fc.Arbitrary<Value>) => fc.option(any, { nil: null });
const listOf = <Value>(any: fc.Arbitrary<Value>) => fc.array(any, { maxLength: 3 });

/** Some of the fields that may be absent, with values. */
function some<Value extends object>(fields: {
  [Field in keyof Value]: fc.Arbitrary<NonNullable<Value[Field]>>;
}): fc.Arbitrary<Partial<Value>> {
  return fc.record(fields, { requiredKeys: [] }) as fc.Arbitrary<Partial<Value>>;
}

const alone = fc.constantFrom("waits" as const, "begun" as const, "beside" as const);
const trigger = fc.constantFrom("submit" as const, "regenerate" as const, "tool_result" as const);

const anyTurn: fc.Arbitrary<Turn> = fc
  .tuple(
    fc.record({
      type: fc.constant("turn" as const),
      epoch: anyCount,
      attempt: anyCount,
      lost: anyCount,
      agent: anyText,
      runner: orNull(anyText),
      upToSeq: anyCount,
      trigger,
      messageId: anyText,
      replaces: orNull(anyCount),
      stopping: fc.boolean(),
    }),
    some<Pick<Turn, "beganAtMs" | "waits" | "alone" | "hasSteps" | "trace">>({
      beganAtMs: anyMs,
      waits: fc.record({ attempt: anyCount, count: anyCount }),
      alone,
      hasSteps: fc.constant(true as const),
      trace: anyText,
    }),
  )
  .map(([must, may]) => ({ ...must, ...may }));

const anyCompaction: fc.Arbitrary<Compaction> = fc
  .tuple(
    fc.record({
      type: fc.constant("compaction" as const),
      epoch: anyCount,
      attempt: anyCount,
      lost: anyCount,
      agent: anyText,
      runner: orNull(anyText),
      toSeq: anyCount,
      tokens: anyCount,
    }),
    some<Pick<Compaction, "alone">>({ alone }),
  )
  .map(([must, may]) => ({ ...must, ...may }));

const anyHeader: fc.Arbitrary<Header> = fc
  .tuple(
    fc.record({
      sessionId: anyText,
      tenant: anyText,
      agents: listOf(anyText),
      users: listOf(anyText),
      status: fc.constantFrom("active" as const, "archived" as const, "deleted" as const),
      lastSeq: anyCount,
      epoch: anyCount,
      work: orNull(fc.oneof(anyTurn, anyCompaction)),
      pending: listOf(
        fc.record({
          agent: anyText,
          fromSeq: anyCount,
          tokensBefore: anyCount,
          upToSeq: anyCount,
          trigger,
          replaces: orNull(anyCount),
          messageId: anyText,
        }),
      ),
      summarySeq: anyCount,
      compactedSeq: anyCount,
      tokens: anyCount,
      compactionFailures: anyCount,
      failedAtTokens: anyCount,
      needsCompaction: fc.boolean(),
      metadataVersion: anyCount,
      preview: anyText,
      previewAuthor: anyText,
      createdAtMs: anyMs,
      activeAtMs: anyMs,
    }),
    some<Pick<Header, "replacedSeq" | "resultSeq" | "approvals" | "bytes">>({
      replacedSeq: anyCount,
      resultSeq: anyCount,
      approvals: fc.record({
        seq: anyCount,
        calls: listOf(
          fc.record({ messageId: anyText, toolCallId: anyText, tool: anyText, sinceMs: anyMs }),
        ),
      }),
      bytes: anyCount,
    }),
  )
  .map(([must, may]) => ({ ...must, ...may }));

type RecordEntry = LogRecord["entries"][number];

const anyEntry: fc.Arbitrary<RecordEntry> = fc
  .tuple(
    fc.record({
      sessionId: anyText,
      clientId: orNull(anyText),
      seq: anyCount,
      kind: fc.constantFrom("message" as const, "tool_result" as const, "summary" as const),
      role: fc.constantFrom("system" as const, "user" as const, "assistant" as const),
      author: anyText,
      messageId: anyText,
      tokens: anyCount,
      parts: listOf(fc.record({ type: anyText, text: anyText, data: anyJson })),
      atMs: anyMs,
    }),
    some<
      Pick<
        RecordEntry,
        "replaces" | "epoch" | "upToSeq" | "outcome" | "error" | "results" | "throughSeq" | "stop"
      >
    >({
      replaces: anyCount,
      epoch: anyCount,
      upToSeq: anyCount,
      outcome: fc.constantFrom("completed" as const, "stopped" as const, "failed" as const),
      error: fc.record({ code: anyText, message: anyText }),
      results: fc.record({
        messageId: anyText,
        results: listOf(fc.record({ toolCallId: anyText, output: anyJson })),
      }),
      throughSeq: anyCount,
      stop: fc.record({
        epoch: anyCount,
        messageId: anyText,
        by: fc.constantFrom("user" as const, "key" as const, "program" as const),
      }),
    }),
    fc.option(anyJson, { nil: undefined }),
  )
  .map(([must, may, metadata]) => ({
    ...must,
    ...may,
    ...(metadata !== undefined && { metadata }),
  }));

const anyTask: fc.Arbitrary<NewTask> = fc
  .tuple(
    fc.record({
      taskId: anyText,
      tenant: anyText,
      name: anyText,
      payload: anyText,
      priority: fc.integer({ min: -100, max: 100 }),
      delayMs: anyMs,
      maxAttempts: orNull(anyCount),
      key: orNull(anyText),
      trace: orNull(anyText),
    }),
    some<
      Pick<NewTask, "runAtMs" | "limited" | "depends" | "after" | "isRun" | "origin" | "outdates">
    >({
      runAtMs: anyMs,
      limited: fc.boolean(),
      depends: fc.constantFrom(1 as const, 2 as const),
      after: listOf(anyText),
      isRun: fc.boolean(),
      origin: fc.record({ id: anyText, what: fc.constantFrom("session" as const) }),
      outdates: listOf(anyText),
    }),
  )
  .map(([must, may]) => ({ ...may, ...must }));

/** With every member that there is: one that is missing here does not compile. */
const anyMembers: { [Member in keyof Required<LogRecord>]: fc.Arbitrary<LogRecord[Member]> } = {
  recordId: anyText,
  entries: listOf(anyEntry),
  headers: listOf(anyHeader),
  members: listOf(anyText),
  metadata: listOf(fc.record({ sessionId: anyText, metadata: anyText })),
  reads: listOf(fc.record({ sessionId: anyText, user: anyText, seq: anyCount })),
  checkpoints: listOf(
    fc.record({ sessionId: anyText, epoch: anyCount, attempt: anyCount, body: anyText }),
  ),
  steps: listOf(
    fc.record({
      sessionId: anyText,
      epoch: anyCount,
      attempt: anyCount,
      rows: listOf(
        fc.record({
          key: anyText,
          seq: anyCount,
          kind: fc.constantFrom("done" as const, "failed" as const, "round" as const),
          inputHash: orNull(anyText),
          value: anyText,
          tookMs: anyMs,
          forgets: fc.boolean(),
        }),
      ),
    }),
  ),
  stepsOver: listOf(fc.record({ sessionId: anyText, epoch: anyCount })),
  turns: listOf(
    fc.record({
      sessionId: anyText,
      epoch: anyCount,
      attempt: anyCount,
      agent: anyText,
      podId: orNull(anyText),
      beganAtMs: anyMs,
      firstChunkAtMs: orNull(anyMs),
      endedAtMs: anyMs,
      outcome: fc.constantFrom("completed" as const, "lost" as const),
      usage: orNull(
        fc.record({
          input: anyCount,
          output: anyCount,
          cached: anyCount,
          model: orNull(anyText),
          cost: orNull(fc.constantFrom(0, 0.123456)),
        }),
      ),
    }),
  ),
  acts: listOf(
    fc.record({
      id: anyText,
      actor: anyText,
      tenant: anyText,
      userId: anyText,
      keyName: orNull(anyText),
      role: orNull(anyText),
      address: orNull(anyText),
      action: anyText,
      subject: orNull(anyText),
      filter: orNull(anyText),
      reason: orNull(anyText),
      actId: orNull(anyText),
      before: anyText,
      after: anyText,
    }),
  ),
  tenants: listOf(
    fc.record({
      tenant: anyText,
      sessions: fc.integer({ min: -5, max: 5 }),
      turns: fc.integer({ min: -5, max: 5 }),
      bytes: fc.integer(),
    }),
  ),
  tasks: listOf(anyTask),
};

const anyRecord = fc.record(anyMembers, {
  requiredKeys: [
    "recordId",
    "entries",
    "headers",
    "metadata",
    "reads",
    "checkpoints",
    "steps",
    "stepsOver",
  ],
}) as fc.Arbitrary<LogRecord>;

const encoded = (given: LogRecord) => encodeRecord(given, { maxBytes: Infinity });
const linesOf = (given: LogRecord) => Buffer.from(encoded(given)).toString().split("\n");
const bodyOf = (given: LogRecord) => JSON.parse(linesOf(given)[0]!) as Record<string, unknown>;
/** Bytes of a record with this first line, and the content of one entry. */
const bytesOf = (body: unknown, content: unknown = JSON.parse(linesOf(busyRecord("s", 1))[1]!)) =>
  Buffer.from(`${JSON.stringify(body)}\n${JSON.stringify(content)}`);

describe("the bytes of a record", () => {
  test("give back all of it, and nothing that wasn't there", () => {
    fc.assert(
      fc.property(anyRecord, (given) => {
        expect(decodeRecord(encoded(given))).toEqual(given);
      }),
      { numRuns: 100 },
    );
  });

  test("are two lines of JSON: members with a version and the ids of entries, and their content", () => {
    const given = busyRecord("s", 1);
    const { messageId, clientId, parts } = given.entries[0]!;
    expect(linesOf(given)).toHaveLength(2);
    expect(JSON.parse(linesOf(given)[1]!)).toMatchObject([{ parts }]);
    expect(bodyOf(given)).toMatchObject({
      v: recordVersion,
      entries: [["s", 1, messageId, clientId, null]],
      headers: [{ sessionId: "s", lastSeq: 1 }],
      stepsOver: [],
    });
  });

  test("tell what a record changes without the content of its entries, which is read once", () => {
    const given = busyRecord("s", 1);
    const bytes = encoded(given);
    const decoded = decodeRecord(bytes);
    const { sessionId, seq, messageId, clientId } = given.entries[0]!;
    // Whatever is behind the first line isn't looked at yet.
    bytes.fill(0x20, bytes.indexOf(0x0a) + 1);
    expect(entryIdsOf(decoded)).toEqual([{ sessionId, seq, messageId, clientId }]);
    expect(changesOf(decoded).headers).toEqual(given.headers);
    expect(() => decoded.entries).toThrow(expect.objectContaining({ code: "store_corrupt" }));
    const whole = decodeRecord(encoded(given));
    expect(whole.entries).toBe(whole.entries);
    expect(whole.entries).toEqual(given.entries);
    expect(entryIdsOf(given)).toBe(given.entries);
  });

  test("of a later release are refused, because a part of them would be lost", () => {
    const body = bodyOf(busyRecord("s", 1));
    for (const later of [
      { ...body, v: recordVersion + 1 },
      { ...body, pictures: [] },
    ]) {
      expect(() => decodeRecord(bytesOf(later))).toThrow(
        expect.objectContaining({ code: "store_newer" }),
      );
    }
    // A field more is part of a member, and is kept with it.
    const headers = [{ ...busyRecord("s", 1).headers[0], mood: "new" }];
    expect(decodeRecord(bytesOf({ ...body, headers })).headers).toEqual(headers);
  });

  test("that are no record are refused", () => {
    const body = bodyOf(busyRecord("s", 1));
    const [ids] = body["entries"] as unknown[][];
    const [, content] = linesOf(busyRecord("s", 1)) as [string, string];
    const [entry] = JSON.parse(content) as Record<string, unknown>[];
    const bad: Uint8Array[] = [
      Buffer.from(JSON.stringify(body)),
      bytesOf(body, []),
      bytesOf(body, null),
      bytesOf(body, [null]),
      bytesOf(body, [{ ...entry, parts: {} }]),
      bytesOf(body, [{ ...entry, tokens: "1" }]),
      Buffer.from(""),
      Buffer.from("{"),
      Buffer.from([0x7b, 0xff, 0x7d]),
      bytesOf(null),
      bytesOf("text"),
      bytesOf([]),
      bytesOf({}),
      bytesOf({ ...body, v: "1" }),
      bytesOf({ ...body, recordId: 7 }),
      bytesOf({ ...body, entries: undefined }),
      bytesOf({ ...body, entries: {} }),
      bytesOf({ ...body, entries: [entry] }),
      bytesOf({ ...body, entries: [ids!.with(1, "1")] }),
      bytesOf({ ...body, entries: [ids!.with(1, 1.5)] }),
      bytesOf({ ...body, entries: [ids!.with(3, 7)] }),
      bytesOf({ ...body, entries: [ids!.slice(0, 3)] }),
      bytesOf({ ...body, headers: [null] }),
      bytesOf({ ...body, headers: [{ sessionId: "s" }] }),
      bytesOf({ ...body, steps: [{ sessionId: "s", epoch: 1, attempt: 1, rows: [7] }] }),
    ];
    for (const bytes of bad) {
      expect(() => decodeRecord(bytes).entries).toThrow(
        expect.objectContaining({ code: "store_corrupt" }),
      );
    }
  });

  test("aren't made of what couldn't be read again", () => {
    const reads = [{ sessionId: "s", user: "ada", seq: NaN }];
    expect(() => encoded(record({ reads }))).toThrow(
      expect.objectContaining({ code: "payload_not_storable", details: { member: "reads" } }),
    );
  });

  test("are no more than the log takes", () => {
    const given = busyRecord("s", 1);
    const { length } = encoded(given);
    expect(encodeRecord(given, { maxBytes: length })).toHaveLength(length);
    expect(() => encodeRecord(given, { maxBytes: length - 1 })).toThrow(
      expect.objectContaining({
        code: "payload_too_large",
        details: { bytes: length, maxBytes: length - 1 },
      }),
    );
  });
});
