import { createElement } from "react";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { textOf } from "../../protocol/message.ts";
import { flow } from "../../flows/flow.ts";
import { task } from "../../tasks/task.ts";
import { startTestServer } from "../../server/contract/test-server.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { type Client, type ClientOptions, createClient } from "../index.ts";
import {
  useClient,
  useConnection,
  useInbox,
  usePresence,
  useRun,
  useSession,
  useTask,
} from "./index.ts";
import { recordingSockets, probe, usePage, withClient } from "../contract/react-page.ts";

const echo = agent("echo", ({ messages }) => `you said ${textOf(messages.at(-1)!)}`);
let letGo: () => void = () => {};
const held = () => new Promise<void>((resolve) => (letGo = resolve));
const slow = task("slow", {}, async ({ progress }) => {
  progress({ percent: 40 });
  await held();
  return "done";
});
const steps = flow("steps", { version: 1 })
  .to("first", async ({ progress }) => {
    progress({ percent: 40 });
    await held();
    return { sum: 2 };
  })
  .end();

const page = usePage();
const clients: Client[] = [];
let server: Awaited<ReturnType<typeof startTestServer>>;
let sessions = 0;

beforeAll(async () => {
  server = await startTestServer({ use: [echo, slow, steps] });
});
afterEach(() => {
  letGo();
  for (const client of clients.splice(0)) client.close();
});
afterAll(() => server[Symbol.asyncDispose]());

function connected(options: ClientOptions = {}): Client {
  const client = createClient({ url: server.url, user: "ada", ...options });
  clients.push(client);
  return client;
}
async function newSession(client: Client, said?: string): Promise<string> {
  const sessionId = `hooks-${++sessions}`;
  await client.sessions.create({ sessionId, agent: "echo" });
  if (said !== undefined) await server.pod.sessions.open(sessionId, { user: "ada" }).ask(said);
  return sessionId;
}
const texts = (found: { messages: readonly Parameters<typeof textOf>[0][] } | undefined) =>
  found?.messages.map(textOf);

test("usePresence shows who is there and who types, and its user for as long as it is mounted", async () => {
  const sessionId = `hooks-${++sessions}`;
  await server.sessions.create("default", { sessionId, users: ["ada", "bob"] });
  const { Probe, values, latest } = probe(() => usePresence(sessionId));
  const shown = page.render(withClient(connected(), Probe));
  const { presence } = connected({ user: "bob" }).session(sessionId);
  presence.subscribe(() => {});
  const both = [
    { user: "ada", typing: false },
    { user: "bob", typing: false },
  ];
  await until("both", () => JSON.stringify(latest()?.people) === JSON.stringify(both));
  expect(values[0]!.people).toEqual([]);
  expect(presence.get()).toEqual(both);
  presence.typing();
  await until("bob to type", () => latest()!.people[1]?.typing);
  latest()!.typing();
  await until("ada to type", () => presence.get()[0]?.typing);
  shown.unmount();
  await until("ada to go", () => presence.get()[0]?.user === "bob");
});

