import { describe, expect, test } from "vitest";
import type { ServerFacts, StreamSettings } from "./engine.ts";
import {
  maxBodyBytes,
  noPermission,
  refuseCreation,
  refuseServers,
  warnOfServers,
} from "./requirements.ts";
import { refuseStream } from "./changed-streams.ts";
import { decodeMeta, type Deployment, logStream, metaStream } from "./streams.ts";
import { toBody } from "./message.ts";

const sound: ServerFacts = {
  version: "2.15.1",
  hasJetStream: true,
  maxPayloadBytes: 8 * 1_024 * 1_024,
  flushes: [true, true, true],
  versions: ["2.15.1", "2.15.1", "2.15.1"],
  silent: [],
};
const wanted = { replicas: 3, durability: "flushed" } as const;
const deployment: Deployment = {
  namespace: "shop",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: 256 * 1_024 * 1_024,
};
const life = { logId: 2, incarnation: "one", firstSequence: 1 };

describe("servers", () => {
  test.each<Partial<ServerFacts>>([
    {},
    { version: "2.11.0" },
    { version: "3.0.0" },
    { version: "2.15.1-RC.2" },
    { version: "dev" },
    { maxPayloadBytes: 4 * 1_024 * 1_024 },
  ])("that fit are taken: %j", (changes) => {
    expect(refuseServers({ ...sound, ...changes }, wanted)).toBeUndefined();
  });

  test.each<[Partial<ServerFacts>, RegExp]>([
    [{ version: "2.10.27" }, /2\.10\.27 is too old: run 2\.14\.6 or later/],
    [{ version: "1.99.99" }, /too old/],
    [{ hasJetStream: false }, /set jetstream in their config/],
    [{ maxPayloadBytes: 1_024 * 1_024 }, /max_payload .* set it to 8MB/],
    [{ flushes: [] }, /set nats\.monitor .* or nats\.durability to "replicas"/],
    [{ flushes: [true, false, true] }, /set sync_interval to always/],
    [{ flushes: [true], silent: ["n3"] }, /^n3$/],
    [{ flushes: [], silent: ["n1", "n2", "n3"] }, /^n1$/],
    [{ flushes: [true] }, /nats\.monitor tells of 1 of 3 NATS servers: name .* every server/],
    [{ versions: ["2.15.1", "2.10.4"] }, /2\.10\.4 is too old/],
  ])("that don't are refused, with what to set: %j", (changes, sentence) => {
    expect(refuseServers({ ...sound, ...changes }, wanted)).toMatch(sentence);
  });

  test.each([[], [false]])("may flush later if that is allowed: %j", (...flushes) => {
    const weaker = { ...wanted, durability: "replicas" } as const;
    expect(refuseServers({ ...sound, flushes: flushes.flat() }, weaker)).toBeUndefined();
  });

  test("are warned of if their version can stop taking writes, or one says nothing", () => {
    const known = { versions: ["2.15.1"], silent: [] };
    expect(warnOfServers({ ...known, version: "2.14.5" })).toMatch(/run 2\.14\.6 or later/);
    expect(warnOfServers({ ...known, version: "2.14.6" })).toBeUndefined();
    expect(warnOfServers({ ...known, version: "2.15.1", silent: ["n3"] })).toBe("n3");
    const others = { ...known, version: "2.15.1", versions: ["2.15.1", "2.12.12"] };
    expect(warnOfServers(others)).toMatch(/2\.12\.12 can stop taking writes/);
  });

  test("leave space for headers in the largest body", () => {
    expect(maxBodyBytes(sound)).toBe(8 * 1_024 * 1_024 - 64 * 1_024);
  });
});

describe("a stream that can't be made", () => {
  test.each<[number, string, RegExp]>([
    [10005, "no suitable peers for placement", /needs 3 NATS servers/],
    [10074, "replicas > 1 not supported in non-clustered mode", /needs 3 NATS servers/],
    [10047, "insufficient storage resources available", /raise max_file_store/],
    [10005, "no suitable peers for placement, insufficient storage", /raise max_file_store/],
    [noPermission, "Permissions Violation", /allow it what `flotilla cluster permissions` prints/],
    [10052, "invalid", /couldn't be made: invalid/],
  ])("is explained by %i (%s)", (code, why, sentence) => {
    expect(refuseCreation("S", { type: "refused", code, why }, deployment)).toMatch(sentence);
  });

  test("is named if one with other settings is there", () => {
    expect(refuseCreation("S", { type: "different" }, deployment)).toMatch(/other settings/);
  });
});

describe("a stream", () => {
  const made = logStream(deployment, life);

  test("has a name and subjects of its own, and what keeps its messages", () => {
    expect(made).toEqual({
      name: "FLOTILLA_shop_2_one",
      subjects: ["flotilla.shop.log.2.one.>"],
      storage: "file",
      replicas: 3,
      discard: "new",
      maxBytes: 268_435_456,
      maxMessages: -1,
      maxPerSubject: -1,
      maxAgeMs: 0,
      firstSequence: 1,
      allowDirect: true,
      denyDelete: true,
      isCompressed: false,
      isForeign: false,
      metadata: { "flotilla.cluster": "c1", "flotilla.incarnation": "one" },
    });
    expect(metaStream(deployment)).toMatchObject({
      name: "FLOTILLA_shop_META",
      subjects: ["flotilla.shop.meta"],
      maxPerSubject: 1,
    });
  });

  test("that is as it was made is taken", () => {
    expect(refuseStream(made, { ...made, metadata: { ...made.metadata, _nats: "x" } })).toBe(
      undefined,
    );
  });

  test.each<Partial<StreamSettings>>([
    { replicas: 1 },
    { subjects: ["flotilla.>"] },
    { maxAgeMs: 60_000 },
    { discard: "old" },
    { maxBytes: -1 },
    { maxMessages: 5 },
    { storage: "memory" },
    { allowDirect: false },
    { denyDelete: false },
    { isForeign: true },
  ])("that was changed by hand is refused: %j", (change) => {
    const [setting] = Object.keys(change);
    const refusal = refuseStream(made, { ...made, ...change });
    expect(refusal).toMatch(/was changed by hand: set it back/);
    expect(refusal).toContain(setting);
  });

  test("of another deployment is refused", () => {
    const theirs = { ...made.metadata, "flotilla.cluster": "c2" };
    expect(refuseStream(made, { ...made, metadata: theirs })).toMatch(/another deployment/);
    expect(refuseStream(made, { ...made, metadata: {} })).toMatch(/isn't Flotilla's/);
  });
});

describe("which logs there are", () => {
  const meta = {
    clusterId: "c1",
    state: "live",
    logs: [{ incarnation: "one", firstSequence: 1 }],
  };

  test("is read as it was written", () => {
    expect(decodeMeta(toBody(meta))).toEqual(meta);
  });

  test.each([
    { ...meta, clusterId: "" },
    { ...meta, state: "dead" },
    { ...meta, logs: [] },
    { ...meta, logs: Array(257).fill(meta.logs[0]) },
    { ...meta, logs: [{ incarnation: "a.b", firstSequence: 1 }] },
    { ...meta, logs: [{ incarnation: "one", firstSequence: 0 }] },
    { ...meta, logs: [{ incarnation: "one" }] },
    { ...meta, logs: [null] },
    "meta",
  ])("isn't read from what says nothing of it: %j", (found) => {
    expect(decodeMeta(Buffer.from(JSON.stringify(found)))).toBeUndefined();
  });
});
