import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../src/base/contract/movable-clock.ts";
import { start } from "../command.ts";

/** A server that needs keys, in a process of its own and on a store of its own. */
export type KeyServer = {
  readonly url: string;
  /** The text of an administrator's key. */
  readonly key: string;
  /** A request by that key. Gives the answer's body. */
  // oxlint-disable-next-line typescript/no-explicit-any
  send(method: string, path: string, body?: unknown): Promise<any>;
  [Symbol.asyncDispose](): Promise<void>;
};

export type KeyServerOptions = {
  /** The name of the administrator's key. */
  name: string;
  /** Whether it serves HTTPS with this key and certificate. */
  tls?: { readonly key: string; readonly cert: string };
};

const key = "a-key-of-an-administrator-of-all";
const startMs = 120_000;

/** It also serves an empty page at `/app`, which may run scripts and call this server. */
export async function startKeyServer({ name, tls }: KeyServerOptions): Promise<KeyServer> {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-keys-"));
  const at = (file: string) => join(folder, file);
  writeFileSync(at("index.html"), "<!doctype html><title>App</title><p>app</p>");
  const server = {
    apiKeys: [{ key, name, role: "admin" }],
    pages: { "/app": folder },
    ...(tls && { tls: { key: at("key.pem"), cert: at("cert.pem") } }),
  };
  if (tls) writeFileSync(at("key.pem"), tls.key);
  if (tls) writeFileSync(at("cert.pem"), tls.cert);
  writeFileSync(at("flotilla.config.ts"), `export default ${JSON.stringify({ server })};\n`);
  const flags = ["--config", at("flotilla.config.ts"), "--store", `sqlite:${at("keys.db")}`];
  const running = start(["serve", "--log-level", "warn", "--port", "0", ...flags], { cwd: folder });
  const said = await Promise.race([
    until("the server listens", () => / on (http\S+)/.exec(running.output.stdout)?.[1], startMs),
    running.ended,
  ]);
  if (typeof said !== "string") {
    rmSync(folder, { recursive: true, force: true });
    throw new Error(`the server ended: ${said.stderr}`);
  }
  const url = new URL(said).origin;
  return {
    url,
    key,
    async send(method, path, body) {
      const answer = await fetch(url + path, {
        method,
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(`${method} ${path} was answered with ${text}`);
      return JSON.parse(text);
    },
    async [Symbol.asyncDispose]() {
      running.child.kill("SIGKILL");
      await running.ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
