import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, afterEach } from "vitest";
import { z } from "zod";
import { systemClock } from "../../base/clock.ts";
import { silentLogger } from "../../base/log.ts";
import { task } from "../../tasks/task.ts";
import { connect, type Flotilla } from "../../runtime/connect.ts";
import { type AppParts, createApp } from "../app.ts";
import { createMetrics } from "../metrics/metrics.ts";
import type { TaskContract } from "../../tasks/model.ts";

type Headers = Record<string, string>;

/** What `mail` is given is checked before it is stored. */
export const emailContracts: ReadonlyMap<string, TaskContract> = new Map<string, TaskContract>([
  ["mail", task("mail", { input: z.object({ to: z.string() }) })],
]);

/**
 * A store in a folder of its own, and a way to it, for all tests of a file: to open one takes longer
 * than what they do with it. Each of them finds it empty.
 */
export function openTestStore() {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-server-"));
  const path = join(folder, "test.db");
  const store = `sqlite:${path}`;
  const flotilla = connect(store);
  afterEach(() => emptyFile(path));
  afterAll(async () => {
    await flotilla.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return { folder, store, flotilla };
}

function emptyFile(path: string): void {
  if (!existsSync(path)) return;
  const file = new DatabaseSync(path, { timeout: 30_000 });
  const tables = file
    .prepare("select name from sqlite_schema where type = 'table'")
    .all()
    // What the first migration has written belongs to the schema.
    .filter(({ name }) => !/_(?:migration|bus_secret|log_place)$/.test(String(name)));
  const deletes = tables.map(({ name }) => `delete from "${String(name)}"`);
  file.exec(["begin immediate", ...deletes, "commit"].join(";"));
  file.close();
}

/** Every route, asked without a socket by a program on the same machine. */
export function appHarness(flotilla: Flotilla, parts: Partial<AppParts> = {}) {
  const app = createApp({
    flotilla,
    apiKeys: [],
    metrics: createMetrics(),
    isStopping: () => false,
    clock: systemClock,
    log: silentLogger,
    ...parts,
  });
  const request = async (
    path: string,
    init: Omit<RequestInit, "headers"> & { headers: Headers },
  ) => {
    const headers = { Host: "localhost", ...init.headers };
    const answer = await app.request(path, { ...init, headers });
    const text = await answer.text();
    // oxlint-disable-next-line typescript/no-explicit-any
    return { status: answer.status, body: (text.startsWith("{") ? JSON.parse(text) : text) as any };
  };
  /** Text and bytes go as they are, anything else as JSON, and nothing as nothing. */
  const send = (method: string, path: string, body?: unknown, headers: Headers = {}) => {
    const asItIs = typeof body === "string" || body instanceof Uint8Array;
    return request(path, {
      method,
      headers: { "Content-Type": "application/json", ...headers },
      ...(body !== undefined && { body: (asItIs ? body : JSON.stringify(body)) as string }),
    });
  };
  return {
    send,
    get: (path: string, headers: Headers = {}) => request(path, { headers }),
    post: (path: string, body?: unknown, headers: Headers = {}) =>
      send("POST", path, body, headers),
  };
}
