import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { type Client, createClient, type RunView, type TaskView } from "../../src/client/index.ts";
import { durable, later } from "../../src/durable/index.ts";
import { flow } from "../../src/flows/flow.ts";
import { task } from "../../src/tasks/task.ts";
import { startTestServer } from "../../src/server/contract/test-server.ts";
import { agent } from "../../src/sessions/agents/agent.ts";

/** Holds the task until a client has seen that it runs. */
const seenAtWork = Promise.withResolvers<void>();
const slow = task("slow", {}, async ({ progress }) => {
  progress({ done: 1 });
  await seenAtWork.promise;
  return "all of it";
});
const order = flow("order", { version: 1 })
  .to("reserve", () => ({ reserved: true }))
  .signal("approve")
  .end();
/** Asks for a place, and answers when it knows it. */
const guide = agent("guide", async function* ({ messages }) {
  const last = messages.at(-1)!;
  const isTold = last.parts.some((part) => part["state"] === "output-available");
  if (isTold) yield "you are at sea";
  else {
    yield { type: "tool-input-available", toolCallId: "c", toolName: "locate", input: {} } as const;
  }
});

/** Waits for a signal, as tools of durable agents do. */
const clerk = agent("clerk", async function* (context) {
  const isTold = context.messages
    .at(-1)!
    .parts.some((part) => part["state"] === "output-available");
  if (isTold) return yield "it is ordered";
  const wait = async (_input: object, _options: object) => later({ signal: "approve" });
  const { order: tool } = durable(context, { tools: { order: { execute: wait } } }).tools;
  const toolCallId = "c";
  yield { type: "tool-input-available", toolCallId, toolName: "order", input: {} } as const;
  const output = await tool.execute({}, { toolCallId });
  yield { type: "tool-output-available", toolCallId, output } as const;
});

let server: Awaited<ReturnType<typeof startTestServer>>;
const clients: Client[] = [];
beforeAll(async () => {
  server = await startTestServer({ use: [slow, order, guide, clerk] });
});
afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});
afterAll(() => server[Symbol.asyncDispose]());
const open = () => {
  const client = createClient({ url: server.url, user: "ada" });
  clients.push(client);
  return client;
};

