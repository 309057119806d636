import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, test } from "vitest";
import type { FlotillaError } from "../base/errors.ts";
import { movableClock, until } from "../base/contract/movable-clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { seededRandom } from "../base/random.ts";
import type { SessionView } from "../sessions/service.ts";
import { chatOverHttp, startTerminalChat } from "./chat/chat.ts";
import { createTranscript } from "./chat/transcript.ts";
import { openServer } from "./connect.ts";

/** A server that answers as it is told. */
async function listening(answer: RequestListener) {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    asked: openServer(`http://127.0.0.1:${port}`),
    [Symbol.asyncDispose]: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const codeOf = (call: Promise<unknown>) => call.catch(({ code }: FlotillaError): string => code);

describe("a server that is asked over HTTP", () => {
  test.each<[string, RequestListener, string, string]>([
    ["hangs up", ({ socket }) => socket.destroy(), "unknown_outcome", "unavailable"],
    ["is cut off", (_, answer) => answer.end("{"), "unknown_outcome", "unavailable"],
    [
      "is behind a proxy that lost it",
      (_, answer) => answer.writeHead(502).end("lost"),
      "unknown_outcome",
      "unavailable",
    ],
    [
      "is behind a proxy that lets nothing through",
      (_, answer) => answer.writeHead(403).end("no"),
      "unsupported",
      "unsupported",
    ],
  ])("and %s may have done what isn't a read", async (_, answer, written, read) => {
    await using server = await listening(answer);
    for (const method of ["POST", "PUT", "DELETE"]) {
      expect(await codeOf(server.asked.json(method, "sessions/a"))).toBe(written);
    }
    expect(await codeOf(server.asked.json("GET", "sessions/a"))).toBe(read);
  });

  test("and refuses a message after a try without an answer may have stored it", async () => {
    let sent = 0;
    await using server = await listening(({ method, socket }, answer) => {
      if (method === "GET" || ++sent === 1) return void socket.destroy();
      const error = { code: "not_found", message: "there is no such session" };
      answer.writeHead(404).end(JSON.stringify({ error }));
    });
    const clock = movableClock();
    const random = seededRandom(1);
    const paper = { line() {}, more() {}, end() {} };
    const talk = startTerminalChat({
      service: chatOverHttp(server.asked),
      session: { sessionId: "a", tenant: "default" } as SessionView,
      user: "ada",
      transcript: createTranscript({ output: paper, form: "lines" }),
      clock,
      random,
      ids: uuidv7(clock, random),
    });
    const told = codeOf(talk.send("hello"));
    await until("the second try", async () => {
      await clock.advance(1_000);
      return sent === 2;
    });
    expect(await told).toBe("unknown_outcome");
    talk.leave();
  });
});
