import { expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import { createClient } from "../index.ts";
import { simulateServer } from "../contract/simulated-server.ts";
import { createChatTransport } from "./index.ts";

test("a transport follows nothing any more once a chat has its answer, or was refused", async () => {
  const clock = movableClock();
  const { WebSocket, fetch } = simulateServer({ clock, random: seededRandom(1) });
  const network = { isOnline: () => true, onChange: () => () => {} };
  const random = seededRandom(2);
  const client = createClient({ url: "http://sim", WebSocket, fetch, clock, random, network });
  const transport = createChatTransport({ client, clock });

  const resumed = transport.reconnectToStream({ chatId: "a" });
  await clock.advance(2_000);
  expect(await resumed).toBeNull();

  const parts = [{ type: "text" as const, text: "x".repeat(10_001) }];
  const refused = transport.sendMessages({
    trigger: "submit-message",
    chatId: "a",
    messageId: undefined,
    messages: [{ id: "m", role: "user", parts }],
    abortSignal: undefined,
  });
  const code = refused.then(String, (error: { code: string }) => error.code);
  await clock.advance(2_000);
  expect(await code).toBe("payload_too_large");

  await clock.advance(20_000);
  expect(client.session("a").get().status).toBe("idle");
  expect([client.connection.get().status, clock.timers]).toEqual(["idle", 0]);
  client.close();
});
