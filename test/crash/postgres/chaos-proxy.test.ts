import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../until.ts";
import { type ChaosProxy, startChaosProxy } from "./chaos-proxy.ts";
import { createStatementCounter } from "./frames.ts";

/** A server that says back what it hears. */
function startEcho() {
  const heard: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("data", (chunk: Buffer) => {
      heard.push(chunk.toString("latin1"));
      socket.write(chunk);
    });
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  return { server, heard, sockets };
}

let echo: ReturnType<typeof startEcho>;
let proxy: ChaosProxy;

beforeEach(async () => {
  echo = startEcho();
  echo.server.listen(0, "127.0.0.1");
  await once(echo.server, "listening");
  const { port } = echo.server.address() as { port: number };
  proxy = await startChaosProxy(`postgres://ada@127.0.0.1:${port}/app`);
});
afterEach(async () => {
  await proxy.close();
  for (const socket of echo.sockets) socket.destroy();
  echo.server.close();
});

async function call() {
  const socket = connect({ host: "127.0.0.1", port: proxy.port });
  await once(socket, "connect");
  const said = { text: "", closed: false };
  socket.on("data", (chunk: Buffer) => (said.text += chunk.toString("latin1")));
  socket.on("error", () => {});
  socket.on("close", () => (said.closed = true));
  return { socket, said };
}

const hears = (said: { text: string }, text: string) =>
  until(`"${text}" is heard`, () => said.text === text);

describe("the chaos proxy", () => {
  test("passes bytes both ways and counts them", async () => {
    const { socket, said } = await call();
    socket.write("hello");
    await hears(said, "hello");
    expect(proxy.counts()).toMatchObject({
      made: 1,
      open: 1,
      bytes: { toServer: 5, toClient: 5 },
    });
    expect(proxy.through("postgres://ada@db:5432/app?schema=jobs")).toBe(
      `postgres://ada@127.0.0.1:${proxy.port}/app?schema=jobs`,
    );
  });

  test("holds bytes back while it stalls one way, and loses none", async () => {
    const { socket, said } = await call();
    proxy.flow({ toClient: "stall" });
    socket.write("hello");
    await until("the server has heard it", () => echo.heard.join("") === "hello");
    expect(said.text).toBe("");
    proxy.flow({ toClient: "pass" });
    await hears(said, "hello");
  });

  test("keeps a half-open connection open unnoticed, and lets new ones work", async () => {
    const old = await call();
    old.socket.write("a");
    await hears(old.said, "a");
    proxy.halfOpen();
    old.socket.write("b");
    const young = await call();
    young.socket.write("c");
    await hears(young.said, "c");
    expect(old.said).toEqual({ text: "a", closed: false });
    old.socket.destroy();
    await until("the proxy has seen it", () => old.said.closed);
    // The server's side is never told that its client is gone.
    expect(echo.sockets.size).toBe(2);
  });

  test("cuts in the middle of what is sent next", async () => {
    const { socket, said } = await call();
    proxy.cut({ midFrame: "toServer" });
    socket.write("abcdef");
    await until("it was cut", () => said.closed);
    expect(echo.heard.join("")).toBe("abc");
  });

  test("loses the answer after the server has run the statement", async () => {
    const { socket, said } = await call();
    const lost = proxy.loseAnswer((sent) => sent.includes("commit"));
    socket.write("begin");
    await hears(said, "begin");
    // An echo ends as a server's answer does if it was asked so.
    socket.write("commit Z\0\0\0\x05I");
    await lost;
    await until("it was cut", () => said.closed);
    expect(echo.heard.join("")).toContain("commit");
    expect(said.text).toBe("begin");
  });

  test("delays what is sent, or what is answered, from a certain text on", async () => {
    for (const way of ["toServer", "toClient"] as const) {
      const { socket, said } = await call();
      const held = proxy.hold(way, (sent) => sent.includes("stop"));
      socket.write("go");
      await hears(said, "go");
      socket.write("stop");
      const letGo = await held;
      const other = await call();
      other.socket.write("other");
      await hears(other.said, "other");
      const heard = echo.heard.join("");
      expect([said.text, heard.includes("stop")]).toEqual(["go", way === "toClient"]);
      letGo();
      await hears(said, "gostop");
      echo.heard.length = 0;
    }
  });

  test("refuses, and accepts again on the same port", async () => {
    const { said } = await call();
    await proxy.refuse();
    await until("it was cut", () => said.closed);
    await expect(call()).rejects.toMatchObject({ code: "ECONNREFUSED" });
    await proxy.accept();
    const again = await call();
    again.socket.write("hello");
    await hears(again.said, "hello");
  });
});

test("statements are counted by their frames, in whatever pieces they come", () => {
  const frame = (letter: string, body: string) => {
    const head = Buffer.alloc(letter === "" ? 4 : 5, letter, "latin1");
    head.writeUInt32BE(body.length + 4, letter.length);
    return Buffer.concat([head, Buffer.from(body, "latin1")]);
  };
  const sent = Buffer.concat([
    frame("", "\x04\xd2\x16\x2f"),
    frame("", "\0\x03\0\0user\0ada\0\0"),
    frame("Q", "begin\0"),
    frame("P", "name\0select 1\0\0\0"),
    frame("B", "\0name\0\0\0\0\0\0\0"),
    frame("E", "\0\0\0\0\0"),
    frame("S", ""),
    frame("Q", "commit\0"),
  ]);
  for (const pieces of [1, 3, 7, sent.length]) {
    const counter = createStatementCounter();
    for (let at = 0; at < sent.length; at += pieces) counter.read(sent.subarray(at, at + pieces));
    expect(counter.statements).toBe(3);
  }
});
