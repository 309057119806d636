import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import type { Person } from "../../protocol/frames.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { type SocketClient, dial, startTestServer, textMessage } from "../contract/test-server.ts";

const key = "a-key-of-16-chars-or-more";
const viewerKey = "a-key-of-a-viewer-16-chars";
const readerKey = "a-key-of-a-reader-16-chars";
/** What the agent was given. */
const asked: string[] = [];
const listening = agent("listening", async (history) => {
  asked.push(JSON.stringify(history));
  return "I heard it";
});
let server: Awaited<ReturnType<typeof startTestServer>>;
const clients: SocketClient[] = [];

beforeAll(async () => {
  server = await startTestServer({
    use: [listening],
    server: {
      apiKeys: [
        key,
        { key: viewerKey, role: "viewer" },
        { key: readerKey, verbs: ["sessions:read"] },
      ],
    },
  });
});
afterEach(() => {
  for (const client of clients.splice(0)) client.socket.terminate();
});
afterAll(() => server[Symbol.asyncDispose]());

const dialAs = async (user: string | undefined, credential = key) => {
  const headers = {
    Authorization: `Bearer ${credential}`,
    "Flotilla-Tenant": "acme",
    ...(user !== undefined && { "Flotilla-User": user }),
  };
  const client = await dial(server.socketUrl, { headers });
  clients.push(client);
  return client;
};
let sessions = 0;
const newSession = async (users: string[], agents: string[] = []) => {
  const sessionId = `s${++sessions}`;
  await server.sessions.create("acme", { sessionId, users, agents });
  return sessionId;
};
const join = (session: string) => ({ type: "join", session, lastSeq: 0 });
const present = (session: string, typing = false) => ({ type: "presence", session, typing });
const lists = (client: SocketClient, session: string) =>
  client.frames.flatMap((frame) =>
    frame.type === "presence" && frame.session === session ? [frame.people] : [],
  );
const shown = (people: readonly Person[] | undefined) =>
  people?.map(({ user, typing }) => (typing ? `${user}…` : user)).join(" ");
const sees = (client: SocketClient, session: string, expected: string) =>
  until(`${expected} to be seen`, () => shown(lists(client, session).at(-1)) === expected);
const enter = async (user: string, session: string, credential = key) => {
  const client = await dialAs(user, credential);
  await client.request(join(session));
  expect(await client.request(present(session))).toMatchObject({ type: "ack" });
  return client;
};

test("members see who is there and who types, until the socket goes", async () => {
  const id = await newSession(["ada", "bob"]);
  const ada = await enter("ada", id);
  await sees(ada, id, "ada");
  const bob = await enter("bob", id);
  await sees(ada, id, "ada bob");
  await bob.request(present(id, true));
  await sees(ada, id, "ada bob…");
  await bob.request(present(id, false));
  await sees(ada, id, "ada bob");
  await bob.request(present(id, true));
  await sees(ada, id, "ada bob…");
  bob.socket.terminate();
  await sees(ada, id, "ada");
  const again = await enter("bob", id);
  await sees(ada, id, "ada bob");
  expect(await again.request({ type: "presence_leave", session: id })).toMatchObject({
    type: "ack",
  });
  await sees(ada, id, "ada");
  const count = lists(again, id).length;
  await enter("bob", id);
  await sees(ada, id, "ada bob");
  expect(lists(again, id)).toHaveLength(count);
});

test("one who has left the session is there no longer", async () => {
  const id = await newSession(["ada", "bob"]);
  const [ada, bob] = [await enter("ada", id), await enter("bob", id)];
  await sees(ada, id, "ada bob");
  expect(await bob.request({ type: "leave", session: id })).toMatchObject({ type: "left" });
  await sees(ada, id, "ada");
});

test("one who comes and goes while the join is under way isn't there", async () => {
  const id = await newSession(["ada", "bob"]);
  const bob = await dialAs("bob");
  const frames = [
    { ref: 1, ...join(id) },
    { ref: 2, ...present(id) },
    { ref: 3, type: "presence_leave", session: id },
  ];
  bob.send(JSON.stringify(frames));
  await until("all answers", () => bob.frames.filter((each) => "ref" in each).length === 3);
  const ada = await enter("ada", id);
  await until("who is there", () => lists(ada, id).length > 0);
  expect(shown(lists(ada, id)[0])).toBe("ada");
});

test("nothing of it is in the log, and agents are given nothing of it", async () => {
  const id = await newSession(["ada"], ["listening"]);
  const ada = await enter("ada", id);
  await ada.request(present(id, true));
  await ada.request({ type: "send", session: id, message: textMessage("hello") });
  await until("the answer", () => ada.seqs(id).length === 2);
  const { entries, lastSeq } = await server.sessions.entries("acme", id, {});
  expect(lastSeq).toBe(2);
  expect(JSON.stringify([entries, asked])).not.toMatch(/typing|presence/);
  await sees(ada, id, "ada…");
});

