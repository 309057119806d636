import { describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { agent } from "../agents/agent.ts";
import type { CompactionOptions } from "../agents/options.ts";
import type { Command } from "../conversation/command.ts";
import type { Header } from "../conversation/header.ts";
import {
  events,
  createRunnerHarness,
  saying,
  type RunnerHarnessOptions,
  serve,
  sse,
} from "../contract/turns-harness.ts";
import type { CompactorContext } from "../agents/spec.ts";

function sceneWith(compaction?: CompactionOptions, options: RunnerHarnessOptions = {}) {
  const spec = agent(
    "helper",
    { backoff: { baseMs: 1, jitter: 0 }, ...(compaction && { compaction }) },
    () => "unused",
  );
  const scene = createRunnerHarness(spec, options);
  const ended = () =>
    until("it ends", () =>
      scene.told.find(({ type }) => type.startsWith("compaction_")),
    ) as Promise<Command>;
  const begin = (header: Header, toSeq: number) =>
    scene.runner.start({
      ...header,
      epoch: 9,
      work: {
        type: "compaction",
        epoch: 9,
        attempt: 1,
        lost: 0,
        agent: "helper",
        runner: "pod-1",
        toSeq,
        tokens: 0,
      },
    });
  return { ...scene, ended, begin };
}

const said = (count: number) =>
  Array.from({ length: count }, (_, index) => ({ messageId: `m${index + 1}` }));

describe("a compaction", () => {
  test("has what is in its range summed up, behind the last summary", async () => {
    let told: CompactorContext | undefined;
    const fn = (context: CompactorContext) => {
      told = context;
      return "they talked";
    };
    const { store, begin, ended, live, sessionId } = sceneWith({ fn });
    await store(said(4));
    const header = await store(
      [
        { kind: "summary", role: "system", parts: [{ type: "text", text: "before" }] },
        { messageId: "m6" },
        { messageId: "m7" },
        { messageId: "m8" },
      ],
      { summarySeq: 5, compactedSeq: 4 },
    );
    begin(header, 7);
    expect(await ended()).toEqual({
      type: "compaction_finished",
      epoch: 9,
      attempt: 1,
      parts: [{ type: "text", text: "they talked", state: "done" }],
      tokens: 3,
    });
    expect(told).toMatchObject({ sessionId, tenant: "default", epoch: 9, summary: "before" });
    expect(told!.messages.map(({ id }) => id)).toEqual(["m6", "m7"]);
    expect(live).toEqual([]);
  });

  test.each<[string, Record<string, string>, string]>([
    ["text", { "content-type": "text/plain; charset=utf-8" }, "they talked"],
    ["JSON", { "content-type": "application/json" }, '{"summary":"they talked"}'],
    ["JSON text", { "content-type": "application/json" }, '"they talked"'],
    ["chunks", sse, events(...saying("they talked"), { type: "finish" })],
  ])("at a URL may be answered with %s", async (_, headers, body) => {
    await using server = await serve((response) => void response.writeHead(200, headers).end(body));
    const { store, begin, ended, runner } = sceneWith({ url: server.url, allowPrivate: true });
    begin(await store(said(3)), 3);
    expect(await ended()).toMatchObject({
      type: "compaction_finished",
      parts: [{ text: "they talked" }],
    });
    expect(JSON.parse(server.requests[0]!.body)).toMatchObject({
      trigger: "compact",
      messages: [{ id: "m1" }, { id: "m2" }, { id: "m3" }],
      flotilla: { epoch: 9, attempt: 1, seq: 3 },
    });
    await runner.stop({ waitMs: 0 });
  });

  test.each<[string, CompactionOptions | undefined, string]>([
    ["has no compactor", undefined, "agent_missing"],
    ["gets an empty summary", { fn: () => "  " }, "agent_invalid"],
    ["gets nothing but thoughts", { fn: () => [{ type: "start" }] }, "agent_invalid"],
    [
      "has a compactor that throws",
      {
        fn: () => {
          throw new Error("no");
        },
      },
      "agent_failed",
    ],
  ])("that %s has failed, and that is submitted to the owner", async (_, compaction, code) => {
    const { store, begin, ended } = sceneWith(compaction);
    begin(await store(said(1)), 1);
    expect(await ended()).toMatchObject({ type: "compaction_failed", epoch: 9, error: { code } });
  });

  test("that takes too long has failed", async () => {
    const clock = movableClock();
    const fn = () => new Promise<string>(() => {});
    const { store, begin, ended } = sceneWith({ fn, deadlineMs: 60_000 }, { clock });
    begin(await store(said(1)), 1);
    await clock.advance(60_000);
    expect(await ended()).toMatchObject({
      type: "compaction_failed",
      error: { code: "agent_late" },
    });
  });

  test("that is replaced stores nothing", async () => {
    let signal: AbortSignal | undefined;
    const fn = (context: CompactorContext) => {
      signal = context.signal;
      return new Promise<string>(() => {});
    };
    const { store, begin, runner, told } = sceneWith({ fn });
    begin(await store(said(1)), 1);
    await until("it was asked", () => signal);
    runner.abort(runner.running()[0]!, { keep: false });
    await until("it is over", () => runner.running().length === 0);
    expect(signal!.aborted).toBe(true);
    expect(told).toEqual([]);
  });
});
