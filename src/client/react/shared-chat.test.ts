import { useChat as useChat7 } from "@ai-sdk/react";
import { useChat as useChat6 } from "ai-sdk-react-3";
import type { UIMessage as ChatMessage } from "ai";
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { textOf, type UIMessage } from "../../protocol/message.ts";
import { startTestServer } from "../../server/contract/test-server.ts";
import { agent } from "../../sessions/agents/agent.ts";
import { createChatTransport, type FlotillaTransport } from "../ai-sdk/index.ts";
import type { ClientOptions, Network } from "../index.ts";
import { useSharedChat } from "./index.ts";
import { recordingSockets, probe, usePage } from "../contract/react-page.ts";

/** Answers that wait for the test's word, by session. */
const held = new Map<string, () => void>();
const slow = agent("slow", async function* ({ sessionId, signal }) {
  yield "one ";
  await new Promise<void>((resolve, reject) => {
    held.set(sessionId, resolve);
    signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
  });
  yield "two";
});

const page = usePage();
const transports: FlotillaTransport[] = [];
let server: Awaited<ReturnType<typeof startTestServer>>;
let chats = 0;

beforeAll(async () => {
  server = await startTestServer({ use: [slow] });
});
afterEach(() => {
  for (const transport of transports.splice(0)) transport.close();
});
afterAll(() => server[Symbol.asyncDispose]());

