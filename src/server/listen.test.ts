import { createServer, request } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { Hono } from "hono";
import { describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { until } from "../base/contract/movable-clock.ts";
import { checkListenHost } from "./auth/origins.ts";
import { listen } from "./serve.ts";

const clock = systemClock;

describe("listening", () => {
  test("a free port is taken and named in the URL", async () => {
    const app = new Hono().get("/", (c) => c.text("hello"));
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock });
    expect(server.url).toBe(`http://127.0.0.1:${server.port}`);
    expect(await (await fetch(server.url)).text()).toBe("hello");
    await server.close();
    await expect(fetch(server.url)).rejects.toThrow("fetch failed");
  });

  test("a request that is under way ends before the server does", async () => {
    let finish = () => {};
    let begun = () => {};
    const started = new Promise<void>((resolve) => (begun = resolve));
    const app = new Hono().get("/", async (c) => {
      begun();
      await new Promise<void>((resolve) => (finish = resolve));
      return c.text("done");
    });
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock });
    const answer = fetch(server.url).then((got) => got.text());
    await started;
    const closed = server.close();
    finish();
    expect(await answer).toBe("done");
    await closed;
  });

  test("a connection stays open between requests for longer than balancers use it, and holds up no stop", async () => {
    const app = new Hono().get("/", (c) => c.text("hello"));
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock });
    const socket = connect(server.port, "127.0.0.1");
    const ended = new Promise((resolve) => socket.on("close", resolve));
    const [answer] = (await Promise.all([
      new Promise<Buffer>((resolve) => socket.once("data", resolve)),
      new Promise<void>((resolve) =>
        socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n", () => resolve()),
      ),
    ])) as [Buffer, void];
    const seconds = Number(/^keep-alive: timeout=(\d+)/im.exec(answer.toString())?.[1]);
    expect(seconds).toBeGreaterThan(60);
    await Promise.all([server.close(), ended]);
  });

  test("a connection that never ends is cut, so that a stop can't hang", async () => {
    const app = new Hono().get("/", () => new Promise<Response>(() => {}));
    const due: (() => void)[] = [];
    const after = (_: number, callback: () => void) => (due.push(callback), () => {});
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock: { ...clock, after } });
    const socket = connect(server.port, "127.0.0.1");
    const cut = new Promise((resolve) => socket.on("close", resolve));
    socket.on("error", () => {});
    await new Promise<void>((resolve) =>
      socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n", () => resolve()),
    );
    const closed = server.close();
    due[0]!();
    await Promise.all([closed, cut]);
    expect(due).toHaveLength(1);
  });

  test("a client that asks whether to go on gets whole answers, also behind others", async () => {
    const app = new Hono().get("/", async (c) => {
      await new Promise((resolve) => setImmediate(resolve));
      return c.body(Buffer.from("first"), 200, { "Content-Length": "5" });
    });
    app.post("/", (c) => c.body(Buffer.from("second"), 200, { "Content-Length": "6" }));
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock });
    const asking =
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n";
    const answers = async (requests: string) => {
      const socket = connect(server.port, "127.0.0.1");
      let text = "";
      socket.on("data", (data: Buffer) => (text += data.toString()));
      socket.write(requests);
      await until("both answers", () => text.includes("second"));
      socket.destroy();
      return text.replaceAll(/\r\n(?:Date|Connection|Keep-Alive|content-\w+):[^\r]*/gi, "");
    };
    const answer = (body: string) => `HTTP/1.1 200 OK\r\n\r\n${body}`;
    expect(await answers(asking)).toBe(`HTTP/1.1 100 Continue\r\n\r\n${answer("second")}`);
    expect(await answers(`GET / HTTP/1.1\r\nHost: x\r\n\r\n${asking}`)).toBe(
      `${answer("first")}${answer("second")}`,
    );
    await server.close();
  });

  test("a connection with hundreds of requests ahead of their answers is cut", async () => {
    let begun = 0;
    const app = new Hono().get("/", () => (begun++, new Promise<Response>(() => {})));
    app.get("/quick", (c) => c.text("hello"));
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock });
    const open = (text: string) => {
      const socket = connect(server.port, "127.0.0.1");
      socket.on("error", () => {});
      socket.write(text);
      return socket;
    };
    const request = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    // Those that are answered don't count, however many they are.
    const many = open("");
    let read = "";
    many.on("data", (data: Buffer) => (read += data.toString()));
    for (let asked = 200; asked <= 1_000; asked += 200) {
      many.write(request("/quick").repeat(200));
      await until("all answers", () => read.split("hello").length === asked + 1);
    }
    many.destroy();

    const flood = open(request("/").repeat(1_000));
    await new Promise((resolve) => flood.once("close", resolve));
    expect(begun).toBe(256);
    await server.close();
  });

  test("a port that is taken is named, with what to do", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => other.once("listening", resolve));
    const { port } = other.address() as AddressInfo;
    await expect(listen(new Hono(), { host: "127.0.0.1", port, clock })).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringMatching(new RegExp(`127.0.0.1:${port}: .*--port`)),
    });
    other.close();
  });

  test("a Host header that isn't one is refused and harms no other request", async () => {
    const app = new Hono().get("/", (c) => c.text("hello"));
    const server = await listen(app, { host: "127.0.0.1", port: 0, clock });
    const status = await new Promise((resolve, reject) => {
      const sent = request(server.url, { headers: { Host: "a b/c" } }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      });
      sent.on("error", reject).end();
    });
    expect(status).toBe(400);
    expect((await fetch(server.url)).status).toBe(200);
    await server.close();
  });
});

describe("without credentials", () => {
  test.each(["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"])("%s is allowed", (host) => {
    expect(() => checkListenHost(host, {})).not.toThrow();
  });

  test.each(["0.0.0.0", "::", "", "10.0.0.1", "example.com", "127.0.0.1.example.com"])(
    "%j is refused, with what to do",
    (host) => {
      expect(() => checkListenHost(host, {})).toThrow(/server\.apiKeys .*FLOTILLA_API_KEYS/);
      const apiKeys = ["a-key-of-16-chars-or-more"];
      expect(() => checkListenHost(host, { apiKeys })).not.toThrow();
      expect(() => checkListenHost(host, { login: () => null })).not.toThrow();
      expect(() => checkListenHost(host, { keys: "store" })).not.toThrow();
      expect(() => checkListenHost(host, { tokens: { secret: "s".repeat(32) } })).not.toThrow();
    },
  );
});