test("code sees the same, and isn't seen", async () => {
  const id = await newSession(["ada"]);
  const chat = server.pod.sessions.open(id, { tenant: "acme", user: "bob" });
  const seen: string[] = [];
  const ended = new AbortController();
  const loop = (async () => {
    for await (const people of chat.presence({ signal: ended.signal })) seen.push(shown(people)!);
  })();
  const ada = await enter("ada", id);
  await until("ada to be seen", () => seen.at(-1) === "ada");
  await ada.request(present(id, true));
  await until("ada to type", () => seen.at(-1) === "ada…");
  await sees(ada, id, "ada…");
  ended.abort();
  await loop;
  const nowhere = server.pod.sessions.open("nowhere", { tenant: "acme" }).presence();
  await expect(nowhere.next()).rejects.toMatchObject({ code: "not_found" });
  const others = server.pod.sessions.open(id, { tenant: "other" }).presence();
  await expect(others.next()).rejects.toMatchObject({ code: "not_found" });
});

describe("who is no member", () => {
  test("neither sees who is there nor is seen, though they may follow the session", async () => {
    const id = await newSession(["ada"]);
    const ada = await enter("ada", id);
    await sees(ada, id, "ada");
    const [viewer, stranger, keyless] = [
      await dialAs("ada", viewerKey),
      await dialAs("eve"),
      await dialAs(undefined),
    ];
    for (const client of [viewer, stranger, keyless]) await client.request(join(id));
    expect(await viewer.request(present(id))).toMatchObject({ code: "forbidden" });
    expect(await keyless.request(present(id))).toMatchObject({ code: "forbidden" });
    expect(await stranger.request(present(id))).toMatchObject({ type: "error" });
    await ada.request(present(id, true));
    await sees(ada, id, "ada…");
    for (const client of [viewer, stranger, keyless]) {
      expect(client.messages.join()).not.toContain('"people"');
    }
  });

  test("is told no more once removed, and is shown no more", async () => {
    const id = await newSession(["ada", "bob"]);
    const [ada, bob] = [await enter("ada", id), await enter("bob", id)];
    await sees(ada, id, "ada bob");
    await server.sessions.changeMembers("acme", id, { removeUsers: ["bob"] });
    await sees(ada, id, "ada");
    const count = lists(bob, id).length;
    await ada.request(present(id, true));
    await sees(ada, id, "ada…");
    expect(lists(bob, id)).toHaveLength(count);
  });

  test("sees it without writing, but doesn't type", async () => {
    const id = await newSession(["ada"]);
    const reader = await enter("ada", id, readerKey);
    await sees(reader, id, "ada");
    expect(await reader.request(present(id, true))).toMatchObject({ code: "forbidden" });
    expect(shown(lists(reader, id).at(-1))).toBe("ada");
  });
});

describe("bad input", () => {
  test("is refused, and the connection goes on", async () => {
    const id = await newSession(["ada"]);
    const ada = await dialAs("ada");
    expect(await ada.request(present(id))).toMatchObject({ code: "conflict" });
    expect(await ada.request(present("nowhere"))).toMatchObject({ code: "conflict" });
    await ada.request(join(id));
    for (const frame of [
      { type: "presence" },
      { type: "presence", session: 7 },
      { type: "presence", session: "x".repeat(201) },
      { type: "presence", session: id, typing: "yes" },
      { type: "presence", session: id, typing: null },
      { type: "presence_leave" },
    ]) {
      expect(await ada.request(frame)).toMatchObject({ type: "error", code: "invalid_input" });
    }
    const forged = { ...present(id), user: "bob", people: [{ user: "eve" }] };
    expect(await ada.request(forged)).toMatchObject({ type: "ack" });
    await sees(ada, id, "ada");
  });

  test("of a thousand typing frames at once reaches others as a few, and ends the connection", async () => {
    const id = await newSession(["ada", "bob"]);
    const [ada, bob] = [await enter("ada", id), await enter("bob", id)];
    await sees(ada, id, "ada bob");
    const before = lists(ada, id).length;
    for (let at = 0; at < 1_000; at++) bob.send({ ref: at, ...present(id, at % 2 === 0) });
    expect(await bob.closed()).toMatchObject({ code: 4429 });
    await sees(ada, id, "ada");
    expect(lists(ada, id).length - before).toBeLessThan(20);
  });

  test("of many frames while a join is under way is bounded, and each is answered", async () => {
    const id = await newSession(["ada"]);
    const ada = await dialAs("ada");
    const frames = Array.from({ length: 50 }, (_, ref) => ({ ref, ...present(id) }));
    ada.send(JSON.stringify([{ ref: "j", ...join(id) }, ...frames]));
    await until("all answers", () => ada.frames.filter((each) => "ref" in each).length === 51);
    const refusals = ada.frames.filter((each) => each.type === "error");
    expect(refusals.every((each) => each.code === "overloaded")).toBe(true);
    await sees(ada, id, "ada");
  });
});
