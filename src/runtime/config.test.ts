import { describe, expect, test } from "vitest";
import { defaultFileSettings } from "../files/files.ts";
import { agent } from "../sessions/agents/agent.ts";
import { task } from "../tasks/task.ts";
import { gapOf } from "../pods/liveness.ts";
import { type Config, defineConfig, resolveConfig } from "./config.ts";

const refused = (message: string) =>
  expect.objectContaining({ code: "invalid_option", message: expect.stringContaining(message) });

describe("a config", () => {
  test("has a default for everything", () => {
    expect(resolveConfig({})).toEqual({
      store: "sqlite:flotilla.db",
      use: [],
      durability: "full",
      migrate: "auto",
      onUnhandledRejection: "log",
      slots: 100,
      target: 0.8,
      pollMs: 1_000,
      heartbeatMs: 1_000,
      deadAfterMs: 5_000,
      stallBeats: 60,
      graceMs: 5_000,
      shutdownMs: 20_000,
      pressure: { eventLoopMs: 200, memory: 0.9 },
      middleware: [],
      retentionMs: { completed: 604_800_000, failed: 604_800_000, cancelled: 604_800_000 },
      audit: { keptMs: 34_560_000_000, maxEntries: 10_000_000 },
      maxPayloadBytes: 262_144,
      maxResultBytes: 262_144,
      outboxMaxBytes: 67_108_864,
      dataDir: ".flotilla",
      schedules: [],
      files: defaultFileSettings,
      sessions: { logs: 1, privateAgents: false, maxTurns: 1_000 },
    });
    const onPostgres = resolveConfig({ store: "postgres://localhost/app" });
    expect(onPostgres.sessions).toEqual({
      logs: 8,
      privateAgents: false,
      maxTurns: 1_000,
    });
  });

  test("is given back as it was written, so that files can export it", () => {
    const config: Config = { slots: 5, use: [task("a", {}, () => 1)] };
    expect(defineConfig(config)).toBe(config);
    expect(resolveConfig(config)).toMatchObject({ slots: 5, target: 0.8, use: config.use });
  });

  test.each([
    [{ slot: 5 }, "config: unknown option `slot`, did you mean `slots`?"],
    [{ heartbeat: 5 }, "did you mean `heartbeatMs`?"],
    [{ durabilty: "full" }, "did you mean `durability`?"],
    [{ banana: 5 }, "unknown option `banana`; it takes store, use"],
    [{ server: { prot: 1 } }, "config.server: unknown option `prot`, did you mean `port`?"],
    [{ slots: 0 }, "slots must be a whole number from 1 to 100000, not 0"],
    [{ slots: "5" }, `slots must be a whole number from 1 to 100000, not "5"`],
    [{ slots: 1.5 }, "slots must be"],
    [{ target: 1.01 }, "target must be a number from 0.01 to 1, not 1.01"],
    [{ pollMs: 9 }, "pollMs must be"],
    [{ stallBeats: 1 }, "stallBeats must be"],
    [{ pressure: { memory: 1 } }, "pressure.memory must be"],
    [{ pressure: { eventloopMs: 5 } as never }, "did you mean `eventLoopMs`?"],
    [{ pressure: true as never }, "its options must be an object"],
    [{ only: ["a"] }, "only: `use` has no handler for"],
    [{ only: [] }, "only must name at least one task"],
    [{ middleware: [5 as never] }, "middleware[0] must be a function"],
    [{ retentionMs: 59_999 }, "retentionMs must be a whole number from 60000 to"],
    [{ retentionMs: { failed: 59_999 } }, "retentionMs.failed must be"],
    [{ audit: { keptMs: 1 } }, "audit.keptMs must be a whole number from 86400000"],
    [{ audit: { maxEntries: 1 } }, "audit.maxEntries must be a whole number from 1000"],
    [{ audit: { kept: 1 } }, "audit"],
    [{ sessions: { logs: 3 } }, "sessions.logs must be a power of two"],
    [{ sessions: { log: 4 } as never }, "did you mean `logs`"],
    [{ files: { folder: "" } }, "files.folder must be the path"],
    [{ files: { folder: "f", s3: { bucket: "chats" } } }, "a folder and a bucket"],
    [{ files: { s3: { bucket: "Chats" } } }, "s3.bucket must be the name of a bucket"],
    [{ files: { s3: { bucket: "chats", name: 1 } as never } }, "files.s3"],
    [
      { files: { s3: { bucket: "chats", endpoint: "https://key@minio" } } },
      "s3.endpoint must be where the service is",
    ],
    [{ files: { s3: { bucket: "chats", credentials: {} as never } } }, "s3.credentials must be"],
    [{ retentionMs: { complete: 1 } }, "did you mean `completed`?"],
    [{ retentionMs: null as never }, "retentionMs must be"],
    [{ durability: "some" }, `durability must be one of full, relaxed, not "some"`],
    [{ migrate: "never" }, "migrate must be one of auto, check"],
    [{ server: { port: 65_536 } }, "server.port must be"],
    [{ server: { apiKeys: ["short"] } }, "a key must have at least 16 characters"],
    [
      { heartbeatMs: 1_000, deadAfterMs: 1_999 },
      "deadAfterMs (1999) must be at least twice heartbeatMs (1000)",
    ],
    [{ use: [task("a")] }, `use: "a" has no handler; pass what \`.handle(…)\` returned`],
    [{ use: [undefined] }, "has no handler"],
    [{ use: task("a", {}, () => 1) }, "use must be an array of handlers"],
    [{ store: 5 }, "store must be a URL, a path or options for Postgres, not number"],
    [null, "config: its options must be an object, not null"],
    [{ use: [task("a", {}, () => 1), task("a", {}, () => 2)] }, `two handlers for the task "a"`],
    [
      { use: Array.from({ length: 501 }, (_, at) => task(`n${at}`, {}, () => 1)) },
      "at most 500 handlers, not 501",
    ],
  ])("that makes no sense is refused: %j", (config, message) => {
    expect(() => defineConfig(config as Config)).toThrow(refused(message));
  });

  test("refuses an agent with a budget of money where no prices are known", () => {
    const helper = agent("helper", { budget: { cost: 1 } }, () => "hello");
    expect(() => resolveConfig({ use: [helper] })).toThrow("set `prices`");
    const prices = { "gpt-5": { input: 1, output: 10 } };
    expect(resolveConfig({ use: [helper], prices })).toMatchObject({ prices });
  });

  test("refuses a redact that leads nowhere or may be slow, and keeps the others", () => {
    expect(() => defineConfig({ redact: [/(a+)+$/] })).toThrow(refused("repeats without a limit"));
    expect(() => defineConfig({ redact: ["card"] })).toThrow(refused("redact: a path begins with"));
    const redact = ["input.card", /ACME-\d{4}/];
    expect(resolveConfig({ redact })).toMatchObject({ redact });
    expect(resolveConfig({ redact: false })).toMatchObject({ redact: false });
  });

  test("never shows a key that it refuses", () => {
    expect(() => defineConfig({ server: { apiKeys: ["s3cret"] } })).toThrow(
      expect.objectContaining({ message: expect.not.stringContaining("s3cret") }),
    );
  });
});

test.each([
  { heartbeatMs: 1_000, deadAfterMs: 5_000, gapMs: 3_000 },
  { heartbeatMs: 1_000, deadAfterMs: 3_000, gapMs: 2_000 },
  { heartbeatMs: 1_000, deadAfterMs: 2_000, gapMs: 2_000 },
  { heartbeatMs: 20, deadAfterMs: 100, gapMs: 60 },
])(
  "beats of $heartbeatMs ms with more than $gapMs between them are a gap",
  ({ gapMs, ...settings }) => {
    expect(gapOf(settings)).toBe(gapMs);
    // One late beat is no gap, and silence can still be counted up to the limit.
    expect(gapMs).toBeGreaterThanOrEqual(settings.heartbeatMs * 2);
  },
);