describe("useSession", () => {
  test("shows a session from its history on, and sends", async () => {
    const client = connected();
    const sessionId = await newSession(client, "one");
    const { Probe, values, latest } = probe(() => useSession(sessionId));
    page.render(withClient(client, Probe));
    await until("the history", () => latest()?.status === "live");
    expect(values[0]).toMatchObject({ sessionId, status: "idle", messages: [] });
    expect(texts(latest())).toEqual(["one", "you said one"]);
    await latest()!.send("two");
    await until("the answer", () => texts(latest())?.at(-1) === "you said two");
    expect(texts(latest())).toHaveLength(4);
  });

  test("follows once however often effects run, and no longer when it is gone", async () => {
    const clock = movableClock();
    const { Socket, opened, count } = recordingSockets();
    const client = connected({ clock, WebSocket: Socket });
    const sessionId = await newSession(client, "one");
    const { Probe, latest } = probe(() => useSession(sessionId));
    const shown = page.render(withClient(client, Probe));
    await until("the history", () => latest()?.status === "live");
    expect([count("join", sessionId), count("leave"), opened.length]).toEqual([1, 0, 1]);

    shown.unmount();
    await until("its end", async () => {
      await clock.advance(1_000);
      return client.session(sessionId).get().status === "idle";
    });
    await until("the end of the connection", async () => {
      await clock.advance(1_000);
      return client.connection.get().status === "idle";
    });
    expect([count("join", sessionId), opened.length]).toEqual([1, 1]);
    await until("no socket", () => opened[0]!.readyState === WebSocket.CLOSED);
  });

  test("goes from one session to another, and never shows one as the other", async () => {
    const { Socket, count } = recordingSockets();
    const client = connected({ WebSocket: Socket });
    const one = await newSession(client, "one");
    const two = await newSession(client, "two");
    const { Probe, values, latest } = probe(function useOne(): ReturnType<typeof useSession> {
      return useSession(current);
    });
    let current = one;
    const shown = page.render(withClient(client, Probe));
    await until("the first", () => latest()?.status === "live");
    current = two;
    shown.render(withClient(client, Probe));
    await until("the other", () => texts(latest())?.[0] === "two");
    current = one;
    shown.render(withClient(client, Probe));
    await until(
      "the first again",
      () => latest()?.sessionId === one && latest()?.status === "live",
    );
    for (const value of values) {
      const first = texts(value)?.[0] ?? "nothing yet";
      expect([value.sessionId === one ? "one" : "two", "nothing yet"]).toContain(first);
    }
    // It was back before it was let go of.
    expect(count("join", one)).toBe(1);
    expect(latest()!.send).not.toBe(values.find(({ sessionId }) => sessionId === two)!.send);
  });

  test("gives the same object, and the same functions, until something has changed", async () => {
    const client = connected();
    const sessionId = await newSession(client, "one");
    const { Probe, values, latest } = probe(() => useSession(sessionId));
    const shown = page.render(withClient(client, Probe));
    await until("the history", () => latest()?.status === "live");
    const before = latest()!;
    const count = values.length;
    shown.render(withClient(client, Probe));
    await until("another rendering", () => values.length > count);
    expect(latest()).toBe(before);
    await before.send("two");
    await until("the answer", () => texts(latest())?.length === 4);
    expect(latest()!.send).toBe(before.send);
    expect(latest()!.messages[0]).toBe(before.messages[0]);
  });

  test("shows a session that isn't there as gone", async () => {
    const client = connected();
    const { Probe, latest } = probe(() => useSession("nowhere"));
    page.render(withClient(client, Probe));
    await until("the refusal", () => latest()?.status === "gone");
    expect(latest()!.error?.code).toBe("not_found");
  });

  test("shows a session that another client makes while it waits", async () => {
    const { Probe, latest } = probe(() => useSession("begun-elsewhere"));
    page.render(withClient(connected(), Probe));
    await until("the refusal", () => latest()?.status === "gone");
    await connected().sessions.create({ sessionId: "begun-elsewhere", agent: "echo" });
    await server.pod.sessions.open("begun-elsewhere", { user: "ada" }).ask("one");
    await until("what was said", () => texts(latest())?.join() === "one,you said one");
    expect(latest()).toMatchObject({ status: "live" });
  });
});

