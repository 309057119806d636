import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, test } from "vitest";
import type { FlotillaError } from "../base/errors.ts";
import { readFlows } from "../runtime/flows.ts";
import { exitCodeOf } from "./exit-codes.ts";
import { openRemote, remoteOperations } from "./remote.ts";

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

describe("a server that is called over HTTP", () => {
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
    for (const method of ["POST", "PUT", "DELETE"] as const) {
      expect(await codeOf(server.asked.http(method, "/v1/sessions/a"))).toBe(written);
    }
    expect(await codeOf(server.asked.http("GET", "/v1/sessions/a"))).toBe(read);
  });
});

/** Answers with JSON by path, and notes what was asked. */
function answering(answers: (path: string, query: URLSearchParams) => unknown) {
  const asked: string[] = [];
  const listener: RequestListener = ({ url = "" }, answer) => {
    const { pathname, searchParams } = new URL(url, "http://localhost");
    asked.push(pathname);
    answer.end(JSON.stringify(answers(pathname, searchParams)));
  };
  return { asked, listener };
}

const errorOf = (call: Promise<unknown>) =>
  call.then(
    () => expect.fail("it was answered"),
    (error: unknown) => error as FlotillaError,
  );

describe("an answer that isn't Flotilla's", () => {
  test.each<[string, number, string, string, string, number]>([
    ["a page", 404, "<p>no", "unsupported", "the server answered 404, and not as Flotilla does", 2],
    [
      "another error",
      404,
      `{"error":{"code":404,"message":"no"}}`,
      "unsupported",
      "the server answered 404, and not as Flotilla does",
      2,
    ],
    ["an unknown code", 400, `{"error":{"code":"new","message":3}}`, "unavailable", "3", 1],
    [
      "too many",
      429,
      "later",
      "unavailable",
      "the server answered 429, and not as Flotilla does",
      1,
    ],
    [
      "HTML",
      200,
      "<html>",
      "unavailable",
      "the server's answer was cut off, or isn't one of Flotilla's",
      1,
    ],
    ["null", 200, "null", "unavailable", "isn't a Flotilla server: it answered null", 1],
    ["a list", 200, "[1]", "unavailable", "isn't a Flotilla server: it answered [1]", 1],
  ])("is refused: %s", async (_, status, body, code, message, exitCode) => {
    await using server = await listening((__, answer) => answer.writeHead(status).end(body));
    const { client, http } = server.asked;
    for (const call of [client.tasks.list({}), http("GET", "/v1/tasks")]) {
      const error = await errorOf(call);
      expect(error).toMatchObject({ code, message: expect.stringContaining(message) });
      expect(exitCodeOf(error)).toBe(exitCode);
    }
  });

  test("is not read without an end", async () => {
    let sent = 0;
    await using server = await listening((_, answer) => {
      const part = Buffer.alloc(1024 * 1024, " ");
      const more = (): void => {
        while (!answer.destroyed) {
          sent += part.length;
          if (!answer.write(part)) return;
        }
      };
      answer.on("drain", more).on("error", () => {});
      more();
    });
    const error = await errorOf(server.asked.http("GET", "/v1/tasks"));
    expect(error).toMatchObject({ code: "unavailable" });
    expect(error.message).toContain("more than 64 MiB");
    expect(sent).toBeLessThan(128 * 1024 * 1024);
  });

  test("doesn't repeat a page for ever", async () => {
    let asked = 0;
    const { listener } = answering(() => ({ limits: [], next: `page ${asked++ % 3}` }));
    await using server = await listening(listener);
    const { tasks } = remoteOperations(server.asked);
    expect((await errorOf(tasks.limits.list())).message).toContain("repeats a page");
    expect(asked).toBe(4);
  });
});

describe("operations through a server", () => {
  test("count the failed tasks of a group that isn't among the largest", async () => {
    const pages = [7, 0, 5];
    const { listener } = answering((path, query) => {
      if (path !== "/v1/dlq/tasks") return { groups: [], count: 2_000, tasks: 9_999 };
      expect(query.get("group")).toBe("g2-79ef601d010c6cb2");
      const at = Number(query.get("cursor") ?? 0);
      const next = at + 1 < pages.length ? String(at + 1) : null;
      return { tasks: Array.from({ length: pages[at]! }, () => ({})), next };
    });
    await using server = await listening(listener);
    const { deadLetters } = remoteOperations(server.asked);
    expect(await deadLetters.count({ group: "g2-79ef601d010c6cb2" })).toBe(12);
    expect(await deadLetters.count({ all: true })).toBe(9_999);
  });

  test("ask for flows once for each command", async () => {
    const { asked, listener } = answering(() => ({ flows: [], pods: [] }));
    await using server = await listening(listener);
    await readFlows(remoteOperations(server.asked), []);
    expect(asked.filter((path) => path === "/v1/flows")).toHaveLength(1);
  });

  test("say why a task that was waited for is still open", async () => {
    const task = {
      taskId: "t",
      name: "mail",
      status: "pending",
      paused: true,
      noWorker: false,
      failures: 0,
      runAtMs: 0,
      waitsFor: [],
      error: null,
      blockedBy: null,
      throttledBy: null,
    };
    const { listener } = answering(() => ({ task, events: [] }));
    await using server = await listening(listener);
    const { waitFor } = remoteOperations(server.asked);
    const error = await errorOf(waitFor("t", { timeoutMs: 10 }));
    expect(error).toMatchObject({
      code: "timeout",
      message: `task t didn't finish within 10 ms: "mail" is paused`,
      details: { taskId: "t", timeoutMs: 10 },
    });
    server.asked.client.close();
  });
});