describe("a client", () => {
  test("watches a task: its progress, then how it ended", async () => {
    const client = open();
    const { taskId, created } = await client.tasks.enqueue("slow", null);
    expect(created).toBe(true);
    const watched = client.tasks.watch(taskId);
    expect(client.tasks.watch(taskId)).toBe(watched);
    const seen: (TaskView | undefined)[] = [];
    watched.subscribe(() => seen.push(watched.get().value));
    await until("its progress", () => seen.some((each) => each?.progress != null));
    seenAtWork.resolve();
    await until("its end", () => watched.get().status === "ended");
    const { value } = watched.get();
    expect(value).toMatchObject({ taskId, status: "completed", result: "all of it" });
    expect(seen.some((each) => each?.status === "claimed")).toBe(true);
    expect(value?.progress).toEqual({ done: 1 });
    expect((await client.tasks.list({ name: "slow" })).tasks.map((each) => each.taskId)).toEqual([
      taskId,
    ]);
    await expect(client.tasks.cancel(taskId)).rejects.toMatchObject({ code: "conflict" });
  });

  test("watches a run, and shows what it waits for", async () => {
    const client = open();
    const { runId } = await client.runs.start("order", { item: "rope" });
    const watched = client.runs.watch(runId);
    watched.subscribe(() => {});
    const run = (): RunView | undefined => watched.get().value;
    await until("the wait", () => run()?.doing?.type === "waiting_for_signal");
    expect(run()).toMatchObject({
      runId,
      status: "open",
      at: "approve",
      state: { reserved: true },
    });
    await client.runs.signal(runId, "approve", { by: "bob" });
    await until("the end", () => watched.get().status === "ended");
    expect(watched.get().value).toMatchObject({ status: "completed" });
  });

  test("reports that a task doesn't exist, and that a server can't be reached", async () => {
    const client = open();
    const watched = client.tasks.watch("none");
    watched.subscribe(() => {});
    await until("gone", () => watched.get().status === "gone");
    expect(watched.get().error).toMatchObject({ code: "not_found" });
    const nowhere = createClient({ url: "http://127.0.0.1:1" });
    await expect(nowhere.tasks.get("x")).rejects.toMatchObject({ code: "unavailable" });
    expect(() => createClient().session("s").get()).not.toThrow();
    for (const url of [undefined, "localhost:8080", "127.0.0.1:8080", "ws://127.0.0.1:8080"]) {
      const lost = createClient(url === undefined ? {} : { url });
      const refused = {
        code: "invalid_option",
        message: expect.stringMatching(/url must be like/),
      };
      await expect(lost.tasks.get("x")).rejects.toMatchObject(refused);
      await expect(lost.session("s").send("hello")).rejects.toMatchObject(refused);
      lost.close();
    }
  });

  test("sends the result of a call, which is stored once however often it is sent", async () => {
    const client = open();
    const { sessionId } = await client.sessions.create({ agent: "guide", users: ["ada"] });
    const session = client.session(sessionId);
    session.subscribe(() => {});
    await session.send("where am I?");
    const asks = await until("the call", () =>
      session
        .get()
        .messages.find(({ parts }) =>
          parts.some((part) => part["state"] === "input-available" && session.get().lastSeq === 2),
        ),
    );
    const results = [{ toolCallId: "c", output: { at: "sea" } }];
    const first = await session.toolResult(asks.id, results, { id: "r" });
    expect(await session.toolResult(asks.id, results, { id: "r" })).toEqual(first);
    await until(
      "the answer",
      () => session.get().state.state === "idle" && session.get().lastSeq >= 4,
    );
    const text = session
      .get()
      .messages.at(-1)!
      .parts.map((part) => (part["text"] ?? "") as string);
    expect(text.join("")).toContain("you are at sea");
  });

  test("sends a signal to the call that waits for it, once", async () => {
    const client = open();
    const { sessionId } = await client.sessions.create({ agents: ["clerk"], users: ["ada"] });
    const session = client.session(sessionId);
    session.on(() => {});
    const early = session.signal("approve", true);
    await expect(early).rejects.toMatchObject({ code: "conflict" });
    await session.send("two, please");
    const asks = await until("the call", () =>
      session.get().lastSeq === 2 ? session.get().messages.at(-1) : undefined,
    );
    expect(asks.parts[0]).toMatchObject({
      state: "input-available",
      callProviderMetadata: { flotilla: { later: { signal: "approve" } } },
    });
    expect(await session.signal("approve", { by: "ada" }, { id: "click" })).toEqual({ seq: 3 });
    expect(await session.signal("approve", { by: "ada" }, { id: "click" })).toEqual({ seq: 3 });
    const last = await until("the answer", () =>
      session.get().lastSeq === 4 ? session.get().messages.at(-1) : undefined,
    );
    expect(last.parts).toMatchObject([{ output: { by: "ada" } }, { text: "it is ordered" }]);
    await expect(session.signal("approve")).rejects.toMatchObject({ code: "conflict" });
  });

  test("calls every listener, though one of them throws", async () => {
    const reported = vi.spyOn(console, "error").mockImplementation(() => {});
    const client = open();
    await client.sessions.create({ sessionId: "shared", users: ["ada"] });
    const session = client.session("shared");
    const seen: number[] = [];
    session.on(() => {
      throw new Error("a listener's own");
    });
    session.on((event) => event.type === "entry" && seen.push(event.entry.seq));
    await session.send("one");
    await until("the entry", () => seen.length === 1);
    expect(reported).toHaveBeenCalled();
    expect(client.connection.get().status).toBe("open");
    client.close();
    reported.mockRestore();
  });

  test("that is closed rejects what waits, and every later call", async () => {
    const client = createClient({ url: "http://127.0.0.1:1", user: "ada" });
    const sending = client.session("s").send("never");
    const seen: string[] = [];
    client.session("s").on(({ type }) => seen.push(type));
    client.close();
    await expect(sending).rejects.toMatchObject({ code: "closed" });
    await expect(client.session("s").send("later")).rejects.toMatchObject({ code: "closed" });
    expect(seen).toContain("gone");
    expect(client.connection.get()).toEqual({ status: "closed" });
  });
});
