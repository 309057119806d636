import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectClient, type NatsConnection } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import { createProgram } from "../../src/cli/program.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { temporaryFile } from "../../src/store/contract/kinds.ts";
import { said } from "../sessions/fleet.ts";
import { type NatsServer, startNats } from "./server.ts";

const password = "p0f1e2d3";
const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});

/** What the command prints, with the variables that it is given. */
async function permissions(words: readonly string[] = [], env: Record<string, string> = {}) {
  let written = "";
  vi.stubEnv("FLOTILLA_STORE", undefined);
  vi.stubEnv("FLOTILLA_NATS", undefined);
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  vi.spyOn(process.stdout, "write").mockImplementation((text) => (written += String(text)) !== "");
  try {
    await createProgram().parseAsync(["node", "flotilla", "cluster", "permissions", ...words]);
  } finally {
    vi.restoreAllMocks();
    vi.unstubAllEnvs();
  }
  return written;
}

let server: NatsServer;
let place: ReturnType<typeof temporaryFile>;
let text: string;
const cleanUps: (() => unknown)[] = [];
beforeAll(async () => {
  place = temporaryFile();
  text = await permissions(["--namespace", "app"]);
  // A password of the server's environment, as the printed config wants it.
  vi.stubEnv("NATS_PASSWORD", password);
  server = await startNats({ jetStream: true, config: text });
  vi.unstubAllEnvs();
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});
afterAll(async () => {
  await server.stop();
  await place.remove();
});

async function pod() {
  const nats = {
    servers: server.url,
    credentials: { user: "flotilla", password },
    namespace: "app",
    use: "all",
    durability: "single",
  } as const;
  const options = {
    use: [echo],
    nats,
    log: silentLogger,
    dataDir: false,
    shutdownMs: 2_000,
  } as const;
  const started = await startPod({ store: `sqlite:${place.path}`, ...options });
  cleanUps.push(() => started.stop());
  return started;
}

async function asUser(inboxPrefix = "_INBOX.flotilla.app"): Promise<NatsConnection> {
  const user = { user: "flotilla", pass: password };
  const connection = await connectClient({ servers: server.url, inboxPrefix, ...user });
  cleanUps.push(() => connection.close());
  return connection;
}

/** What the server has refused of a connection, once it has answered. */
async function violations(act: (connection: NatsConnection) => void): Promise<string[]> {
  const connection = await asUser();
  const found: string[] = [];
  void (async () => {
    for await (const status of connection.status())
      if (status.type === "error") found.push(status.error.message);
  })();
  act(connection);
  await connection.flush();
  await expect.poll(() => found).not.toEqual([]);
  return found;
}

/** Has the server read its config again, with these permissions. */
async function reload(permitted: string): Promise<void> {
  const path = join(server.folder, "server.conf");
  const before = readFileSync(path, "utf8");
  const reloads = () => server.log().split("Reloaded server configuration").length;
  const known = reloads();
  writeFileSync(path, before.slice(0, before.indexOf("accounts {")) + permitted);
  server.signal("SIGHUP");
  await expect.poll(() => reloads()).toBe(known + 1);
}

describe("the permissions that are printed", () => {
  test("are enough for a pod", async () => {
    const { sessions } = await pod();
    const chat = await sessions.create("echo", { user: "ann" });
    expect(said([await chat.ask("hello")])).toEqual(["echo: you said hello"]);
    expect(server.log()).not.toContain("Violation");
  });

  test("let its user do nothing else", async () => {
    const publishes = [
      "flotilla.other.mail.x",
      "orders.new",
      "_INBOX.x",
      "$JS.API.STREAM.DELETE.FLOTILLA_app_META",
      "$JS.API.STREAM.UPDATE.FLOTILLA_app_META",
      "$JS.API.STREAM.MSG.DELETE.FLOTILLA_app_META",
      "$JS.API.CONSUMER.CREATE.FLOTILLA_app_META",
      "$JS.API.STREAM.NAMES",
    ];
    for (const subject of publishes) {
      const refused = await violations((connection) => connection.publish(subject));
      expect(refused.join()).toContain(`Permissions Violation for Publish to "${subject}"`);
    }
    for (const subject of [">", "_INBOX.>", "flotilla.>", "$JS.API.>"]) {
      const refused = await violations((connection) => void connection.subscribe(subject));
      expect(refused.join()).toContain(`Permissions Violation for Subscription to "${subject}"`);
    }
  });

  test("have none that a pod could do without", async () => {
    const { publish, subscribe } = JSON.parse(
      await permissions(["--namespace", "app", "--json"]),
    ) as { publish: string[]; subscribe: string[] };
    for (const each of publish) {
      const isMeant = (line: string) => line.trim().startsWith(JSON.stringify(each));
      const lines = text.split("\n");
      // The same subject is among those that it may subscribe to.
      const less = lines.toSpliced(lines.findIndex(isMeant), 1).join("\n");
      expect(less).not.toBe(text);
      await reload(less);
      await expect(pod()).rejects.toThrow(
        /this user may not publish to|the NATS user may not .*`flotilla cluster permissions`/,
      );
    }
    expect(subscribe).toEqual(["flotilla.app.>", "_INBOX.flotilla.app.>"]);
    await reload(text);
    await pod();
  });

  test("can name the streams that there are, and no others then", async () => {
    const nats = `${server.url.replace("//", `//flotilla:${password}@`)}?use=all&durability=single&namespace=app`;
    const env = { FLOTILLA_STORE: `sqlite:${place.path}`, FLOTILLA_NATS: nats };
    const named = await permissions(["--by-stream"], env);
    expect(named).not.toContain(password);
    expect(named).not.toContain("*");
    await reload(named);
    const { sessions } = await pod();
    const chat = await sessions.create("echo", { user: "ann" });
    expect(said([await chat.ask("again")])).toEqual(["echo: you said again"]);
    const { streams } = await jetstreamManager(await asUser(), { checkAPI: false });
    await expect(streams.add({ name: "ORDERS", subjects: ["flotilla.app.x"] })).rejects.toThrow(
      "$JS.API.STREAM.CREATE.ORDERS",
    );
    await reload(text);
  });

  test("are for envelopes alone where logs are in the database, and commands of nsc on demand", async () => {
    const env = { FLOTILLA_NATS: "nats://n.internal?use=bus&namespace=app" };
    const bus = JSON.parse(await permissions(["--json"], env)) as { publish: string[] };
    expect(bus.publish).toEqual(["flotilla.app.>"]);
    const nsc = await permissions(["--format", "nsc", "--account", "APP", "--user", "web"]);
    expect(nsc).toMatch(/^nsc add user --account APP --name web/m);
    expect(nsc).toContain("--allow-sub 'flotilla.flotilla.>,_INBOX.flotilla.flotilla.>'");
    await expect(permissions(["--user", "a } b"])).rejects.toThrow(/--user must be a letter/);
    await expect(permissions(["--by-stream"])).rejects.toThrow(/--by-stream asks the servers/);
  });
});
