import { fork } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { SignJWT } from "jose";
import { expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import { secret } from "./contract/unread.ts";

const requests = 600;
const mib = 1024 * 1024;
// 600 pages of 1 MiB, copied on their way, would take far more.
const maxGrowthMib = 256;
// A pod is ended where its probes fail for some tens of seconds. What is read here in small parts took minutes
// in one, and a busy machine takes seconds for anything.
const maxLiveMs = 10_000;
const tickMs = 50;

const tokenOf = (user: string) =>
  new SignJWT({ sub: user, tenant: "acme" })
    .setProtectedHeader({ alg: "HS256" })
    .setExpirationTime(4_102_444_800)
    .sign(new TextEncoder().encode(secret));

/** Asks again where a connection was kept that the server had ended. */
const statusOf = (url: string, init: RequestInit = {}) =>
  until("an answer", () =>
    fetch(url, init).then(
      async (answer) => (await answer.arrayBuffer(), answer.status),
      () => undefined,
    ),
  );

/** A server in a process of its own. */
async function spawned() {
  const script = fileURLToPath(new URL("contract/unread.ts", import.meta.url));
  const child = fork(script, { execArgv: ["--conditions=flotilla:source"] });
  type Started = { port: number; url: string; adminUrl: string };
  const [started] = (await once(child, "message")) as [Started];
  return {
    ...started,
    async memory() {
      child.send("memory");
      return ((await once(child, "message")) as [{ nowBytes: number; mostBytes: number }])[0];
    },
    async [Symbol.asyncDispose]() {
      child.disconnect();
      await once(child, "exit");
    },
  };
}

/** Asks for `/health/live` again and again, and gives the longest that an answer took. */
function probing(url: string) {
  let longestMs = 0;
  let isOver = false;
  // Time in which this process runs: where the whole machine stands still, the server holds nothing up.
  let awakeMs = 0;
  let tickedMs = performance.now();
  const ticking = setInterval(() => {
    const nowMs = performance.now();
    awakeMs += Math.min(nowMs - tickedMs, 2 * tickMs);
    tickedMs = nowMs;
  }, tickMs).unref();
  const probe = async () => {
    while (!isOver) {
      const sinceMs = awakeMs;
      expect(await statusOf(`${url}/health/live`)).toBe(200);
      longestMs = Math.max(longestMs, awakeMs - sinceMs);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    clearInterval(ticking);
    return longestMs;
  };
  const probed = probe();
  return { end: () => ((isOver = true), probed) };
}

test("hundreds of answers that one token leaves unread take little memory, and the server answers others", async () => {
  await using server = await spawned();
  const { port, url, adminUrl } = server;
  const { nowBytes: beforeBytes } = await server.memory();

  const [eve, ada] = [await tokenOf("eve"), await tokenOf("ada")];
  const probes = [probing(url), probing(adminUrl)];
  const request = `GET /v1/sessions/long/messages?limit=1000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${eve}\r\n\r\n`;
  const sockets: Socket[] = [];
  let connected = 0;
  for (let n = 0; n < requests; n++) {
    const socket = connect(port, "127.0.0.1", () => {
      connected++;
      socket.write(request);
    });
    socket.on("error", () => {});
    socket.pause();
    sockets.push(socket);
  }
  await until("the requests to be sent", () => connected === requests, 60_000);
  const headers = { Authorization: `Bearer ${ada}` };
  const path = "/v1/sessions/long/messages?limit=1";
  // As many turns of asking as the server needs for what was sent before.
  for (let n = 0; n < 20; n++) expect(await statusOf(`${url}${path}`, { headers })).toBe(200);
  for (const probe of probes) expect(await probe.end()).toBeLessThan(maxLiveMs);
  const { mostBytes } = await server.memory();
  expect((mostBytes - beforeBytes) / mib).toBeLessThan(maxGrowthMib);
  for (const socket of sockets) socket.destroy();
}, 180_000);

test("a tool's input that is made to be slow holds up nothing else on its server", async () => {
  await using server = await spawned();
  const { url } = server;
  const headers = {
    Authorization: `Bearer ${await tokenOf("ada")}`,
    "Content-Type": "application/json",
  };
  const probe = probing(url);
  const path = `${url}/v1/sessions/hostile/messages`;
  const body = JSON.stringify({ parts: [{ type: "text", text: "go" }] });
  expect((await fetch(path, { method: "POST", headers, body })).status).toBe(201);
  const entries = await until("its answer", async () => {
    const page = (await (await fetch(path, { headers })).json()) as { entries: object[] };
    return page.entries.length > 1 ? page.entries : undefined;
  });
  expect(entries[1]).toMatchObject({ outcome: "completed", parts: [{ toolCallId: "c" }] });
  expect(await probe.end()).toBeLessThan(maxLiveMs);
}, 180_000);
