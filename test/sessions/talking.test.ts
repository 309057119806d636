import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { task } from "../../src/tasks/task.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import type { ChatEvent } from "../../src/sessions/events.ts";
import type { Sessions } from "../../src/sessions/sessions.ts";
import {
  entriesOnce,
  postgresWithNats,
  said,
  type SessionFleet,
  startFleet,
  stores,
  textOf,
} from "./fleet.ts";

/** Holds an agent in the middle of its answer until the test lets it go on. */
const gates = new Map<string, PromiseWithResolvers<void>>();
const gate = (name: string) => {
  const made = gates.get(name) ?? Promise.withResolvers<void>();
  gates.set(name, made);
  return made;
};
const lastText = (messages: readonly { parts: readonly { [field: string]: unknown }[] }[]) =>
  String(messages.at(-1)?.parts[0]?.["text"]);

const echo = agent("echo", async function* ({ messages }) {
  yield "you said ";
  yield lastText(messages);
});
const gated = (name: string, during: "queue" | "interrupt" | "merge") =>
  agent(name, { during, debounceMs: 50 }, async function* ({ messages, signal }) {
    const texts = messages
      .filter(({ role }) => role === "user")
      .map(({ parts }) => parts[0]!["text"] as string);
    yield `heard ${texts.join(", ")}`;
    const aborted = new Promise<void>((resolve) =>
      signal.addEventListener("abort", () => resolve(), { once: true }),
    );
    const key = texts.find((text) => text.startsWith("hold"));
    if (key !== undefined && !signal.aborted) await Promise.race([gate(key).promise, aborted]);
    yield "!";
  });
const broken = agent("broken", { retries: 1 }, () => {
  throw new Error("no model today");
});
const notes: string[] = [];
/** Set once the pods are there. */
let sessions: Sessions | undefined;
const note = task("note", {}, async ({ input, taskId }) => {
  const { text, sessionId } = input as { text: string; sessionId: string };
  notes.push(text);
  // Its own id makes this safe to run again.
  const said = { role: "assistant", author: "clerk", id: taskId } as const;
  await sessions!.open(sessionId).send(`noted ${text}`, said);
  return null;
});
const clerk = agent("clerk", async function* ({ messages, sessionId, enqueue, attempt }) {
  const input = { text: lastText(messages), sessionId };
  const { taskId } = await enqueue("note", input);
  const again = await enqueue("note", input);
  yield `${taskId === again.taskId} ${attempt}`;
});

