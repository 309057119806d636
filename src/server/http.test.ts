import { mkdtempSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { silentLogger } from "../base/log.ts";
import { connect, type Flotilla } from "../runtime/connect.ts";
import { createApp } from "./app.ts";
import { listen, type ListeningServer } from "./serve.ts";
import { createMetrics } from "./metrics/metrics.ts";

let folder: string;
let flotilla: Flotilla;
let server: ListeningServer;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-http-"));
  flotilla = connect(`sqlite:${join(folder, "test.db")}`);
  const app = createApp({
    flotilla,
    apiKeys: [],
    metrics: createMetrics(),
    isStopping: () => false,
    maxPayloadBytes: 1_000,
    clock: systemClock,
    log: silentLogger,
  });
  server = await listen(app, { host: "127.0.0.1", port: 0, clock: systemClock });
});
afterEach(async () => {
  await server.close();
  await flotilla.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("requests over a real socket", () => {
  test("need no body where the route takes none", async () => {
    const { taskId } = await flotilla.enqueue("mail", null, { delayMs: 60_000 });
    const path = `/v1/tasks/${taskId}`;
    expect(await send("POST", `${path}/cancel`)).toEqual([200, { status: "cancelled" }]);
    expect(await send("POST", `${path}/retry`)).toEqual([
      200,
      { status: "pending", forgottenSteps: 0 },
    ]);
  });

  test("may bring a body without a content-length", async () => {
    const parts = ['{"name":"mail",', '"input":{"to":"ada"}}'];
    expect(await send("POST", "/v1/tasks", parts)).toMatchObject([201, { created: true }]);
  });

  test("are cut off at the limit, with a content-length or without", async () => {
    const parts = Array.from({ length: 100 }, () => "x".repeat(1_000));
    const refused = [413, { error: { code: "payload_too_large" } }];
    expect(await send("POST", "/v1/tasks", parts)).toMatchObject(refused);
    expect(await send("POST", "/v1/tasks", [parts.join("")])).toMatchObject(refused);
    expect((await flotilla.tasks.stats()).byStatus.pending).toBe(0);
  });

  test("that are cut off end their connection, so that no other request is lost on it", async () => {
    const answer = await fetch(`${server.url}/v1/pause`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ reason: "x".repeat(600_000) }),
    });
    expect([answer.status, answer.headers.get("connection")]).toEqual([413, "close"]);
  });

  test("with a method that a route doesn't have are refused as such", async () => {
    for (const method of ["DELETE", "PUT", "OPTIONS"]) {
      expect(await send(method, "/v1/tasks")).toMatchObject([
        404,
        { error: { code: "not_found" } },
      ]);
    }
    expect(await send("POST", "/v1/tasks", [])).toMatchObject([400, {}]);
  });
});

/** One part is sent with its length, several one by one without, none without any body. */
function send(method: string, path: string, parts?: string[]): Promise<[number, unknown]> {
  return new Promise((resolve, reject) => {
    const headers = parts && { "Content-Type": "application/json" };
    const sent = request(`${server.url}${path}`, { method, ...(headers && { headers }) });
    sent.once("error", reject).once("response", (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (more: string) => (text += more));
      answer.on("end", () => resolve([answer.statusCode!, JSON.parse(text)]));
    });
    const last = parts?.pop();
    for (const part of parts ?? []) sent.write(part);
    sent.end(last);
  });
}
