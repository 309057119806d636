import { Chat as Chat7 } from "@ai-sdk/react";
import { uiMessageChunkSchema as chunkSchema7 } from "ai";
import { Chat as Chat6 } from "ai-sdk-react-3";
import { beforeAll, describe, expect, test } from "vitest";
// The release before, which `ai-sdk-react-3` brings along.
import { uiMessageChunkSchema as chunkSchema6 } from "../../../node_modules/ai-sdk-react-3/node_modules/ai/dist/index.mjs";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import { createClient } from "../index.ts";
import { loadLazyModule } from "../session/view.ts";
import { simulateServer } from "../contract/simulated-server.ts";
import { createChatTransport } from "./index.ts";

beforeAll(() => loadLazyModule());

type Chat = typeof Chat7;

/** A chat whose answer has said two words, then begins again with one. */
async function begunAnew(
  Chat: Chat,
  { chunkSchema, isFollowed }: { chunkSchema: unknown; isFollowed: boolean },
) {
  const clock = movableClock();
  const server = simulateServer({ clock, random: seededRandom(1) });
  const { WebSocket, fetch } = server;
  const network = { isOnline: () => true, onChange: () => () => {} };
  const random = seededRandom(2);
  const client = createClient({ url: "http://sim", WebSocket, fetch, network, clock, random });
  const transport = createChatTransport({ client, clock, random, chunkSchema });
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
}

describe("an answer that is restarted, with the AI SDK 6", () => {
  const Chat = Chat6 as unknown as Chat;
  const chunkSchema = chunkSchema6;

  test("ends the stream like a lost connection, and is shown from the start when resumed", async () => {
    const scene = await begunAnew(Chat, { chunkSchema, isFollowed: false });
    const { clock, server, client, chat, sent, text } = scene;
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
    const scene = await begunAnew(Chat, { chunkSchema, isFollowed: true });
    const { clock, server, client, chat, text } = scene;
    expect([chat.status, text().join("")]).toEqual(["streaming", "2 "]);
    server.endTurn("a");
    await clock.advance(1_000);
    expect([chat.status, text().join(""), chat.messages.length]).toEqual(["ready", "2 ", 2]);
    client.close();
  });
});

describe("an answer that is restarted, with the AI SDK 7", () => {
  test.each([true, false])("goes on in the same stream, followed: %s", async (isFollowed) => {
    const options = { chunkSchema: chunkSchema7, isFollowed };
    const { clock, server, client, chat, sent, text } = await begunAnew(Chat7, options);
    // What it had said stays until the other words are known.
    expect([chat.status, text().join("")]).toEqual(["streaming", "2 3 "]);
    server.endTurn("a");
    await clock.advance(1_000);
    await sent;
    expect([chat.status, text().join(""), chat.messages.length]).toEqual(["ready", "2 ", 2]);
    client.close();
  });
});