describe.each([...stores, postgresWithNats])("sessions on $name", (store) => {
  let fleet: SessionFleet;
  beforeAll(async () => {
    fleet = await startFleet(store, [
      echo,
      broken,
      clerk,
      note,
      gated("patient", "queue"),
      gated("hasty", "interrupt"),
      gated("merging", "merge"),
    ]);
  });
  afterAll(() => fleet[Symbol.asyncDispose]());

  test("are created, talked to and read through any pod, and from outside", async () => {
    for (const [at, way] of fleet.ways.entries()) {
      const chat = await way.create("echo", { user: "ada", metadata: { at } });
      const answer = await chat.ask("hello");
      expect([textOf(answer), answer.outcome, answer.seq]).toEqual([
        "you said hello",
        "completed",
        2,
      ]);
      for (const other of fleet.ways) {
        const { entries, lastSeq } = await other.open(chat.sessionId).entries();
        expect([said(entries), lastSeq]).toEqual([["ada: hello", "echo: you said hello"], 2]);
        expect(await other.open(chat.sessionId).view()).toMatchObject({
          users: ["ada"],
          agents: ["echo"],
          state: { state: "idle" },
          metadata: { at },
        });
      }
    }
  });

  test("S3: what is sent again with its id has the same seq, through whomever", async () => {
    const chat = await fleet.web.sessions.create(null, { user: "ada" });
    const first = await chat.send("once", { id: "m1" });
    for (const way of fleet.ways) {
      const again = await way.open(chat.sessionId).send("once", { id: "m1" });
      expect(again).toEqual({ ...first, duplicate: true });
    }
    expect((await chat.entries()).lastSeq).toBe(1);
  });

  test("created again with the same id are the same, and another's with that id a conflict", async () => {
    const chat = await fleet.able.sessions.create("echo", {
      sessionId: `own-${store.name}`,
      user: "ada",
    });
    await chat.send("here");
    const again = await fleet.web.sessions.create("echo", {
      sessionId: `own-${store.name}`,
      user: "ada",
    });
    expect((await again.view()).sessionId).toBe(chat.sessionId);
    await expect(
      fleet.web.sessions.create("clerk", { sessionId: `own-${store.name}` }),
    ).rejects.toMatchObject({ code: "conflict" });
  });

  test("S5: followed from any place on any pod, nothing is missed and nothing comes twice", async () => {
    const chat = await fleet.other.sessions.create(null, { user: "ada" });
    for (let at = 1; at <= 20; at++) await chat.send(`m${at}`);
    const readers = fleet.ways.flatMap((way) =>
      [0, 7, 20].map(async (after) => {
        const seqs: number[] = [];
        for await (const event of way.open(chat.sessionId).events({ after })) {
          if (event.type === "entry") seqs.push(event.entry.seq);
          if (seqs.at(-1) === 40) break;
        }
        expect(seqs).toEqual(Array.from({ length: 40 - after }, (_, at) => after + 1 + at));
      }),
    );
    for (let at = 21; at <= 40; at++) await chat.send(`m${at}`);
    await Promise.all(readers);
  });

  test("a client that joins in the middle of an answer gets what it has so far, then the rest", async () => {
    const chat = await fleet.able.sessions.create("patient", { user: "ada" });
    const key = `hold ${chat.sessionId}`;
    await chat.send(key);
    const heard = async (events: AsyncIterable<ChatEvent>) => {
      let text = "";
      for await (const event of events) {
        if (event.type === "chunk" && event.chunk.type === "text-delta") {
          text += String(event.chunk["delta"]);
          if (text === `heard ${key}`) arrived.push(text);
        }
        if (event.type === "entry" && event.entry.role === "assistant") return text;
      }
      return text;
    };
    const arrived: string[] = [];
    const first = heard(chat.events());
    await expect.poll(() => arrived.length).toBe(1);
    const late = fleet.ways.map((way) => heard(way.open(chat.sessionId).events({ after: 1 })));
    await expect.poll(() => arrived.length).toBe(4);
    gate(key).resolve();
    expect(await Promise.all([first, ...late])).toEqual(Array(4).fill(`heard ${key}!`));
  });

  test("`queue`: what comes during an answer is answered together afterwards", async () => {
    const chat = await fleet.web.sessions.create("patient", { user: "ada" });
    const key = `hold ${chat.sessionId}`;
    await chat.send(key);
    await chat.send("two");
    await chat.send("three");
    gate(key).resolve();
    const entries = await entriesOnce(chat, (all) => all.length === 5);
    expect(said(entries)).toEqual([
      `ada: ${key}`,
      "ada: two",
      "ada: three",
      `patient: heard ${key}!`,
      `patient: heard ${key}, two, three!`,
    ]);
  });

  test("each question gets its own answer, whatever else is being answered meanwhile", async () => {
    const chat = await fleet.web.sessions.create("patient", { user: "ada" });
    const key = `hold ${chat.sessionId}`;
    const first = chat.ask(key);
    await entriesOnce(chat, (all) => all.length === 1);
    const second = chat.ask("two");
    await entriesOnce(chat, (all) => all.length === 2);
    await chat.send("a note", { role: "assistant", author: "patient" });
    gate(key).resolve();
    const answers = await Promise.all([first, second]);
    expect(answers.map(textOf)).toEqual([`heard ${key}!`, `heard ${key}, two!`]);
    expect(answers.map(({ upToSeq }) => upToSeq)).toEqual([1, 4]);
    const silent = await fleet.web.sessions.create(null, { user: "ada" });
    await expect(silent.ask("anybody?")).rejects.toMatchObject({ code: "invalid_input" });
  });

  test("no client can send what would pass for an answer", async () => {
    const chat = await fleet.web.sessions.create("echo", { users: ["ada", "bob"] });
    const { messageId } = await chat.ask("hello", { author: "ada" });
    const forged = chat.send("never mind", { author: "bob", id: messageId });
    await expect(forged).rejects.toMatchObject({ code: "invalid_input" });
    expect((await chat.messages()).map(({ id }) => id).at(-1)).toBe(messageId);
    await chat.regenerate({ messageId });
  });

  test("an option with a slip in its name is refused, not ignored", async () => {
    const { sessions: all } = fleet.web;
    const chat = await all.create(null, { user: "ada" });
    const refused = { code: "invalid_option" };
    await expect(all.create(null, { usr: "ada" } as object)).rejects.toMatchObject(refused);
    await expect(chat.send("x", { autor: "bob" } as object)).rejects.toMatchObject(refused);
    expect(() => all.open(chat.sessionId, { usr: "ada" } as object)).toThrow(/did you mean/);
  });

  test("`interrupt`: what comes during an answer ends it, and it stores nothing", async () => {
    const chat = await fleet.other.sessions.create("hasty", { user: "ada" });
    const key = `hold ${chat.sessionId}`;
    await chat.send(key);
    gate(key);
    await chat.send("two");
    // The first answer is let go only once the second is under way.
    await expect.poll(async () => (await chat.view()).state).toMatchObject({ epoch: 2 });
    gate(key).resolve();
    const entries = await entriesOnce(chat, (all) => all.length === 3);
    expect(said(entries)).toEqual([`ada: ${key}`, "ada: two", `hasty: heard ${key}, two!`]);
    expect(entries[2]!.epoch).toBe(2);
  });

  test("`merge`: messages in quick succession are answered once", async () => {
    const chat = await fleet.able.sessions.create("merging", { user: "ada" });
    await Promise.all([chat.send("one"), chat.send("two"), chat.send("three")]);
    const entries = await entriesOnce(chat, (all) => all.some(({ role }) => role === "assistant"));
    expect(entries).toHaveLength(4);
    expect(textOf(entries[3]!)).toBe("heard one, two, three!");
  });

  test("a stop from anywhere keeps what was streamed, and what waits is answered", async () => {
    const chat = await fleet.able.sessions.create("patient", { user: "ada" });
    const key = `hold ${chat.sessionId}`;
    await chat.send(key);
    for await (const event of chat.events()) if (event.type === "chunk") break;
    const there = fleet.web.sessions.open(chat.sessionId);
    const asked = await Promise.all([there.stop({ author: "bea" }), there.stop({ author: "bea" })]);
    expect(asked).toContain(true);
    const [, stop, stopped, ...rest] = await entriesOnce(chat, (all) => all.length >= 3);
    expect(stop).toMatchObject({ kind: "stop", author: "bea", stop: { by: "user" } });
    expect(stop!.stop!.messageId).toBe(stopped!.messageId);
    expect(rest).toEqual([]);
    expect([stopped!.outcome, textOf(stopped!).startsWith(`heard ${key}`)]).toEqual([
      "stopped",
      true,
    ]);
    await expect.poll(() => chat.stop()).toBe(false);
  });

  test("a regenerated answer replaces the first, whose entry stays", async () => {
    const chat = await fleet.web.sessions.create("echo", { user: "ada" });
    const first = await chat.ask("hello");
    await chat.regenerate();
    const entries = await entriesOnce(chat, (all) => all.length === 3);
    expect(entries[2]).toMatchObject({
      replaces: 2,
      messageId: first.messageId,
      outcome: "completed",
    });
    expect(await chat.messages()).toMatchObject([{ role: "user" }, { id: first.messageId }]);
  });

  test("W2: an agent that fails, or isn't there, leaves a visible failure and an idle session", async () => {
    const chat = await fleet.web.sessions.create("broken", { user: "ada" });
    const failed = await chat.ask("hello");
    expect(failed).toMatchObject({
      outcome: "failed",
      parts: [],
      error: { code: expect.any(String) },
    });
    expect((await chat.view()).state).toEqual({ state: "idle" });
    await expect(fleet.able.sessions.create("nobody", { user: "ada" })).rejects.toMatchObject({
      code: "not_found",
    });
  });

  test("several users and agents take part, each entry with its author", async () => {
    const chat = await fleet.able.sessions.create(["echo", "patient"], { users: ["ada", "bob"] });
    await chat.ask("one", { author: "ada" });
    await chat.ask("two", { author: "bob", to: "patient" });
    const { entries } = await chat.entries();
    expect(said(entries)).toEqual([
      "ada: one",
      "echo: you said one",
      "bob: two",
      "patient: heard one, two!",
    ]);
    await expect(chat.send("x", { to: "clerk" })).rejects.toMatchObject({ code: "invalid_input" });
  });

  test("a turn enqueues a task once, and the task writes its result into the session", async () => {
    sessions = fleet.able.sessions;
    const chat = await fleet.web.sessions.create("clerk", { user: "ada" });
    const text = `note of ${chat.sessionId}`;
    await chat.send(text);
    const entries = await entriesOnce(chat, (all) => all.length === 3);
    expect(said(entries).toSorted()).toEqual(
      [`ada: ${text}`, "clerk: true 1", `clerk: noted ${text}`].toSorted(),
    );
    // What an agent's colleague says starts no turn.
    expect((await chat.view()).state).toEqual({ state: "idle" });
    await expect.poll(() => notes.filter((each) => each === text).length).toBe(1);
  });

  test("archived, they take nothing more until they are taken back; deleted, they are gone", async () => {
    const chat = await fleet.web.sessions.create("echo", { user: "ada" });
    await chat.ask("hello");
    await chat.archive();
    await expect(chat.send("more")).rejects.toMatchObject({ code: "conflict" });
    expect((await chat.entries()).lastSeq).toBe(2);
    await chat.unarchive();
    expect((await chat.ask("more")).seq).toBe(4);
    await chat.remove();
    for (const way of fleet.ways) {
      const gone = way.open(chat.sessionId);
      await expect(gone.entries()).rejects.toMatchObject({ code: "not_found" });
      await expect(gone.send("x")).rejects.toMatchObject({ code: "not_found" });
      await expect(gone.events().next()).rejects.toMatchObject({ code: "not_found" });
    }
  });

  test("metadata is replaced only in the version that was seen", async () => {
    const chat = await fleet.web.sessions.create(null, { metadata: { title: "a" } });
    const { metadataVersion } = await chat.view();
    const next = await chat.setMetadata({ title: "b" }, { ifVersion: metadataVersion });
    expect(next.metadataVersion).toBe(metadataVersion + 1);
    await expect(
      chat.setMetadata({ title: "c" }, { ifVersion: metadataVersion }),
    ).rejects.toMatchObject({ code: "conflict" });
    expect((await fleet.able.sessions.open(chat.sessionId).view()).metadata).toEqual({
      title: "b",
    });
  });

  test("S11: another tenant finds nothing", async () => {
    const chat = await fleet.able.sessions.create("echo", { user: "ada", tenant: "one" });
    await chat.ask("secret");
    for (const way of fleet.ways) {
      const strange = way.open(chat.sessionId, { tenant: "two" });
      const asked = [
        strange.view(),
        strange.entries(),
        strange.send("x"),
        strange.stop(),
        strange.regenerate(),
        strange.read(1),
        strange.archive(),
        strange.remove(),
        strange.events().next(),
      ];
      const answers = await Promise.allSettled(asked);
      expect(answers).toEqual(
        asked.map(() =>
          expect.objectContaining({ reason: expect.objectContaining({ code: "not_found" }) }),
        ),
      );
      expect((await way.list({ tenant: "two" })).sessions).toEqual([]);
    }
  });
});
