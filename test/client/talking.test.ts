import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { viewOf } from "../../src/protocol/view.ts";
import { startTestServer } from "../../src/server/contract/test-server.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { type Client, createClient, type SessionEvent } from "../../src/client/index.ts";

const echo = agent("echo", ({ messages }) => {
  const last = messages.at(-1)!.parts[0] as { text?: string };
  return `you said: ${last.text}`;
});
/** Speaks until it is stopped. */
const endless = agent("endless", async function* ({ signal }) {
  for (let n = 0; !signal.aborted; n++) {
    yield `${n} `;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
});

let server: Awaited<ReturnType<typeof startTestServer>>;
const clients: Client[] = [];

beforeAll(async () => {
  server = await startTestServer({ use: [echo, endless] });
});
afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});
afterAll(() => server[Symbol.asyncDispose]());

const open = (user = "ada") => {
  const client = createClient({ url: server.url, user });
  clients.push(client);
  return client;
};
const texts = (client: Client, id: string) =>
  client
    .session(id)
    .get()
    .messages.map(({ parts }) => parts.map((part) => part["text"] as string).join(""));

describe("a client on a real server", () => {
  test("follows a session, sends, and sees the answer as it is made and as it is stored", async () => {
    const client = open();
    const { sessionId } = await client.sessions.create({ agent: "echo", users: ["ada"] });
    const session = client.session(sessionId);
    expect(client.session(sessionId)).toBe(session);
    expect(session.get().status).toBe("idle");
    expect(client.connection.get()).toEqual({ status: "idle" });

    const seen: SessionEvent[] = [];
    session.on((event) => seen.push(event));
    const sent = session.send("hi", { id: "m-1" });
    expect(session.get().unsent).toEqual([{ id: "m-1", parts: [{ type: "text", text: "hi" }] }]);
    expect(await sent).toEqual({ seq: 1, messageId: "m-1", duplicate: false });
    await until(
      "the answer",
      () => session.get().lastSeq === 2 && session.get().state.state === "idle",
    );

    const snapshot = session.get();
    expect(snapshot).toMatchObject({ status: "live", unsent: [] });
    expect(texts(client, sessionId)).toEqual(["hi", "you said: hi"]);
    const entries = seen.flatMap((event) => (event.type === "entry" ? [event.entry] : []));
    expect(snapshot.messages).toEqual(viewOf(entries));
    expect(seen.some(({ type }) => type === "chunks")).toBe(true);
    expect(client.connection.get()).toEqual({ status: "open", tenant: "default", user: "ada" });
    expect(await session.send("hi", { id: "m-1" })).toMatchObject({ seq: 1, duplicate: true });
  });

  test("stops an answer, and regenerates it", async () => {
    const client = open();
    const { sessionId } = await client.sessions.create({ agent: "endless", users: ["ada"] });
    const session = client.session(sessionId);
    session.subscribe(() => {});
    await session.send("go on");
    const answer = await until("an answer", () => session.get().answer);
    expect(session.get().messages.at(-1)).toBe(session.get().answer!.message);
    expect(await session.stop()).toBe(true);
    // The stop has an entry too, before that of the answer.
    await until("its end", () => session.get().lastSeq === 3);
    expect(session.get().answer).toBeUndefined();
    expect(session.get().messages.at(-1)).toMatchObject({
      id: answer.messageId,
      metadata: { flotilla: { outcome: "stopped" } },
    });

    await session.regenerate();
    await until("another answer", () => session.get().answer);
    expect(session.get().messages).toHaveLength(2);
    await session.stop();
    await until("the end of that", () => session.get().lastSeq === 5);
    expect(session.get().messages).toHaveLength(2);
  });

  test("follows the inbox", async () => {
    const client = open("ida");
    const inbox = client.inbox();
    inbox.subscribe(() => {});
    await until("the inbox", () => inbox.get().status === "live");
    expect(inbox.get().sessions).toEqual([]);
    const { sessionId } = await client.sessions.create({ users: ["ida", "bob"] });
    await open("bob").session(sessionId).send("hello");
    const item = await until("an item", () =>
      inbox.get().sessions.find(({ unread }) => unread === 1),
    );
    expect(item).toMatchObject({ sessionId, lastSeq: 1, preview: "hello" });
    await client.session(sessionId).read(1);
    await until("nothing unread", () => inbox.get().sessions[0]?.unread === 0);
    await client.sessions.remove(sessionId);
    await until("nothing there", () => inbox.get().sessions.length === 0);
  });

  test("reports that there is no such session, and follows it once it is made", async () => {
    const client = open();
    const session = client.session("made later");
    session.subscribe(() => {});
    await until("gone", () => session.get().status === "gone");
    expect(session.get().error).toMatchObject({ code: "not_found" });
    await expect(session.send("x")).rejects.toMatchObject({ code: "not_found" });
    expect(session.get().unsent[0]?.error).toMatchObject({ code: "not_found" });
    await client.sessions.create({ sessionId: "made later", users: ["ada"] });
    await until("live", () => session.get().status === "live");
  });

  test("shows a session that another client makes later, and its messages", async () => {
    const [ada, bob] = [open("ada"), open("bob")];
    const session = ada.session("made by bob");
    session.subscribe(() => {});
    await until("gone", () => session.get().status === "gone");
    await bob.sessions.create({ sessionId: "made by bob", agent: "echo", users: ["ada", "bob"] });
    await bob.session("made by bob").send("hello");
    await until("the answer", () => session.get().lastSeq === 2);
    expect(texts(ada, "made by bob")).toEqual(["hello", "you said: hello"]);
    expect(session.get().error).toBeUndefined();
  });
});
