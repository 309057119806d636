import { createServer, request as httpRequest } from "node:http";
import { type AddressInfo, connect } from "node:net";
import express from "express";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import { agentRequest, errorIn, headersOf, readAnswer, secret } from "./contract/requests.ts";
import { createAgentHandler } from "./handler.ts";
import { toNode } from "./node.ts";

const body = JSON.stringify(agentRequest());
const open: AsyncDisposable[] = [];
let errors: ReturnType<typeof vi.spyOn>;
beforeEach(() => {
  errors = vi.spyOn(console, "error").mockImplementation(() => {});
});
afterEach(async () => {
  errors.mockRestore();
  for (const each of open.splice(0)) await each[Symbol.asyncDispose]();
});

type Listener = Parameters<typeof createServer>[1];

async function serve(listener: Listener): Promise<{ url: string; port: number }> {
  const server = createServer(listener as never);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  open.push({
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/agent`, port };
}

const post = (url: string, asking: Parameters<typeof headersOf>[0] = { body }) =>
  fetch(url, { method: "POST", headers: headersOf(asking), body: asking.body });

const echo = createAgentHandler({ secret, answer: ({ request }) => new URL(request.url).pathname });
const hello = toNode(echo);

describe("in Express", () => {
  test("an agent answers, also below a router, and before a parser that is for others", async () => {
    const app = express();
    app.use("/api", express.Router().post("/agent", hello));
    app.use(express.json());
    const { url } = await serve(app);
    const response = await post(url.replace("/agent", "/api/agent"));
    expect((await readAnswer(response)).chunks[2]).toMatchObject({ delta: "/api/agent" });
  });

  test("behind a parser that has read the body, the answer names the fix", async () => {
    const app = express().use(express.json()).post("/agent", hello);
    const response = await post((await serve(app)).url);
    expect(response.status).toBe(500);
    expect((await errorIn(response)).message).toContain("mount the agent before express.json()");
    expect(errors).toHaveBeenCalledTimes(1);
  });

  test.each([
    ["express.raw", () => express.raw({ type: () => true })],
    ["express.text", () => express.text({ type: () => true })],
    [
      "express.json with `verify`",
      () =>
        express.json({
          verify(request, _response, bytes) {
            (request as { rawBody?: Buffer }).rawBody = bytes;
          },
        }),
    ],
  ])("behind %s, which keeps the bytes, it answers", async (_, parser) => {
    const app = express().use(parser()).post("/agent", hello);
    const { url } = await serve(app);
    expect((await post(url)).status).toBe(200);
    expect((await post(url, { body, secrets: [] })).status).toBe(401);
  });
});

describe("in plain Node", () => {
  test("other methods are refused, whatever they are", async () => {
    const { url } = await serve((request, response) => void hello(request, response));
    for (const method of ["GET", "DELETE", "PUT"]) {
      expect((await fetch(url, { method })).status).toBe(405);
    }
    const status = await new Promise((resolve, reject) => {
      const trace = httpRequest(url, { method: "TRACE" }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      trace.on("error", reject).end();
    });
    expect(status).toBe(405);
  });

  test("a host that is none doesn't matter", async () => {
    const { port } = await serve((request, response) => void hello(request, response));
    const socket = connect(port, "127.0.0.1");
    const lines = Object.entries(headersOf({ body })).map(([name, value]) => `${name}: ${value}`);
    const length = `content-length: ${Buffer.byteLength(body)}`;
    const head = ["POST //[x HTTP/1.1", "host: a b[", "connection: close", length, ...lines];
    let answer = "";
    socket.on("data", (bytes) => (answer += bytes.toString()));
    socket.write(`${head.join("\r\n")}\r\n\r\n${body}`);
    await new Promise((resolve) => socket.on("close", resolve));
    expect(answer).toContain("[DONE]");
  });

  test("a body that is too large gets its answer, and the connection ends", async () => {
    const small = toNode(createAgentHandler({ secret, maxBytes: 1_000, answer: () => "" }));
    const { url } = await serve((request, response) => void small(request, response));
    const large = await post(url, { body: "x".repeat(200_000) });
    expect([large.status, large.headers.get("connection")]).toEqual([413, "close"]);
    expect(await errorIn(large)).toMatchObject({ code: "payload_too_large" });
    // One that doesn't say how much it is.
    const stream = ReadableStream.from(Array.from({ length: 50 }, () => Buffer.alloc(1_000)));
    const init = { method: "POST", headers: headersOf({ body }), body: stream, duplex: "half" };
    expect((await fetch(url, init as RequestInit)).status).toBe(413);
  });

  test("a connection goes on behind a body that was refused unread", async () => {
    const { url } = await serve((request, response) => void hello(request, response));
    for (let count = 0; count < 3; count++) {
      const large = { body: JSON.stringify("x".repeat(2_000_000)), secrets: [] };
      expect((await post(url, large)).status).toBe(401);
      expect((await post(url)).status).toBe(200);
    }
  });

  test("a request that is cut off calls no agent", async () => {
    let answered = 0;
    let began = 0;
    let ended = 0;
    const counting = toNode(createAgentHandler({ secret, answer: () => `${++answered}` }));
    const { port } = await serve((request, response) => {
      began++;
      void counting(request, response).then(() => ended++);
    });
    const socket = connect(port, "127.0.0.1");
    const lines = Object.entries(headersOf({ body })).map(([name, value]) => `${name}: ${value}`);
    const head = ["POST / HTTP/1.1", "host: x", `content-length: ${body.length * 2}`, ...lines];
    socket.write(`${head.join("\r\n")}\r\n\r\n${body}`);
    await until("the request has begun", () => began === 1);
    socket.destroy();
    await until("it is given up", () => ended === 1);
    expect(answered).toBe(0);
  });

  test("a caller that goes away ends the answer, though it never reads it", async () => {
    let signal: AbortSignal | undefined;
    let made = 0;
    const endless = createAgentHandler({
      secret,
      async *answer(context) {
        signal = context.signal;
        for (; ; made++) yield "x".repeat(10_000);
      },
    });
    let ended = false;
    const { port } = await serve((request, response) => {
      void toNode(endless)(request, response).then(() => (ended = true));
    });
    const socket = connect(port, "127.0.0.1");
    socket.pause();
    const lines = Object.entries(headersOf({ body })).map(([name, value]) => `${name}: ${value}`);
    const length = `content-length: ${Buffer.byteLength(body)}`;
    socket.write(`${["POST / HTTP/1.1", "host: x", length, ...lines].join("\r\n")}\r\n\r\n${body}`);
    let before = -1;
    // It stops once unread data fills the buffers.
    await until("the answer waits for its reader", async () => {
      const same = made > 0 && made === before;
      before = made;
      await new Promise((resolve) => setTimeout(resolve, 50));
      return same;
    });
    expect(signal!.aborted).toBe(false);
    socket.destroy();
    await until("it has ended", () => ended);
    expect(signal!.aborted).toBe(true);
  });
});
