import { Chat as Chat7 } from "@ai-sdk/react";
import { Chat as Chat6 } from "ai-sdk-react-3";
import { beforeAll, describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import { createClient } from "../index.ts";
import { loadLazyModule } from "../session/view.ts";
import { simulateServer } from "../contract/simulated-server.ts";
import { createChatTransport } from "./index.ts";

beforeAll(() => loadLazyModule());

describe.each([
  ["7", Chat7 as unknown as typeof Chat7],
  ["6", Chat6 as unknown as typeof Chat7],
])("an answer that is restarted, with the AI SDK %s", (_, Chat) => {
  /** A chat whose answer has said two words, then begins again with one. */
  const begunAnew = async ({ isFollowed }: { isFollowed: boolean }) => {
    const clock = movableClock();
    const server = simulateServer({ clock, random: seededRandom(1) });
    const { WebSocket, fetch } = server;
    const network = { isOnline: () => true, onChange: () => () => {} };
    const random = seededRandom(2);
    const client = createClient({ url: "http://sim", WebSocket, fetch, network, clock, random });
    const transport = createChatTransport({ client, clock, random });
    const chat = new Chat({ id: "a", transport });
    if (isFollowed) transport.follow(chat);
    const sent = chat.sendMessage({ text: "go" });
    for (let n = 0; n < 300 && server.log("a").length === 0; n++) await clock.advance(10);
    server.turn("a");
    for (let n = 0; n < 2; n++) server.writeChunk("a");
    await clock.advance(500);
    const text = () => chat.messages.at(-1)!.parts.map((part) => ("text" in part ? part.text : ""));
    expect([chat.status, text().join("")]).toEqual(["streaming", "2 3 "]);
    server.turn("a");
    server.writeChunk("a");
    await clock.advance(500);
    return { clock, server, client, chat, sent, text };
  };

  test("ends the stream like a lost connection, and is shown from the start when resumed", async () => {
    const { clock, server, client, chat, sent, text } = await begunAnew({ isFollowed: false });
    await sent;
    expect(chat.status).toBe("error");
    expect(chat.error!.message).toContain("resume to see it");
    const resumed = chat.resumeStream();
    await clock.advance(500);
    expect([chat.status, text().join("")]).toEqual(["streaming", "2 "]);
    server.endTurn("a");
    await clock.advance(1_000);
    await resumed;
    expect([chat.status, text().join(""), chat.messages.length]).toEqual(["ready", "2 ", 2]);
    client.close();
  });

  test("is resumed by itself where the chat is followed", async () => {
    const { clock, server, client, chat, text } = await begunAnew({ isFollowed: true });
    expect([chat.status, text().join("")]).toEqual(["streaming", "2 "]);
    server.endTurn("a");
    await clock.advance(1_000);
    expect([chat.status, text().join(""), chat.messages.length]).toEqual(["ready", "2 ", 2]);
    client.close();
  });
});
