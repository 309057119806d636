import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import type { StoredFile } from "../../files/files.ts";
import { agent } from "../agents/agent.ts";
import type { AgentContext } from "../agents/spec.ts";
import { noFiles } from "../contract/no-files.ts";
import { createRunnerHarness, replyText } from "../contract/turns-harness.ts";

const spec = agent("echo", () => "hello");

describe("an answer that begins while the store is away", () => {
  test("waits for it, and doesn't fail", async () => {
    let tries = 0;
    const scene = createRunnerHarness(spec, {
      async agentOf() {
        if (++tries < 3) throw new FlotillaError("store_unavailable", "away");
        return spec;
      },
    });
    const reply = await scene.answer();
    expect([reply.outcome, replyText(reply), tries]).toEqual(["completed", "hello", 3]);
  });

  test("can be stopped meanwhile", async () => {
    let tries = 0;
    const scene = createRunnerHarness(spec, {
      async agentOf() {
        tries++;
        throw new FlotillaError("store_unavailable", "away");
      },
    });
    const { epoch, attempt } = await scene.begin();
    await until("a second look", () => tries > 1 || undefined);
    scene.runner.abort({ sessionId: scene.sessionId, epoch, attempt }, { keep: true });
    expect(await scene.reply()).toMatchObject({ outcome: "stopped", parts: [] });
  });
});

describe("a turn whose step ends while the store is away", () => {
  test("waits for a minute, stores it once, and goes on behind it", async () => {
    const clock = movableClock();
    const calls: string[] = [];
    let awayUntilMs: number | undefined;
    const stepping = agent("helper", async function* ({ step }) {
      yield await step("search", () => {
        awayUntilMs = clock.monotonic() + 60_000;
        calls.push("search");
        return "found. ";
      });
      yield await step("order", () => {
        calls.push("order");
        return "ordered.";
      });
    });
    const scene = createRunnerHarness(stepping, {
      clock,
      owner() {
        if (awayUntilMs !== undefined && clock.monotonic() < awayUntilMs) {
          throw new FlotillaError("store_unavailable", "away");
        }
        return undefined as never;
      },
    });
    await scene.begin();
    await until("the step has ended", async () => {
      await clock.advance(1);
      return awayUntilMs;
    });
    await clock.advance(59_000);
    expect(calls).toEqual(["search"]);
    const reply = scene.reply();
    await until("the turn ends", async () => {
      await clock.advance(500);
      return scene.runner.running().length === 0;
    });
    expect([(await reply).outcome, replyText(await reply)]).toEqual([
      "completed",
      "found. ordered.",
    ]);
    expect(calls).toEqual(["search", "order"]);
  });
});

describe("an agent that reads a stored file while the store is away", () => {
  const hash = "a".repeat(64);
  const part = { type: "file", url: `flotilla-file:${hash}` };
  const label = { hash, size: 6, mediaType: "text/plain" };
  const stored = { ...label, tenant: "default", fileId: "file-1", place: "store" } as StoredFile;
  const text = async (stream: ReadableStream<Uint8Array>) => new Response(stream).text();

  test.each<[string, (context: AgentContext) => Promise<string>]>([
    ["bytes", async ({ files }) => Buffer.from(await files.read(part)).toString()],
    ["a stream", ({ files }) => text(files.stream(part))],
    [
      "messages that have it within them",
      async ({ files }) => {
        const [message] = await files.inline([{ id: "m", role: "user", parts: [part] }]);
        const { url } = message!.parts[0]!;
        return Buffer.from(url.split(",")[1]!, "base64").toString();
      },
    ],
  ])("waits for %s as long as it has time, and isn't taken for idle", async (_, read) => {
    const clock = movableClock();
    const isAway = () => clock.monotonic() < 240_000;
    const away = () => new FlotillaError("store_unavailable", "away");
    let calls = 0;
    let reads = 0;
    const reading = agent("helper", (context) => {
      calls++;
      return read(context);
    });
    const scene = createRunnerHarness(reading, {
      clock,
      files: {
        ...noFiles,
        async find() {
          if (isAway()) throw away();
          return stored;
        },
        async *read() {
          reads++;
          yield Buffer.from("hel");
          yield Buffer.from("lo\n");
        },
      },
    });
    await scene.begin();
    await until("the turn ends", async () => {
      await clock.advance(isAway() ? 5_000 : 500);
      return scene.runner.running().length === 0;
    });
    const reply = await scene.reply();
    expect([reply.outcome, replyText(reply), calls, reads]).toEqual(["completed", "hello\n", 1, 1]);
    expect(clock.monotonic()).toBeGreaterThanOrEqual(240_000);
  });

  test("can be stopped meanwhile", async () => {
    let tries = 0;
    const scene = createRunnerHarness(
      agent("helper", async ({ files }) => Buffer.from(await files.read(part)).toString()),
      {
        files: {
          ...noFiles,
          async find() {
            tries++;
            throw new FlotillaError("store_unavailable", "away");
          },
        },
      },
    );
    const { epoch, attempt } = await scene.begin();
    await until("a second look", () => tries > 1 || undefined);
    scene.runner.abort({ sessionId: scene.sessionId, epoch, attempt }, { keep: true });
    expect(await scene.reply()).toMatchObject({ outcome: "stopped", parts: [] });
  });
});