describe("useInbox and useConnection", () => {
  test("show what is unread, and how the connection is doing, over one socket", async () => {
    const { Socket, opened, count } = recordingSockets();
    const client = connected({ WebSocket: Socket, user: "grace" });
    const inbox = probe(() => useInbox());
    const another = probe(() => useInbox({ client }));
    const connection = probe(() => useConnection());
    page.render(withClient(client, connection.Probe));
    await until("no connection", () => connection.latest()?.status === "idle");
    page.render(withClient(client, inbox.Probe));
    page.render(createElement(another.Probe));
    await until("the inbox", () => inbox.latest()?.status === "live");
    const sessionId = `hooks-${++sessions}`;
    await client.sessions.create({ sessionId, agent: "echo" });
    await server.pod.sessions.open(sessionId, { user: "grace" }).ask("hello");
    const found = () => inbox.latest()?.sessions.find((each) => each.sessionId === sessionId);
    await until("the answer in the inbox", () => found()?.preview === "you said hello");
    expect(found()!.unread).toBeGreaterThan(0);
    await until("the same", () => another.latest()?.sessions[0]?.preview === "you said hello");
    expect(connection.latest()).toMatchObject({ status: "open", user: "grace" });
    expect([count("inbox"), opened.length]).toEqual([1, 1]);
  });
});

describe("useTask and useRun", () => {
  test("show progress, then the end", async () => {
    const client = connected();
    const { taskId } = await client.tasks.enqueue("slow");
    const { Probe, values, latest } = probe(() => useTask(taskId));
    page.render(withClient(client, Probe));
    await until("progress", () => (latest()?.value?.progress as never)?.["percent"] === 40);
    expect(values[0]).toEqual({ status: "idle" });
    expect(latest()?.status).toBe("live");
    letGo();
    await until("the end", () => latest()?.status === "ended");
    expect(latest()?.value).toMatchObject({ status: "completed", result: "done" });
  });

  test("do so of a run of a flow", async () => {
    const client = connected();
    const { runId } = await client.runs.start("steps", null);
    const { Probe, latest } = probe(() => useRun(runId));
    page.render(withClient(client, Probe));
    await until("progress", () => (latest()?.value?.progress as never)?.["percent"] === 40);
    letGo();
    await until("the end", () => latest()?.status === "ended");
    expect(latest()?.value).toMatchObject({ status: "completed", output: { sum: 2 } });
  });

  test("read nothing without an id, then what they are given", async () => {
    const asked: string[] = [];
    const client = connected({
      fetch(url, init) {
        asked.push(url);
        return fetch(url, init);
      },
    });
    let taskId: string | undefined;
    const { Probe, latest } = probe(() => useTask(taskId));
    const run = probe(() => useRun(null));
    const shown = page.render(withClient(client, Probe));
    page.render(withClient(client, run.Probe));
    await until("both", () => latest() && run.latest());
    expect([latest(), run.latest()]).toEqual([{ status: "idle" }, { status: "idle" }]);
    expect(asked).toEqual([]);
    ({ taskId } = await client.tasks.enqueue("nobody's", null).catch(() => ({ taskId: "gone" })));
    shown.render(withClient(client, Probe));
    await until("something", () => latest()?.status === "gone" || latest()?.value);
    taskId = undefined;
    shown.render(withClient(client, Probe));
    await until("nothing again", () => latest()?.status === "idle");
    expect(latest()).toEqual({ status: "idle" });
  });

  test("stop polling when they are unmounted", async () => {
    const clock = movableClock();
    let asked = 0;
    const client = connected({
      clock,
      fetch(url, init) {
        asked++;
        return fetch(url, init);
      },
    });
    const { taskId } = await client.tasks.enqueue("slow");
    const { Probe, latest } = probe(() => useTask(taskId));
    const shown = page.render(withClient(client, Probe));
    await until("the task", () => latest()?.value);
    shown.unmount();
    await until("its end", async () => {
      await clock.advance(1_000);
      return client.tasks.watch(taskId).get().status === "idle";
    });
    const before = asked;
    await clock.advance(60_000);
    expect([asked, clock.timers]).toEqual([before, 0]);
  });
});

describe("useClient", () => {
  test("gives the provider's client, and another where that is given", async () => {
    const [one, two] = [connected(), connected()];
    const provided = probe(() => useClient());
    const given = probe(() => useClient(two));
    page.render(withClient(one, provided.Probe));
    page.render(withClient(one, given.Probe));
    await until("both", () => provided.latest() && given.latest());
    expect([provided.latest() === one, given.latest() === two]).toEqual([true, true]);
  });
});
