import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { eventLoopTurns, until } from "../../base/contract/movable-clock.ts";
import { createIncomingBodies } from "./incoming-bytes.ts";
import { dial, startTestServer } from "../contract/test-server.ts";

const key = "a-key-of-16-chars-or-more";
const headers = { authorization: `Bearer ${key}` };

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** A request of which only a beginning of the body is sent. */
function beginning(port: number, sentBytes: number) {
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  let isClosed = false;
  socket.on("error", () => {});
  socket.on("close", () => (isClosed = true));
  const head = [
    "POST /v1/tasks HTTP/1.1",
    "Host: localhost",
    `Authorization: Bearer ${key}`,
    "Content-Type: application/json",
    `Content-Length: ${sentBytes + 1}`,
  ];
  socket.write(`${head.join("\r\n")}\r\n\r\n${" ".repeat(sentBytes)}`);
  return {
    socket,
    get isClosed() {
      return isClosed;
    },
  };
}

/** Three connections, and which of them were cut. */
function three(mostBytes: number) {
  const bodies = createIncomingBodies(mostBytes);
  const cut: number[] = [];
  return { cut, all: [0, 1, 2].map((each) => bodies.open(() => cut.push(each))) };
}

describe("what callers are in the middle of sending", () => {
  test("is bounded over all of them, and the one that has been coming the longest is ended", () => {
    const { cut, all } = three(100);
    for (const body of all) body.add(33);
    expect(cut).toEqual([]);
    all[2]!.add(2);
    expect(cut).toEqual([0]);
    all[1]!.end();
    all[2]!.add(60);
    // One alone has a limit of its own.
    all[2]!.add(1_000);
    expect(cut).toEqual([0]);
  });

  test("counts no more once it is there, or was none", () => {
    const { cut, all } = three(100);
    all[0]!.add(6);
    all[0]!.add(-6);
    all[1]!.add(60);
    all[2]!.add(40);
    all[2]!.end();
    all[2]!.add(41);
    expect(cut).toEqual([1]);
  });
});

describe("on a server with bytes for one of them", () => {
  const serve = () => startTestServer({ server: { apiKeys: [key] }, bodyBytes: 300_000 });
  const enqueue = (url: string) =>
    fetch(`${url}/v1/tasks`, {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/json" },
      body: JSON.stringify({ name: "nobody", input: "x".repeat(200_000) }),
    });

  test("a body that comes slowly is cut off in favour of others", async () => {
    await using server = await serve();
    const slow = beginning(server.port, 200_000);
    const answer = await until("room", async () => {
      const { status } = await enqueue(server.url);
      expect(status).toBe(201);
      return slow.isClosed;
    });
    expect(answer).toBe(true);
  });

  test("so does a message of a socket, also one with pings between its parts", async () => {
    await using server = await serve();
    const client = await dial(server.socketUrl, { headers });
    const idle = await dial(server.socketUrl, { headers });
    idle.socket.ping("x".repeat(100));
    for (let n = 0; n < 20; n++) {
      client.socket.send(" ".repeat(10_000), { fin: false });
      client.socket.ping();
    }
    await until("it to be cut", async () => {
      expect((await enqueue(server.url)).status).toBe(201);
      return !client.isOpen;
    });
    expect(idle.isOpen).toBe(true);
    idle.close();
  });
});

test("clients that hang up in the middle of a body leave no errors in the log", async () => {
  const lines: object[] = [];
  const note = (fields: object) => void lines.push(fields);
  const log = { ...silentLogger, warn: note, error: note };
  await using server = await startTestServer({ server: { apiKeys: [key] }, log });
  for (let n = 0; n < 5; n++) {
    const { socket } = beginning(server.port, 100);
    await until("it to be sent", () => socket.bytesWritten > 100);
    // Whatever came before it on the machine has been read by then.
    await fetch(`${server.url}/v1/tasks/none`, { headers });
    socket.destroy();
  }
  await fetch(`${server.url}/v1/tasks/none`, { headers });
  await eventLoopTurns(20);
  expect(lines).toEqual([]);
});
