import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { agent } from "../agents/agent.ts";
import {
  createRunnerHarness,
  events,
  type RunnerHarness,
  replyText,
  serve,
  sse,
} from "../contract/turns-harness.ts";

const scenes: RunnerHarness[] = [];
let servers: AsyncDisposableStack;
beforeEach(() => {
  servers = new AsyncDisposableStack();
});
afterEach(async () => {
  for (const scene of scenes.splice(0)) await scene.runner.stop({ waitMs: 0 });
  await servers.disposeAsync();
});

async function saying(...sent: object[]) {
  const server = servers.use(
    await serve((response) => void response.writeHead(200, sse).end(events(...sent))),
  );
  const options = { url: server.url, allowPrivate: true, protocol: "ag-ui", retries: 1 } as const;
  const scene = createRunnerHarness(agent("helper", options));
  scenes.push(scene);
  return { ...scene, server };
}

const started = { type: "RUN_STARTED", threadId: "t", runId: "r", protocolVersion: "1.0" };
const finished = { type: "RUN_FINISHED", threadId: "t", runId: "r" };
const begin = (messageId: string) => ({ type: "TEXT_MESSAGE_START", messageId });
const say = (messageId: string, delta: string) => ({
  type: "TEXT_MESSAGE_CONTENT",
  messageId,
  delta,
});
const end = (messageId: string) => ({ type: "TEXT_MESSAGE_END", messageId });
const call = (toolCallId: string, args: string) => [
  { type: "TOOL_CALL_START", toolCallId, toolCallName: "look" },
  { type: "TOOL_CALL_ARGS", toolCallId, delta: args },
  { type: "TOOL_CALL_END", toolCallId },
];

describe("an agent at a URL that speaks AG-UI", () => {
  test("is asked for a run of its thread, and its text, calls and state are parts", async () => {
    const { answer, server, sessionId } = await saying(
      started,
      begin("a"),
      say("a", "Let me see."),
      end("a"),
      ...call("c", '{"at":"x"}'),
      { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: '{"degrees":21}' },
      { type: "STATE_SNAPSHOT", snapshot: { seen: [] } },
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/seen/-", value: "x" }] },
      { type: "OF_A_LATER_VERSION", anything: 1 },
      { type: "TEXT_MESSAGE_CHUNK", messageId: "b", delta: "It is " },
      { type: "TEXT_MESSAGE_CHUNK", delta: "21." },
      finished,
    );
    expect(await answer()).toMatchObject({
      outcome: "completed",
      parts: [
        { type: "text", text: "Let me see.", state: "done" },
        {
          type: "dynamic-tool",
          toolName: "look",
          state: "output-available",
          input: { at: "x" },
          output: { degrees: 21 },
        },
        { type: "data-agui-state", data: { seen: ["x"] } },
        { type: "text", text: "It is 21.", state: "done" },
      ],
    });
    const [{ body, headers }] = server.requests as [(typeof server.requests)[0]];
    expect(headers["webhook-id"]).toBeDefined();
    expect(JSON.parse(body)).toMatchObject({
      threadId: sessionId,
      runId: expect.stringContaining(sessionId) as string,
      messages: [{ role: "user", content: expect.any(String) as string }],
      tools: [],
      context: [],
    });
  });

  test("asks for an approval by an interrupt, of a call or by itself", async () => {
    const interrupts = [
      { id: "i-1", reason: "tool_call", toolCallId: "c", message: "Buy?" },
      { id: "i-2", reason: "input_required", message: "Which?" },
    ];
    const outcome = { type: "interrupt", interrupts };
    const { answer } = await saying(started, ...call("c", "{}"), { ...finished, outcome });
    expect((await answer()).parts).toMatchObject([
      { toolCallId: "c", state: "approval-requested", approval: { id: "i-1" } },
      { toolName: "interrupt", state: "approval-requested", approval: { id: "i-2" } },
    ]);
  });

  const big = "x".repeat(600_000);
  test.each([
    ["events before its start", [begin("a")], "agent_invalid"],
    ["words of what isn't begun", [started, say("a", "x")], "agent_invalid"],
    ["an end of what isn't begun", [started, end("a")], "agent_invalid"],
    ["one message begun twice", [started, begin("a"), begin("a")], "agent_invalid"],
    ["a second start", [started, started], "agent_invalid"],
    ["anything after its end", [started, finished, begin("a")], "agent_invalid"],
    ["no end", [started, begin("a"), end("a")], "agent_died"],
    ["another version", [{ ...started, protocolVersion: "2.0" }], "agent_invalid"],
    ["fields of another type", [started, { type: "TEXT_MESSAGE_START" }], "agent_invalid"],
    [
      "a result of no call",
      [started, { type: "TOOL_CALL_RESULT", toolCallId: "c", content: "" }],
      "agent_invalid",
    ],
    [
      "a change that doesn't fit",
      [started, { type: "STATE_DELTA", delta: [{ op: "remove", path: "/x" }] }],
      "agent_invalid",
    ],
    [
      "a change of a prototype",
      [started, { type: "STATE_DELTA", delta: [{ op: "add", path: "/__proto__/x", value: 1 }] }],
      "agent_invalid",
    ],
    [
      "too much state",
      [
        started,
        { type: "STATE_SNAPSHOT", snapshot: big },
        { type: "STATE_SNAPSHOT", snapshot: big },
      ],
      "agent_invalid",
    ],
    ["its own error", [started, { type: "RUN_ERROR", message: "no" }], "agent_failed"],
  ])("fails where it sends %s", async (_, sent, code) => {
    const { answer } = await saying(...sent);
    const reply = await answer();
    expect([reply.outcome === "completed", reply.error?.code]).toEqual([false, code]);
    expect(({} as { x?: number }).x).toBeUndefined();
  });

  test("keeps what it said before it went wrong", async () => {
    const { answer } = await saying(started, begin("a"), say("a", "So far"), finished, started);
    const reply = await answer();
    expect([reply.outcome, replyText(reply)]).toEqual(["cut", "So far"]);
  });

  test("is an option that is checked", () => {
    const options = { url: "https://agents.example", protocol: "soap" as "ag-ui" };
    expect(() => agent("helper", options)).toThrow(/protocol must be one of/);
  });
});