describe.each([
  ["7", useChat7],
  ["6", useChat6 as unknown as typeof useChat7],
])("useSharedChat with the AI SDK %s", (_, useChat) => {
  /** A tab: a page with a connection of its own. */
  const open = (options: ClientOptions = {}) => {
    const transport = createChatTransport({
      url: server.url,
      user: "ada",
      agent: "slow",
      ...options,
    });
    transports.push(transport);
    return transport;
  };
  const tab = (id: string, transport = open()) => {
    const place = { id };
    const { Probe, latest, values } = probe(() =>
      useSharedChat(useChat({ id: place.id, transport }), transport),
    );
    const shown = page.render(createElement(Probe));
    const said = () => latest()?.messages.map((each) => textOf(each as unknown as UIMessage));
    const go = (to: string) => {
      place.id = to;
      shown.render(createElement(Probe));
    };
    return { ...shown, transport, latest, values, said, go };
  };
  const next = () => `shared-${++chats}`;
  const stored = async (id: string) => (await server.pod.sessions.open(id).messages()).map(textOf);
  const letGo = (id: string) =>
    until("an answer that waits", () => held.get(id)).then((go) => go());
  const talk = async (id: string) => {
    const { latest } = tab(id);
    await until("a chat", () => latest());
    const sent = latest()!.sendMessage({ text: "go" });
    await letGo(id);
    held.delete(id);
    await sent;
    // A stream may end before its answer does, which is then followed by another.
    await until("the stored answer", async () => (await stored(id)).length === 2);
  };

  test("reads what it shows, so that the inbox doesn't call the open chat unread", async () => {
    const id = next();
    const { latest } = tab(id);
    await until("a chat", () => latest());
    void latest()!.sendMessage({ text: "hello" });
    await letGo(id);
    const item = async () => {
      const answer = await fetch(`${server.url}/v1/inbox`, { headers: { "Flotilla-User": "ada" } });
      const { sessions } = (await answer.json()) as {
        sessions: { sessionId: string; lastSeq: number; unread: number }[];
      };
      return sessions.find((each) => each.sessionId === id);
    };
    await until("the answer in the inbox", async () => (await item())?.lastSeq === 2);
    await expect.poll(async () => (await item())?.unread).toBe(0);
  });

  test("shows two tabs the same, whichever of them sends", async () => {
    const id = next();
    const one = tab(id);
    await until("a chat", () => one.latest());
    const sent = one.latest()!.sendMessage({ text: "go" });
    await until("the beginning", () => one.said()?.at(-1) === "one ");
    const two = tab(id);
    await until("the middle of it", () => two.said()?.join() === "go,one ");
    await letGo(id);
    await sent;
    held.delete(id);
    await until("the end", () => two.said()?.join() === "go,one two");
    await until("rest", () => two.latest()?.status === "ready");

    const again = two.latest()!.sendMessage({ text: "more" });
    await until("it there", () => one.said()?.join() === "go,one two,more,one ");
    expect(one.latest()!.status).toBe("streaming");
    await letGo(id);
    await again;
    await until("rest", () => [one, two].every((each) => each.latest()!.status === "ready"));
    expect([one.said(), two.said()]).toEqual([await stored(id), await stored(id)]);
    expect(two.latest()!.connection).toMatchObject({ status: "open", user: "ada" });
  });

  test("shows a chat that another tab begins", async () => {
    const id = next();
    const [one, two] = [tab(id), tab(id)];
    await until("nothing there", () => two.transport.session(id).get().status === "gone");
    const sent = one.latest()!.sendMessage({ text: "go" });
    await until("the beginning of it", () => two.said()?.join() === "go,one ");
    expect(two.latest()!.status).toBe("streaming");
    await letGo(id);
    await sent;
    held.delete(id);
    await until("the end", () => two.said()?.join() === "go,one two");
  });

  test("ends an answer for every tab by stop, which the AI SDK's own doesn't", async () => {
    const id = next();
    const one = tab(id);
    await until("a chat", () => one.latest());
    const sent = one.latest()!.sendMessage({ text: "go" });
    await until("the beginning", () => one.said()?.at(-1) === "one ");
    const two = tab(id);
    await until("the beginning in both", () => two.said()?.at(-1) === "one ");
    await two.latest()!.stop();
    await sent;
    await until("rest", () => [one, two].every((each) => each.latest()!.status === "ready"));
    await until("the same", () => one.said()?.join() === "go,one " && two.said()?.length === 2);
    expect(await stored(id)).toEqual(["go", "one "]);
  });

  test("doesn't wait after a stop where no answer is made", async () => {
    const id = next();
    await talk(id);
    const two = tab(id);
    await until("the history", () => two.said()?.length === 2);
    await two.latest()!.stop();
    expect([two.latest()!.status, two.said()]).toEqual(["ready", ["go", "one two"]]);
  });

  test("stops waiting at once without a connection, and ends the answer when there is one", async () => {
    const id = next();
    const { Socket, opened } = recordingSockets();
    const told = new Set<(change: "online" | "offline") => void>();
    let isOnline = true;
    const network: Network = {
      isOnline: () => isOnline,
      onChange(callback) {
        told.add(callback);
        return () => told.delete(callback);
      },
    };
    const set = (change: "online" | "offline") => {
      isOnline = change === "online";
      if (!isOnline) for (const socket of opened) socket.close();
      for (const each of told) each(change);
    };
    const one = tab(id, open({ WebSocket: Socket, network }));
    await until("a chat", () => one.latest());
    const sent = one.latest()!.sendMessage({ text: "go" });
    await until("the beginning", () => one.said()?.at(-1) === "one ");
    set("offline");
    await until("no connection", () => one.latest()!.connection.status === "offline");
    await one.latest()!.stop();
    await sent;
    await until("rest", () => one.latest()!.status === "ready");
    expect(await stored(id)).toEqual(["go"]);
    set("online");
    await until("the end for all", async () => (await stored(id)).join() === "go,one ");
    await until("the same here", () => one.said()?.join() === "go,one ");
  });

  test("goes from one chat to another", async () => {
    const [one, two] = [next(), next()];
    await talk(one);
    await talk(two);
    await server.pod.sessions.open(two, { user: "ada" }).send("here", { to: "slow" });
    const moving = tab(one);
    await until("the first", () => moving.said()?.length === 2);
    moving.go(two);
    await until("the other", () => moving.said()?.join() === "go,one two,here,one ");
    await letGo(two);
    await until("its end", () => moving.said()?.at(-1) === "one two");
    moving.go(one);
    await until("the first again", () => moving.said()?.join() === "go,one two");
    expect(moving.latest()!.id).toBe(one);
  });

  test("follows once however often effects run, and no longer when it is gone", async () => {
    const id = next();
    await talk(id);
    const clock = movableClock();
    const { Socket, count } = recordingSockets();
    const transport = open({ clock, WebSocket: Socket });
    const { said, unmount } = tab(id, transport);
    await until("the history", async () => {
      await clock.advance(1);
      return said()?.length === 2;
    });
    expect(count("join", id)).toBe(1);
    unmount();
    await until("its end", async () => {
      await clock.advance(1_000);
      return transport.client.connection.get().status === "idle";
    });
    expect([count("join", id), transport.session(id).get().status]).toEqual([1, "idle"]);
  });

  test("connects to nothing while a server renders it", () => {
    const { Socket, opened } = recordingSockets();
    const transport = open({ WebSocket: Socket });
    const messages = [{ id: "m", role: "user", parts: [{ type: "text", text: "hello" }] }];
    function Page() {
      const chat = useSharedChat(
        useChat({ id: "c", transport, messages: messages as ChatMessage[] }),
        transport,
      );
      return createElement("p", null, `${chat.messages.length} ${chat.connection.status}`);
    }
    expect(renderToString(createElement(Page))).toBe("<p>1 idle</p>");
    expect(opened).toEqual([]);
  });
});
