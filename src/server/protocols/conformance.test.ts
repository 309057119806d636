/**
 * The published suite of the Durable Streams protocol, those of its tests that are about reading. It writes
 * what it reads, which our streams don't take: so a gateway turns its writes into messages of sessions, and
 * the entries that our server answers into what was written. All else of an answer is our server's own.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { type Clock, systemClock } from "../../base/clock.ts";
import type { Entry } from "../../protocol/message.ts";
import { startTestServer, type TestServer } from "../contract/test-server.ts";

/**
 * What is about reading, with how many tests of it are run. The rest is about writes, streams that end or
 * expire, forks, and bytes.
 */
const sections: Readonly<Record<string, number>> = {
  "Read Operations": 3,
  "Long-Poll Operations": 2,
  "HEAD Metadata": 3,
  "Offset Validation and Resumability": 20,
  "Long-Poll Edge Cases": 5,
  "Caching and ETag": 4,
  "Read-Your-Writes Consistency": 3,
  "SSE Mode": 20,
  "Browser Security Headers": 7,
  "Protocol Edge Cases": 5,
  "Chunking and Large Payloads": 1,
  "Immutability Properties": 1,
  "Offset Validation Properties": 1,
  "JSON Mode": 11,
};
/** Those that were not skipped. */
const ran: Record<string, number> = {};
const isOther = [
  /PUT|POST|empty JSON arrays|invalid JSON|charset/,
  // Of writes, and of bytes that aren't text.
  /case-sensitive seq|binary|base64|large payload|Location header/,
  // Our server allows other origins only where its config names them.
  /CORS preflight/,
  // One test of the headers of events wants `no-cache`. Ours are `no-store`, which says more.
  /proper Cache-Control/,
];
const shortPollMs = 300;

// The suite gives events so long, and a busy machine takes longer for them.
const suitePatienceMs = 2_000;
const patienceMs = 90_000;
const { setTimeout: realTimeout } = globalThis;

// With a second more it is the limit of tests.
const config = { baseUrl: "", longPollTimeoutMs: patienceMs };
const open: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  const patient = (run: () => void, ms?: number, ...rest: []) =>
    realTimeout(run, ms === suitePatienceMs ? patienceMs : ms, ...rest);
  vi.stubGlobal("setTimeout", Object.assign(patient, realTimeout));
  // A long-poll of 20 seconds would be waited for.
  const clock: Clock = {
    ...systemClock,
    after: (ms, run) => systemClock.after(ms === 20_000 ? shortPollMs : ms, run),
  };
  const server = await startTestServer({ clock });
  open.push(() => server[Symbol.asyncDispose]());
  const gateway = createServer((request, response) => {
    answer(server, request, response).catch(() => response.destroy());
  });
  // A connection that is closed just when it is used again would fail a test.
  gateway.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve) => gateway.listen(0, "127.0.0.1", resolve));
  open.unshift(() => {
    gateway.closeAllConnections();
    return new Promise((resolve) => gateway.close(resolve));
  });
  config.baseUrl = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
});
afterAll(async () => {
  vi.unstubAllGlobals();
  for (const close of open) await close();
});

describe("sessions as Durable Streams", () => {
  beforeEach(({ task, skip }) => {
    const section = task.suite?.name ?? "";
    const isRead = Object.hasOwn(sections, section);
    if (!isRead || isOther.some((each) => each.test(task.name))) skip();
    ran[section] = (ran[section] ?? 0) + 1;
  });
  runConformanceTests(config);
});

// A suite whose sections have other names, or whose tests do, would be skipped as a whole and pass.
test("the tests of the suite that are about reading were run", () => {
  expect(ran).toEqual(sections);
});

const types = new Map<string, string>();

async function answer(server: TestServer, request: IncomingMessage, response: ServerResponse) {
  const { pathname, search } = new URL(request.url!, "http://gateway");
  const sessionId = pathname.split("/").slice(3).join(".");
  const type = types.get(sessionId) ?? "application/json";
  const isJson = type === "application/json";
  const stream = `${server.url}/v1/streams/sessions/${encodeURIComponent(sessionId)}`;
  if (request.method === "PUT") {
    types.set(sessionId, request.headers["content-type"] ?? "application/octet-stream");
    await server.sessions.create("default", { sessionId });
  }
  if (request.method === "PUT" || request.method === "POST") {
    for (const written of messagesIn(await bytesOf(request), types.get(sessionId)!)) {
      const parts = [{ type: "data-written" as const, data: written as never }];
      await server.sessions.send("default", sessionId, { author: "writer", parts });
    }
    const { headers } = await fetch(stream, { method: "HEAD" });
    const next = headers.get("stream-next-offset")!;
    const status = request.method === "PUT" ? 201 : 204;
    response.writeHead(status, {
      "Stream-Next-Offset": next,
      "Content-Type": types.get(sessionId),
    });
    response.end();
    return;
  }
  const ending = new AbortController();
  response.on("close", () => ending.abort());
  const known = request.headers["if-none-match"];
  const read = await fetch(`${stream}${search}`, {
    method: request.method!,
    headers: known === undefined ? {} : { "If-None-Match": known },
    signal: ending.signal,
  });
  const isEvents = read.headers.get("content-type") === "text/event-stream";
  const headers = Object.fromEntries(
    [...read.headers].filter(([name]) => name !== "content-length" && name !== "transfer-encoding"),
  );
  if (read.ok && !isEvents) headers["content-type"] = type;
  response.writeHead(read.status, headers);
  if (!read.ok || read.status === 204 || !read.body || request.method === "HEAD") {
    response.end(read.ok ? undefined : await read.text());
    return;
  }
  if (!isEvents) {
    response.end(writtenIn((await read.json()) as Entry[], isJson));
    return;
  }
  let text = "";
  for await (const more of read.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (text + more).split("\n\n");
    text = blocks.pop()!;
    for (const block of blocks) response.write(`${blockOf(block, isJson)}\n\n`);
  }
  response.end();
}

function blockOf(block: string, isJson: boolean): string {
  const prefix = "event: data\ndata: ";
  // The suite looks for fields without the space that may follow a colon.
  if (!block.startsWith(prefix)) return block.replace("\ndata: ", "\ndata:");
  const text = String(writtenIn(JSON.parse(block.slice(prefix.length)) as Entry[], isJson));
  return `event: data\n${text
    .split(/\r\n|\r|\n/)
    .map((line) => `data:${line}`)
    .join("\n")}`;
}

function messagesIn(bytes: Buffer, type: string): unknown[] {
  if (bytes.length === 0) return [];
  if (type.startsWith("application/json")) return [JSON.parse(bytes.toString()) as unknown].flat();
  return [bytes.toString("base64")];
}

function writtenIn(entries: readonly Entry[], isJson: boolean): string | Buffer {
  const all = entries.map(({ parts }) => (parts[0] as { data?: unknown }).data);
  if (isJson) return JSON.stringify(all);
  return Buffer.concat(all.map((each) => Buffer.from(String(each), "base64")));
}

async function bytesOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const more of request) chunks.push(more as Buffer);
  return Buffer.concat(chunks);
}
