import { fork } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { SignJWT } from "jose";
import { expect, test } from "vitest";
import { until } from "../base/movable-clock.contract.ts";
import { secret } from "./unread.contract.ts";

const requests = 600;
const mib = 1024 * 1024;

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

test("hundreds of answers that one token leaves unread take little memory, and the server answers others", async () => {
  const script = fileURLToPath(new URL("unread.contract.ts", import.meta.url));
  const child = fork(script, { execArgv: ["--conditions=flotilla:source"] });
  const [{ port, url, adminUrl }] = (await once(child, "message")) as [
    { port: number; url: string; adminUrl: string },
  ];
  const memory = async () => {
    child.send("memory");
    return ((await once(child, "message")) as [{ nowBytes: number; mostBytes: number }])[0];
  };
  const { nowBytes: beforeBytes } = await memory();

  const [eve, ada] = [await tokenOf("eve"), await tokenOf("ada")];
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
  for (let n = 0; n < 20; n++) {
    expect(await statusOf(`${url}/health/live`)).toBe(200);
    expect(await statusOf(`${adminUrl}/health/live`)).toBe(200);
    expect(await statusOf(`${url}${path}`, { headers })).toBe(200);
  }
  const { mostBytes } = await memory();
  expect((mostBytes - beforeBytes) / mib).toBeLessThan(512);
  for (const socket of sockets) socket.destroy();
  child.disconnect();
  await once(child, "exit");
}, 180_000);
