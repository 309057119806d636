import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer as createTcpServer } from "node:net";
import { join } from "node:path";
import { nkeys } from "@nats-io/transport-node";
import { afterEach, describe, expect, test, vi } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { hourMs } from "../../src/base/durations.ts";
import { silentLogger } from "../../src/base/log.ts";
import { seededRandom } from "../../src/base/random.ts";
import { checkNats, type NatsConfig } from "../../src/bus/nats/config.ts";
import { connectNats, type NatsConnection } from "../../src/bus/nats/connection.ts";
import { freePort } from "../free-ports.ts";
import { makeCertificates } from "../postgres/certificates.ts";
import { type NatsServerOptions, startNats } from "./server.ts";

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});

async function serving(options: NatsServerOptions = {}) {
  const server = await startNats(options);
  cleanUps.push(() => server.stop());
  return server;
}

/** The outcome of the first try. */
async function tried(config: NatsConfig): Promise<NatsConnection> {
  const parts = { clock: systemClock, random: seededRandom(1), log: silentLogger };
  const connection = connectNats(checkNats(config), parts);
  cleanUps.push(() => connection.close());
  await connection.started;
  return connection;
}

describe("a connection to NATS", () => {
  test("is made, and says which version the server has", async () => {
    const { url } = await serving();
    const connection = await tried({ servers: url });
    expect(connection.state).toBe("connected");
    expect(connection.serverVersion).toMatch(/^2\.\d+\.\d+/);
  });

  test("fails where no server answers, with what to do", async () => {
    const port = await freePort();
    await expect(tried({ servers: `127.0.0.1:${port}` })).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(
        new RegExp(
          `^no NATS server answers at 127.0.0.1:${port} .*: start one, or correct nats.servers$`,
        ),
      ),
    });
  });

  test("fails where something else than NATS answers", async () => {
    const other = createTcpServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    const port = await freePort();
    await new Promise<void>((resolve) => other.listen(port, "127.0.0.1", resolve));
    cleanUps.push(() => other.close());
    const tries = tried({ servers: `127.0.0.1:${port}` });
    await expect(tries).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("no NATS server answers"),
    });
  });

  describe("with credentials", () => {
    const seed = nkeys.createUser();
    const nkey = new TextDecoder().decode(seed.getSeed());
    const kinds: [string, string, NonNullable<NatsConfig["credentials"]>][] = [
      ["a token", "authorization { token: hunter2 }", { token: "hunter2" }],
      [
        "a user",
        'authorization { users: [{ user: "ann", password: "hunter2" }] }',
        { user: "ann", password: "hunter2" },
      ],
      ["an nkey", `authorization { users: [{ nkey: "${seed.getPublicKey()}" }] }`, { nkey }],
    ];

    test.each(kinds)("of %s is made, and refused without them", async (_, config, credentials) => {
      const { url } = await serving({ config });
      expect((await tried({ servers: url, credentials })).state).toBe("connected");
      for (const wrong of [undefined, { token: "wrong" }]) {
        const tries = tried({ servers: url, ...(wrong && { credentials: wrong }) });
        await expect(tries).rejects.toMatchObject({
          code: "unauthorized",
          message: expect.stringMatching(/refuse these credentials: set nats.credentials/),
        });
        await expect(tries).rejects.not.toMatchObject({
          message: expect.stringMatching(/wrong|hunter2/),
        });
      }
    });

    test("in a file is made", async () => {
      const config = `authorization { users: [{ nkey: "${seed.getPublicKey()}" }] }`;
      const { url, folder } = await serving({ config });
      const file = join(folder, "user.creds");
      writeFileSync(
        file,
        [
          "-----BEGIN NATS USER JWT-----\ne30\n------END NATS USER JWT------\n",
          `-----BEGIN USER NKEY SEED-----\n${nkey}\n------END USER NKEY SEED------\n`,
        ].join("\n"),
      );
      expect((await tried({ servers: url, credentials: { file } })).state).toBe("connected");
    });

    test("that are no seed are refused before a server is asked", async () => {
      const credentials = { nkey: `SU${"A".repeat(56)}` };
      await expect(tried({ servers: "127.0.0.1:1", credentials })).rejects.toMatchObject({
        code: "invalid_option",
        message: expect.stringContaining("nats.credentials.nkey"),
      });
    });

    test("in a file that isn't there or holds none fails with its name", async () => {
      const { url, folder } = await serving();
      const broken = join(folder, "broken.creds");
      writeFileSync(broken, "nothing of the kind");
      for (const file of [join(folder, "missing.creds"), broken]) {
        await expect(tried({ servers: url, credentials: { file } })).rejects.toMatchObject({
          message: expect.stringMatching(/nats\.credentials/),
        });
      }
    });
  });

  test("with TLS is made where the certificate verifies, and fails with what to do where not", async () => {
    const certificates = makeCertificates();
    cleanUps.push(() => certificates.remove());
    const { certificate, key, authority, stranger } = certificates;
    const tls = `tls { cert_file: "${certificate}", key_file: "${key}" }`;
    const { port } = await serving({ config: tls });
    const servers = `tls://localhost:${port}`;
    const made = await tried({ servers, tls: { caFile: authority } });
    expect(made.state).toBe("connected");
    for (const config of [{ servers }, { servers, tls: { caFile: stranger } }]) {
      await expect(tried(config)).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringMatching(/doesn't verify .*: name its authority in nats.tls.caFile/),
      });
    }
    await expect(tried({ servers, tls: { caFile: "/nowhere.pem" } })).rejects.toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining("nats.tls.caFile can't be read"),
    });
  });

  test("with TLS fails where the server has none", async () => {
    const { port } = await serving();
    await expect(tried({ servers: `tls://127.0.0.1:${port}` })).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("offer no TLS"),
    });
  });

  test.each([
    [
      "publish",
      'publish: { deny: "flotilla.flotilla.wake.>" }',
      "publish to flotilla.flotilla.wake",
    ],
    [
      "subscribe",
      'subscribe: { deny: "flotilla.flotilla.mail.>" }',
      "subscribe to flotilla.flotilla.mail",
    ],
  ])("fails where a user may not %s, and names the subject", async (_, permissions, message) => {
    const config = `authorization { users: [{ user: "ann", password: "pw", permissions: { ${permissions} } }] }`;
    const { url } = await serving({ config });
    const credentials = { user: "ann", password: "pw" };
    await expect(tried({ servers: url, credentials })).rejects.toMatchObject({
      code: "forbidden",
      message: expect.stringMatching(
        new RegExp(`${message}.* on the NATS server n1: allow it .*flotilla\\.flotilla\\.>$`),
      ),
    });
    const other = await tried({ servers: url, credentials, namespace: "other" });
    expect(other.state).toBe("connected");
  });

  test("fails where a server takes less than a piece of a message", async () => {
    const { url } = await serving({ config: "max_payload: 64KB" });
    await expect(tried({ servers: url })).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringMatching(/takes 65536 bytes at most: set max_payload to 1MB or more/),
    });
  });

  test("fails with the name and version of a server that is too old", async () => {
    const info = {
      server_id: "x",
      server_name: "old",
      version: "2.10.27",
      proto: 1,
      headers: true,
      max_payload: 1_048_576,
    };
    // An old server's greeting is all that is looked at.
    const old = createTcpServer((socket) => {
      socket.write(`INFO ${JSON.stringify(info)}\r\n`);
      socket.on("data", (data) => {
        for (const _ of data.toString().matchAll(/PING\r\n/g)) socket.write("PONG\r\n");
      });
      socket.on("error", () => {});
    });
    const port = await freePort();
    await new Promise<void>((resolve) => old.listen(port, "127.0.0.1", resolve));
    cleanUps.push(() => old.close());
    await expect(tried({ servers: `127.0.0.1:${port}` })).rejects.toMatchObject({
      code: "unsupported",
      message: "the NATS server old is 2.10.27: use 2.11 or later",
    });
  });

  test("that fails is tried again until it is made", async () => {
    const server = await serving();
    await server.kill();
    const parts = { clock: systemClock, random: seededRandom(1), log: silentLogger };
    const connection = connectNats(checkNats({ servers: server.url }), parts);
    cleanUps.push(() => connection.close());
    await expect(connection.started).rejects.toMatchObject({ code: "unavailable" });
    expect(connection.state).toBe("away");
    await server.start();
    await expect.poll(() => connection.state).toBe("connected");
  });

  test("that was lost is made again at its pace, also when the wall clock is set back meanwhile", async () => {
    const server = await serving();
    const askedMs: number[] = [];
    const monotonic = () => {
      const atMs = systemClock.monotonic();
      askedMs.push(atMs);
      return atMs;
    };
    const parts = { clock: { ...systemClock, monotonic }, random: seededRandom(1) };
    const settings = checkNats({ servers: server.url });
    const connection = connectNats(settings, { ...parts, log: silentLogger });
    cleanUps.push(() => connection.close());
    await connection.started;
    vi.useFakeTimers({ toFake: ["Date"] });
    cleanUps.push(() => vi.useRealTimers());
    const startMs = Date.now();
    vi.setSystemTime(startMs + hourMs);
    await server.kill();
    let dials = 0;
    const deaf = createTcpServer((socket) => {
      dials++;
      socket.destroy();
    });
    await new Promise<void>((resolve) => deaf.listen(server.port, "127.0.0.1", resolve));
    askedMs.length = 0;
    await expect.poll(() => dials).toBeGreaterThan(3);
    await new Promise((resolve) => deaf.close(resolve));
    // A timer may be a moment early.
    const pauses = askedMs.slice(2).map((atMs, nth) => atMs - askedMs[nth + 1]!);
    expect(Math.min(...pauses)).toBeGreaterThan(240);
    vi.setSystemTime(startMs);
    await server.start();
    await expect.poll(() => connection.state).toBe("connected");
  });

  test("says what to install where the client is missing", async () => {
    const module = new URL("../../src/bus/nats/connection.ts", import.meta.url).href;
    const hook = `
      import { registerHooks } from "node:module";
      registerHooks({
        resolve(name, context, next) {
          if (name === "@nats-io/transport-node") throw new Error("Cannot find package");
          return next(name, context);
        },
      });
      const { connectNats } = await import(${JSON.stringify(module)});
      const clock = { now: () => 0, monotonic: () => 0, after: () => () => {} };
      const log = { debug() {}, info() {}, warn() {}, error() {} };
      const settings = { servers: ["127.0.0.1:1"], namespace: "x" };
      const nats = connectNats(settings, { clock, log, random: { uint32: () => 0 } });
      await nats.started.catch((error) => console.log(error.code, error.message));
    `;
    const child = spawn(process.execPath, ["--input-type=module", "-e", hook], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (more: string) => (said += more));
    await new Promise((resolve) => child.on("close", resolve));
    expect(said.trim()).toBe(
      "unsupported `nats` needs its client: npm install @nats-io/transport-node",
    );
  });
});
