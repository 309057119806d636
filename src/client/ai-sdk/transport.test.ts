import { Chat as Chat7 } from "@ai-sdk/react";
import { Chat as Chat6 } from "ai-sdk-react-3";
import {
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  type UIMessage as ChatMessage,
} from "ai";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import type { Clock } from "../../base/clock.ts";
import { type SessionView, textOf, type UIMessage } from "../../protocol/message.ts";
import { startTestServer } from "../../server/contract/test-server.ts";
import { chatAgents, scriptOf } from "../contract/ai-sdk-agents.ts";
import { type ChatTransportOptions, createChatTransport, type FlotillaTransport } from "./index.ts";
import { createFakeNetwork, type FakeNetwork } from "../contract/ai-sdk-network.ts";

let server: Awaited<ReturnType<typeof startTestServer>>;
const transports: FlotillaTransport[] = [];
let chats = 0;

beforeAll(async () => {
  server = await startTestServer({ use: chatAgents });
});
afterEach(() => {
  for (const transport of transports.splice(0)) transport.close();
});
afterAll(() => server[Symbol.asyncDispose]());

describe.each([
  ["7", Chat7 as unknown as typeof Chat7],
  ["6", Chat6 as unknown as typeof Chat7],
])("useChat of the AI SDK %s on a session", (_, Chat) => {
  type Options = ConstructorParameters<typeof Chat>[0];

  /** A tab: a chat with a connection of its own. */
  const tab = (
    id: string,
    options: Partial<Options> &
      Pick<ChatTransportOptions, "onFork"> & { agent?: string; wifi?: FakeNetwork } = {},
  ) => {
    const { agent: name, wifi, onFork, ...rest } = options;
    const transport = createChatTransport({
      url: server.url,
      user: "ada",
      ...(name && { agent: name }),
      ...(onFork && { onFork }),
      ...(wifi && { network: wifi.network, WebSocket: wifi.Socket }),
    });
    transports.push(transport);
    const chat = new Chat({ id, transport, ...rest });
    return { chat, transport };
  };
  const next = () => `chat-${++chats}`;
  const stored = async (id: string) =>
    (await server.pod.sessions.open(id).messages()).map(({ parts, ...rest }) => ({
      ...rest,
      parts,
    }));
  const isReady = (chat: InstanceType<typeof Chat>) => chat.status === "ready";

  test("sends, streams the answer, and shows what the log has", async () => {
    const id = next();
    const { chat } = tab(id, { agent: "scripted" });
    const sent = chat.sendMessage({ text: "hello" });
    await scriptOf(id).write("one ", "two");
    await until("the words", () => text(chat) === "one two");
    expect(chat.status).toBe("streaming");
    await scriptOf(id).end();
    await sent;
    expect(chat.status).toBe("ready");
    expect(shown(chat)).toEqual(bare(await stored(id)));
    // A second message in the same chat.
    const again = chat.sendMessage({ text: "and?" });
    await scriptOf(id).write("three");
    await scriptOf(id).end();
    await again;
    expect(shown(chat)).toEqual(bare(await stored(id)));
    expect(chat.messages).toHaveLength(4);
  });

  test("shows a photo in the tab that sent it, in another one and after a reload, and its agent has the bytes", async () => {
    const id = next();
    const data = Buffer.from(`a photo of ${id} ${"x".repeat(400_000)}`).toString("base64");
    const one = tab(id, { agent: "seer" });
    const leave = one.transport.follow(one.chat);
    const photo = { type: "file", mediaType: "image/png", filename: "photo.png" } as const;
    const files = [{ ...photo, url: `data:image/png;base64,${data}` }];
    await one.chat.sendMessage({ text: "look", files });
    expect(text(one.chat)).toBe(data);
    const [question] = await stored(id);
    const reference = question!.parts.find(({ type }) => type === "file")!;
    expect(reference).toMatchObject({ ...photo, url: expect.stringMatching(/^flotilla-file:/) });

    const two = tab(id);
    two.transport.follow(two.chat);
    const shownIn = (of: typeof one) =>
      of.chat.messages[0]?.parts.find(({ type }) => type === "file") as { url: string } | undefined;
    for (const each of [one, two]) {
      await until("the photo", () => shownIn(each)?.url.startsWith(server.url) === true);
      const answer = await fetch(shownIn(each)!.url);
      expect(answer.headers.get("content-type")).toBe("image/png");
      expect(Buffer.from(await answer.arrayBuffer()).toString("base64")).toBe(data);
      expect(shownIn(each)).toMatchObject(photo);
    }
    // What is shown doesn't change any more, and what is shown can be sent.
    const before = two.chat.messages[0];
    await two.chat.sendMessage({ text: "again", files: [shownIn(two) as (typeof files)[0]] });
    expect(text(two.chat)).toBe(data);
    expect(two.chat.messages[0]).toBe(before);
    leave();
  });

  test("resumes in the middle from the start, with nothing twice and the same id", async () => {
    const id = next();
    const one = tab(id, { agent: "scripted" });
    const sent = one.chat.sendMessage({ text: "hello" });
    await scriptOf(id).write("one ", "two ");
    await until("the words", () => text(one.chat) === "one two ");
    const two = tab(id);
    const resumed = two.chat.resumeStream();
    await until("what was said so far", () => text(two.chat) === "one two ");
    await scriptOf(id).write("three");
    await until("the rest", () => text(two.chat) === "one two three");
    // Again, in the tab that has half of it.
    await two.chat.stop();
    const once = two.chat.resumeStream();
    await until("all of it, once", () => text(two.chat) === "one two three");
    await scriptOf(id).end();
    await Promise.all([sent, resumed, once]);
    expect(two.chat.messages.at(-1)!.id).toBe(one.chat.messages.at(-1)!.id);
    expect(shown(two.chat)).toEqual(bare(await stored(id)).slice(1));
    await two.chat.resumeStream();
    expect(two.chat.status).toBe("ready");
  });

  test("shows another tab's question and its answer, as they come", async () => {
    const id = next();
    const one = tab(id, { agent: "scripted" });
    const first = one.chat.sendMessage({ text: "hello" });
    await scriptOf(id).write("one");
    await scriptOf(id).end();
    await first;
    const two = tab(id);
    const unfollow = two.transport.follow(two.chat);
    await until("the history", () => two.chat.messages.length === 2);

    const sent = one.chat.sendMessage({ text: "more" });
    await scriptOf(id).write("two ");
    await until("the other's answer", () => text(two.chat) === "two ");
    expect(two.chat.status).toBe("streaming");
    expect(two.chat.messages.map(({ role }) => role).join()).toBe("user,assistant,user,assistant");
    await scriptOf(id).write("three");
    await scriptOf(id).end();
    await sent;
    const all = bare(await stored(id));
    await until("the same", () => isReady(two.chat) && same(shown(two.chat), all));
    expect(shown(one.chat)).toEqual(all);
    unfollow();
  });

  test("begins when the server can be reached, stops trying when it is aborted, and rejects on what won't pass", async () => {
    let status: number | undefined = 0;
    let tries = 0;
    const begin = (id: string, options: { clock?: Clock } = {}) => {
      const transport = createChatTransport({
        url: server.url,
        user: "ada",
        agent: "teller",
        ...options,
        fetch(url, init) {
          tries++;
          if (status === undefined) return fetch(url, init);
          if (status === 0) return Promise.reject(new TypeError("no network"));
          return Promise.resolve(new Response("<html>", { status }));
        },
      });
      transports.push(transport);
      return new Chat({ id, transport });
    };
    const id = next();
    const chat = begin(id);
    const sent = chat.sendMessage({ text: "hello" });
    await until("some tries", () => tries > 3);
    expect(chat.status).toBe("submitted");
    status = undefined;
    await sent;
    expect([chat.status, text(chat)]).toEqual(["ready", "done"]);
    expect(await stored(id)).toHaveLength(2);

    status = 503;
    const clock = movableClock();
    const other = begin(next(), { clock });
    const begun = other.sendMessage({ text: "hello" });
    tries = 0;
    await until("some tries", async () => {
      await clock.advance(10_000);
      return tries > 3;
    });
    await other.stop();
    await begun;
    expect([other.status, clock.timers]).toEqual(["ready", 0]);

    status = 404;
    const lost = begin(next());
    await lost.sendMessage({ text: "hello" });
    expect(lost.error).toMatchObject({ code: "unavailable", details: { status } });
  });

  test("gets the end of an answer that was finished while it was offline", async () => {
    const id = next();
    const wifi = createFakeNetwork();
    const { chat } = tab(id, { agent: "scripted", wifi });
    const sent = chat.sendMessage({ text: "hello" });
    await scriptOf(id).write("one ");
    await until("the beginning", () => text(chat) === "one ");
    wifi.set("offline");
    await scriptOf(id).write("two ", "three");
    await scriptOf(id).end();
    await until("the stored answer", async () => (await stored(id)).length === 2);
    expect([chat.status, text(chat)]).toEqual(["streaming", "one "]);
    wifi.set("online");
    await sent;
    expect(chat.status).toBe("ready");
    expect(shown(chat)).toEqual(bare(await stored(id)));
  });

  test("only stops watching by an abort, and ends the answer for all by stop", async () => {
    const id = next();
    const one = tab(id, { agent: "scripted" });
    const two = tab(id);
    const sent = one.chat.sendMessage({ text: "hello" });
    await scriptOf(id).write("one ");
    await until("the beginning", () => text(one.chat) === "one ");
    two.transport.follow(two.chat);
    await one.chat.stop();
    await sent;
    await scriptOf(id).write("two ");
    await until("the answer goes on", () => text(two.chat) === "one two ");
    expect(text(one.chat)).toBe("one ");
    expect(await one.transport.stop(id)).toBe(true);
    await until("the end", () => isReady(two.chat));
    const [, answer] = await stored(id);
    expect(answer!.metadata).toMatchObject({ flotilla: { outcome: "stopped" } });
    expect(text(two.chat)).toBe("one two ");
  });

  test("doesn't watch again what it stopped watching, and shows it when it is stored", async () => {
    const id = next();
    const { chat, transport } = tab(id, { agent: "scripted" });
    transport.follow(chat);
    const sent = chat.sendMessage({ text: "hello" });
    await scriptOf(id).write("one ");
    await until("the first word", () => text(chat) === "one ");
    await chat.stop();
    await sent;
    const statuses = new Set<string>();
    const leave = transport.session(id).subscribe(() => statuses.add(chat.status));
    const answer = () => transport.session(id).get().answer?.message;
    for (const word of ["two ", "three "]) await scriptOf(id).write(word);
    await until("the words", () => answer() && textOf(answer()!) === "one two three ");
    expect(text(chat)).toBe("one ");
    await scriptOf(id).end();
    await until("the whole", () => text(chat) === "one two three ");
    leave();
    expect([...statuses]).toEqual(["ready"]);
  });

  test("regenerates an answer in its place", async () => {
    const id = next();
    const { chat } = tab(id, { agent: "scripted" });
    const sent = chat.sendMessage({ text: "hello" });
    await scriptOf(id).write("one");
    await scriptOf(id).end();
    await sent;
    const again = chat.regenerate();
    await scriptOf(id).write("another");
    await until("the new words", () => text(chat) === "another");
    await scriptOf(id).end();
    await again;
    expect(shown(chat)).toEqual(bare(await stored(id)));
    expect(chat.messages).toHaveLength(2);
  });

  test.each([
    [true, "paid", "it is paid"],
    [false, undefined, "as you like"],
  ])(
    "requests an approval and goes on with the same message (%s)",
    async (approved, output, said) => {
      const id = next();
      const { chat } = tab(id, {
        agent: "buyer",
        sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      });
      await chat.sendMessage({ text: "buy it" });
      expect(chat.messages.at(-1)!.parts.at(-1)).toMatchObject({ state: "approval-requested" });
      await chat.addToolApprovalResponse({ id: "p1", approved });
      await until("the rest", () => isReady(chat) && text(chat).endsWith(said));
      expect(chat.messages).toHaveLength(2);
      expect(text(chat)).toBe(`may I?${said}`);
      const call = chat.messages.at(-1)!.parts.find(({ type }) => type === "tool-pay");
      expect(call).toMatchObject(output ? { output } : { state: "output-denied" });
      expect(shown(chat)).toEqual(bare(await stored(id)));
    },
  );

  test("runs a tool of the page, and sends its result", async () => {
    const id = next();
    const { chat } = tab(id, {
      agent: "asker",
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        const { toolCallId } = toolCall;
        void chat.addToolOutput({ tool: "zone", toolCallId, output: "Europe/Paris" });
      },
    });
    await chat.sendMessage({ text: "where am I?" });
    await until("the answer", () => isReady(chat) && text(chat) === "you are in Europe/Paris");
    expect(chat.messages).toHaveLength(2);
    expect(shown(chat)).toEqual(bare(await stored(id)));
  });

  test("passes data on, and what isn't to be kept as well", async () => {
    const id = next();
    const data: unknown[] = [];
    const { chat } = tab(id, { agent: "teller", onData: (part) => data.push(part.data) });
    await chat.sendMessage({ text: "go" });
    expect(data).toContainEqual("soon");
    expect(chat.messages.at(-1)!.parts[0]).toMatchObject({ type: "data-step", data: { at: 2 } });
    expect(shown(chat)).toEqual(bare(await stored(id)));
  });

  test("shows the error, keeps what was streamed, and goes on", async () => {
    const id = next();
    const { chat, transport } = tab(id, { agent: "broken" });
    transport.follow(chat);
    await chat.sendMessage({ text: "go" });
    expect(chat.status).toBe("error");
    expect(chat.error!.message).not.toBe("");
    await until("the same", async () => same(shown(chat), bare(await stored(id))));
    expect(text(chat)).toBe("so far ");
    await chat.sendMessage({ text: "again" });
    expect(chat.messages.length).toBeGreaterThanOrEqual(4);
  });

  test("withdraws its request where nothing comes back", async () => {
    const id = next();
    const wifi = createFakeNetwork();
    const { chat } = tab(id, { agent: "teller", wifi });
    await chat.sendMessage({ text: "go" });
    wifi.mute();
    const again = chat.regenerate();
    await until("the question", () => chat.status === "submitted");
    await chat.stop();
    await again;
    expect(chat.status).toBe("ready");
  });

  test("refuses to change stored messages where the page shows no forks", async () => {
    const id = next();
    const { chat } = tab(id, { agent: "teller" });
    await chat.sendMessage({ text: "go" });
    await chat.sendMessage({ text: "no, stop", messageId: chat.messages[0]!.id });
    expect([chat.status, chat.error!.message]).toEqual([
      "error",
      "a stored message can't be changed: set `onFork` of the transport, and editing one forks the session before it",
    ]);
  });

  test("says an edited message anew in a fork, and shows its own session as it was", async () => {
    const id = next();
    const forks: SessionView[] = [];
    const onFork = (fork: SessionView, chatId: string) => {
      expect(chatId).toBe(id);
      forks.push(fork);
    };
    const { chat, transport } = tab(id, { agent: "mirror", onFork });
    await chat.sendMessage({ text: "one" });
    await chat.sendMessage({ text: "two" });
    const leave = transport.follow(chat);
    const before = bare(await stored(id));
    const { id: messageId } = chat.messages[2]!;
    // An edit that changes nothing is no edit.
    await chat.sendMessage({ text: "two", messageId });
    expect(forks).toEqual([]);
    await chat.sendMessage({ text: "three", messageId, metadata: { tone: "calm" } });
    await until("all is as it was", () => isReady(chat) && chat.messages.length === 4);
    expect(shown(chat)).toEqual(before);
    expect(bare(await stored(id))).toEqual(before);
    expect(forks).toMatchObject([{ parent: { sessionId: id, atSeq: 2 }, agents: ["mirror"] }]);

    const fork = tab(forks[0]!.sessionId);
    fork.transport.follow(fork.chat);
    const said = () => fork.chat.messages.map((each) => textOf(each as unknown as UIMessage));
    await until("the answer", () => said().length === 4 && isReady(fork.chat));
    expect(said()).toEqual(["one", "you said one", "three", "you said three"]);
    expect(fork.chat.messages[2]).toMatchObject({ id: messageId, metadata: { tone: "calm" } });
    leave();
  });

  test("edits a message with a photo, which the fork has as well", async () => {
    const id = next();
    const forks: SessionView[] = [];
    const { chat, transport } = tab(id, { agent: "seer", onFork: (fork) => forks.push(fork) });
    const leave = transport.follow(chat);
    const photo = { type: "file", mediaType: "image/png", filename: "photo.png" } as const;
    await chat.sendMessage({
      text: "see",
      files: [{ ...photo, url: "data:image/png;base64,YWJj" }],
    });
    const photoIn = () =>
      chat.messages[0]!.parts.find(({ type }) => type === "file") as typeof photo & { url: string };
    await until("the photo", () => photoIn().url.startsWith(server.url));
    const [message] = chat.messages;
    const files = [photoIn()];
    await chat.sendMessage({ text: "look", files, messageId: message!.id });
    const { sessionId } = forks[0]!;
    await until("the answer", async () => (await stored(sessionId)).length === 2);
    expect((await stored(sessionId)).map(textOf)).toEqual(["look", "YWJj"]);
    leave();
  });

  test("reports that there is no session where none is to be made", async () => {
    const { chat } = tab(next());
    await chat.sendMessage({ text: "go" });
    expect(chat.status).toBe("error");
    expect(chat.error).toMatchObject({
      code: "not_found",
      message: expect.stringContaining("set `agent` of the transport"),
    });
  });

  test("streams the answer in a chat that didn't exist when it was first read", async () => {
    const id = next();
    const { chat, transport } = tab(id);
    transport.follow(chat);
    await until("nobody there", () => transport.session(id).get().status === "gone");
    await tab("another").transport.client.sessions.create({ sessionId: id, agent: "teller" });
    await chat.sendMessage({ text: "go" });
    expect([chat.status, text(chat)]).toEqual(["ready", "done"]);
  });

  test("streams the first answer in a chat that is new and followed", async () => {
    const id = next();
    const { chat, transport } = tab(id, { agent: "scripted" });
    transport.follow(chat);
    await until("nobody there", () => transport.session(id).get().status === "gone");
    const sent = chat.sendMessage({ text: "go" });
    await scriptOf(id).write("one ", "two ");
    await until("the words", () => text(chat) === "one two ");
    await scriptOf(id).write("three");
    await until("the rest", () => text(chat) === "one two three");
    expect(chat.status).toBe("streaming");
    await scriptOf(id).end();
    await sent;
    expect(chat.messages).toHaveLength(2);
  });

  test("follows a chat that is new from its first message on", async () => {
    const id = next();
    const { chat, transport } = tab(id, { agent: "teller" });
    transport.follow(chat);
    await until("nobody there", () => transport.session(id).get().status === "gone");
    await chat.sendMessage({ text: "go" });
    await server.pod.sessions.open(id).ask("and this?");
    const all = await stored(id);
    await until("what was said elsewhere", () => same(shown(chat), bare(all)));
    expect(chat.messages).toHaveLength(4);
  });
});

function text(chat: { messages: ChatMessage[] }): string {
  const last = chat.messages.at(-1) as UIMessage | undefined;
  return last?.role === "assistant" ? textOf(last) : "";
}

function shown(chat: { messages: ChatMessage[] }) {
  return bare(chat.messages as unknown as UIMessage[]);
}

/** Without what is noted of a message beside what was said. */
function bare(messages: readonly UIMessage[]) {
  return JSON.parse(JSON.stringify(messages.map(({ id, role, parts }) => ({ id, role, parts }))));
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
