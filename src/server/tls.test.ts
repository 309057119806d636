import { mkdtempSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { connect as connectPlain } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, type TLSSocket } from "node:tls";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { type MovableClock, movableClock, until } from "../base/contract/movable-clock.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { createAnonymousConnections } from "./admission/anonymous-connections.ts";
import { firstPair, secondPair } from "./contract/certificates.ts";
import { startTestServer } from "./contract/test-server.ts";
import { listen } from "./serve.ts";
import { type KeyPair, openCertificate } from "./tls.ts";
import { Hono } from "hono";

const apiKey = "a-key-of-the-test";
const ca = [firstPair.cert, secondPair.cert];
let folder: string;
let files: { key: string; cert: string };
let clock: MovableClock;
let warnings: string[];
let log: Logger;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-tls-"));
  files = { key: join(folder, "tls.key"), cert: join(folder, "tls.crt") };
  put(firstPair);
  clock = movableClock();
  warnings = [];
  log = { ...silentLogger, warn: (_, message) => void warnings.push(message) };
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function put({ key, cert }: KeyPair): void {
  writeFileSync(files.key, key);
  writeFileSync(files.cert, cert);
}

/** The name in the certificate that a new connection is shown. */
function nameAt(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket: TLSSocket = connect({ port, host: "127.0.0.1", ca }, () => {
      resolve(String(socket.getPeerCertificate().subject.CN));
      socket.destroy();
    });
    socket.on("error", reject);
  });
}

function getFrom(url: string): Promise<{ status: number; headers: Record<string, unknown> }> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${apiKey}` };
    get(url, { ca, headers, agent: false }, (answer) => {
      answer.resume();
      answer.on("end", () => resolve({ status: answer.statusCode!, headers: answer.headers }));
    }).on("error", reject);
  });
}

describe("a server with a certificate", () => {
  test("answers HTTPS on both ports and sockets over it, and tells browsers to stay with it", async () => {
    const config = { apiKeys: [apiKey], tls: files, adminPort: 0 };
    await using server = await startTestServer({ server: config });
    expect(server.url).toBe(`https://127.0.0.1:${server.port}`);
    const answer = await getFrom(`${server.url}/v1/pods`);
    expect(answer.status).toBe(200);
    expect(answer.headers["strict-transport-security"]).toBe("max-age=31536000");
    expect((await getFrom(`${server.adminUrl!}/health/live`)).status).toBe(200);

    const headers = { authorization: `Bearer ${apiKey}` };
    const socket = new WebSocket(server.socketUrl, { ca, headers });
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    socket.close();
  });

  test("doesn't answer plain HTTP", async () => {
    await using server = await startTestServer({ server: { apiKeys: [apiKey], tls: files } });
    const socket = connectPlain(server.port, "127.0.0.1");
    let read = "";
    socket.on("data", (data: Buffer) => (read += data.toString("latin1"))).on("error", () => {});
    socket.write("GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await new Promise((resolve) => socket.once("close", resolve));
    expect(read).not.toContain("live");
  });

  test("without one says nothing of HTTPS to browsers", async () => {
    await using server = await startTestServer({ server: { apiKeys: [apiKey] } });
    const { headers } = await fetch(`${server.url}/health/live`);
    expect(headers.get("strict-transport-security")).toBeNull();
  });

  test("counts connections as anonymous from the handshake until their callers are known", async () => {
    const anonymous = createAnonymousConnections({ max: 10, maxPerAddress: 2, maxPerUser: 10 });
    const certificate = await openCertificate(files, { clock, log });
    const app = new Hono().get("/", (c) => c.text("hello"));
    const options = { host: "127.0.0.1", port: 0, clock, certificate };
    const server = await listen(app, { ...options, anonymous });
    const silent = [1, 2, 3].map(() => connectPlain(server.port, "127.0.0.1"));
    for (const each of silent) each.on("error", () => {});
    // The oldest of three has to go.
    await Promise.race(silent.map((each) => new Promise((done) => each.once("close", done))));
    expect(anonymous.count).toBe(2);
    for (const each of silent) each.destroy();
    await until("they are gone", () => anonymous.count === 0);

    const secure = connect({ port: server.port, host: "127.0.0.1", ca });
    await new Promise((resolve, reject) =>
      secure.once("secureConnect", resolve).once("error", reject),
    );
    await until("one connection counts once", () => anonymous.count === 1);
    secure.destroy();
    await until("it is gone", () => anonymous.count === 0);
    certificate.close();
    await server.close();
  });
});

describe("files of a certificate that change", () => {
  async function listening() {
    const certificate = await openCertificate(files, { clock, log });
    const server = await listen(new Hono(), { host: "127.0.0.1", port: 0, clock, certificate });
    return {
      port: server.port,
      async [Symbol.asyncDispose]() {
        certificate.close();
        await server.close();
      },
    };
  }

  test("are read again, for connections from then on", async () => {
    await using server = await listening();
    expect(await nameAt(server.port)).toBe("first");
    put(secondPair);
    await until("the second is shown", async () => {
      await clock.advance(5_000);
      return (await nameAt(server.port)) === "second";
    });
  });

  test("are read again where they are links to another folder, as mounted secrets are", async () => {
    const target = join(folder, "second.crt");
    const targetKey = join(folder, "second.key");
    writeFileSync(target, secondPair.cert);
    writeFileSync(targetKey, secondPair.key);
    await using server = await listening();
    for (const [link, to] of [
      [files.cert, target],
      [files.key, targetKey],
    ] as const) {
      unlinkSync(link);
      symlinkSync(to, link);
    }
    expect(await nameAt(server.port)).toBe("first");
    await until("the second is shown", async () => {
      await clock.advance(5_000);
      return (await nameAt(server.port)) === "second";
    });
  });

  test("leave the one before where they don't fit, and are taken once they do", async () => {
    await using server = await listening();
    writeFileSync(files.key, secondPair.key);
    await until("a warning", async () => {
      await clock.advance(5_000);
      return warnings.length > 0;
    });
    await clock.advance(5_000);
    expect(await nameAt(server.port)).toBe("first");
    writeFileSync(files.cert, secondPair.cert);
    await until("the second is shown", async () => {
      await clock.advance(5_000);
      return (await nameAt(server.port)) === "second";
    });
    expect(new Set(warnings)).toEqual(new Set(["certificate not reloaded"]));
  });

  test.each([
    { what: "there is no such file", cert: () => join(folder, "missing"), said: "ENOENT" },
    { what: "it isn't PEM", cert: () => files.key, said: "server.tls" },
  ])("refuse to start where $what", async ({ cert, said }) => {
    const opening = openCertificate({ ...files, cert: cert() }, { clock, log });
    await expect(opening).rejects.toThrow(said);
    await expect(opening).rejects.toMatchObject({ code: "invalid_option" });
  });
});
