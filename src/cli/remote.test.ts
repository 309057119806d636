import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, test } from "vitest";
import type { FlotillaError } from "../base/errors.ts";
import { openRemote } from "./remote.ts";

/** A server that answers as it is told. */
async function listening(answer: RequestListener) {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    asked: openRemote(`http://127.0.0.1:${port}`),
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
      "unavailable",
      "unavailable",
    ],
  ])("and %s may have done what isn't a read", async (_, answer, written, read) => {
    await using server = await listening(answer);
    for (const method of ["POST", "PUT", "DELETE"] as const) {
      expect(await codeOf(server.asked.http(method, "/v1/sessions/a"))).toBe(written);
    }
    expect(await codeOf(server.asked.http("GET", "/v1/sessions/a"))).toBe(read);
  });
});
