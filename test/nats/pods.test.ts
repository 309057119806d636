import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectClient } from "@nats-io/transport-node";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import type { NatsConfig } from "../../src/bus/nats/config.ts";
import type { ChangesConfig } from "../../src/changes/recording.ts";
import { connect } from "../../src/runtime/connect.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { encryption } from "../../src/store/codec/encryption.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";
import { throttle } from "../../src/throttles/throttle.ts";
import { run } from "../command.ts";
import { makeCertificates } from "../postgres/certificates.ts";
import { startPostgres } from "../postgres/server.ts";
import { entriesOnce, said, textOf } from "../sessions/fleet.ts";
import { type NatsCluster, type NatsServer, startNats, startNatsCluster } from "./server.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});

/** A lease is over after two seconds unless it is renewed. */
const model = throttle("careful-model", { pinned: 2, leaseMs: 2_000, callTimeoutMs: 5_000 });
const careful = agent("careful", { throttle: model }, async function* ({ messages }) {
  yield `took care of ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});
const asker = agent("asker", async function* ({ messages }) {
  if (JSON.stringify(messages).includes("at sea")) yield "found";
  else yield { type: "tool-input-available", toolCallId: "call-1", toolName: "locate", input: {} };
});
const awayAgents = [echo, careful, asker];

let cluster: NatsCluster;
let used = 0;
const cleanUps: (() => unknown)[] = [];
const warnings: string[] = [];
beforeAll(async () => {
  // Each log reserves 256 MiB.
  cluster = await startNatsCluster({ maxFileStore: "64GB" });
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});
afterAll(() => cluster.stop());

const monitorsOf = (servers: readonly NatsServer[]) => servers.map((each) => each.monitorUrl);

/** A namespace of its own on the three servers. */
const onCluster = (): NatsConfig => ({
  servers: cluster.urls,
  use: "all",
  monitor: monitorsOf(cluster.servers),
  namespace: `pods_${++used}`,
});

async function database() {
  const place = await temporaryDatabase();
  cleanUps.push(() => place.remove());
  return place.url;
}

type PodOptions = {
  store: string;
  nats?: NatsConfig;
  codec?: ReturnType<typeof encryption>;
  changes?: ChangesConfig;
  use?: typeof awayAgents;
};

async function pod({ store, nats, codec, changes, use = [echo] }: PodOptions) {
  const started = await startPod({
    store,
    use,
    log: { ...silentLogger, warn: (_: unknown, message: string) => warnings.push(message) },
    dataDir: false,
    shutdownMs: 2_000,
    ...(nats && { nats }),
    ...(codec && { codec }),
    ...(changes && { changes }),
  });
  cleanUps.push(() => started.stop());
  return started;
}

async function server(options: Parameters<typeof startNats>[0] = {}) {
  const started = await startNats(options);
  cleanUps.push(() => started.stop());
  return started;
}

async function client(url: string) {
  const connected = new pg.Client(url);
  await connected.connect();
  cleanUps.push(() => connected.end());
  return connected;
}

/** The bodies of all messages in the streams of a namespace. */
async function streamed(namespace: string): Promise<string[]> {
  const connection = await connectClient({ servers: [...cluster.urls] });
  try {
    const manager = await jetstreamManager(connection, { timeout: 60_000 });
    const bodies: string[] = [];
    for await (const { config, state } of manager.streams.list()) {
      if (!config.name.startsWith(`FLOTILLA_${namespace}_`)) continue;
      for (let seq = state.first_seq; seq <= state.last_seq && state.messages > 0; seq++) {
        const message = await manager.streams.getMessage(config.name, { seq });
        if (message) bodies.push(new TextDecoder().decode(message.data));
      }
    }
    return bodies;
  } finally {
    await connection.close();
  }
}

describe("a pod whose logs are on three servers", () => {
  test("answers a message from its stream before the database has it, and the database follows", async () => {
    const store = await database();
    const nats = onCluster();
    const { sessions } = await pod({ store, nats });
    const chat = await sessions.create("echo", { user: "ann" });
    await chat.ask("first");
    const sql = await client(store);
    const stored = async () => {
      const { rows } = await sql.query(
        "select body from flotilla.message where session_id = $1 order by seq",
        [chat.sessionId],
      );
      return rows.map(({ body }) => String(body));
    };
    await expect.poll(stored).toHaveLength(2);
    // What moves records into the database has to wait for this.
    await sql.query("begin");
    await sql.query("lock table flotilla.log_watermark in access exclusive mode");
    const answer = await chat.ask("while it waits");
    expect(said([answer])).toEqual(["echo: you said while it waits"]);
    expect(await stored()).toHaveLength(2);
    const bodies = await streamed(nats.namespace!);
    expect(bodies.some((body) => body.includes("you said while it waits"))).toBe(true);
    const entries = await entriesOnce(chat, (all) => all.length >= 4);
    expect(said(entries).at(-1)).toBe("echo: you said while it waits");
    await sql.query("commit");
    await expect.poll(stored).toHaveLength(4);
    expect((await stored()).at(-1)).toContain("you said while it waits");
  });

  test("has sessions and turns in the feed of changes once the database has them, and none before", async () => {
    const store = await database();
    const nats = onCluster();
    const { podId, sessions } = await pod({ store, nats, changes: {} });
    await using web = connect(store, { nats, log: silentLogger });
    const chat = await sessions.create("echo", { user: "ann" });
    const turns = async () => {
      const { changes } = await web.changes.page({ kinds: ["session", "turn"] });
      // The order of changes is that of each subject.
      return changes
        .map(({ kind, id, change }) => `${kind} ${id.split("/")[1] ?? ""} ${change}`)
        .toSorted((a, b) => a.slice(0, 6).localeCompare(b.slice(0, 6)));
    };
    await chat.ask("first");
    const first = ["session  created", "turn 1 created", "turn 1 completed"];
    await expect.poll(turns).toEqual(first);
    const sql = await client(store);
    await sql.query("begin");
    await sql.query("lock table flotilla.log_watermark in access exclusive mode");
    await chat.ask("while it waits");
    expect(await turns()).toEqual(first);
    // Pages say meanwhile how far the database is behind.
    const behind = async () =>
      (await web.pages.fleet()).pods.find((each) => each.podId === podId)?.pulse?.logs ?? [];
    await expect.poll(behind).toHaveLength(1);
    expect((await behind())[0]!.bytes).toBeGreaterThan(0);
    await sql.query("commit");
    const both = [...first, "turn 2 created", "turn 2 completed"];
    await expect.poll(turns).toEqual(both);
    await expect.poll(behind).toEqual([]);
  });

  test("goes on with what the database has, once an operator has rebased logs that it can't serve", async () => {
    const store = await database();
    const nats = onCluster();
    const first = await pod({ store, nats });
    const { sessionId } = await first.sessions.create("echo", { user: "ann" });
    await first.sessions.open(sessionId, { user: "ann" }).ask("before");
    await expect.poll(() => first.archiveState()!.unarchivedEntries).toBe(0);
    await first.stop();
    // As a back-up has it of which the logs know nothing.
    const sql = await client(store);
    await sql.query("update flotilla.log_watermark set incarnation = 'restored'");
    const folder = mkdtempSync(join(tmpdir(), "flotilla-rebase-"));
    cleanUps.push(() => rmSync(folder, { recursive: true, force: true }));
    const config = JSON.stringify({ store, nats });
    writeFileSync(join(folder, "flotilla.config.mjs"), `export default ${config};`);
    const rebase = async (...args: string[]) => {
      const { code, stdout, stderr } = await run(["cluster", "rebase", "--json", ...args], {
        cwd: folder,
      });
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      return JSON.parse(stdout) as Record<"broken" | "rebased", { why: string }[]>;
    };
    const { sessions } = await pod({ store, nats });
    const chat = sessions.open(sessionId, { user: "ann" });
    const { broken } = await rebase();
    expect(new Set(broken.map(({ why }) => why))).toEqual(new Set(["different"]));
    expect((await rebase("--yes")).rebased).toHaveLength(broken.length);
    const answer = await chat.ask("after");
    expect(said([answer])).toEqual(["echo: you said after"]);
    const entries = await entriesOnce(chat, (all) => all.length >= 4);
    expect(said(entries).slice(0, 2)).toEqual(["ann: before", "echo: you said before"]);
    expect((await rebase()).broken).toEqual([]);
  });

  test("takes messages from a program that is no pod", async () => {
    const store = await database();
    const nats = onCluster();
    const found = await pod({ store, nats });
    await using web = connect(store, { nats, log: silentLogger });
    expect(web.hasStreamLogs).toBe(true);
    const beganMs = Date.now();
    const chat = await web.sessions.create("echo", { user: "ann" });
    expect(said([await chat.ask("hello")])).toEqual(["echo: you said hello"]);
    // What pods say of themselves is understood by all of them.
    expect(warnings.filter((each) => each.includes("beats dropped"))).toEqual([]);
    const entries = await entriesOnce(chat, (all) => all.length >= 2);
    expect(said(entries)).toEqual(["ann: hello", "echo: you said hello"]);
    // A list says up to when it has everything, on pods and elsewhere, and goes on with the database.
    const asOf = async () => (await web.sessions.list()).asOf ?? 0;
    await expect.poll(asOf).toBeGreaterThan(beganMs);
    const onPod = await found.sessions.list();
    expect(onPod.asOf).toBeLessThanOrEqual(Date.now());
    const listed = async () => (await found.sessions.list()).sessions;
    await expect.poll(listed).toHaveLength(1);
    const sql = await client(store);
    await sql.query("begin");
    await sql.query("lock table flotilla.log_watermark in access exclusive mode");
    await chat.ask("while it waits");
    const storedMs = Date.now();
    // The record that waits is older than the beats that tell of it.
    await expect.poll(async () => Date.now() - (await asOf())).toBeGreaterThan(1_500);
    await expect.poll(asOf).toBeLessThanOrEqual(storedMs);
    const committedMs = Date.now();
    await sql.query("commit");
    await expect.poll(asOf).toBeGreaterThan(committedMs);
  });

  test("is shown to pages as the owner of its logs", async () => {
    const store = await database();
    const nats = onCluster();
    const { podId, sessions } = await pod({ store, nats });
    const { sessionId } = await sessions.create("echo", { user: "ann" });
    await using web = connect(store, { nats, log: silentLogger });
    const owner = () => web.pages.sessionOwner("default", sessionId);
    await expect.poll(owner).toMatchObject({ podId });
    const { logId, term } = (await owner())!;
    expect(term).toBeGreaterThan(0);
    const shown = async () =>
      (await web.pages.fleet()).pods.find((each) => each.podId === podId)?.logs;
    await expect.poll(shown).toContain(logId);
    await expect.poll(async () => (await web.pages.pods())[0]?.logs).toContain(logId);
    expect(await web.pages.sessionOwner("elsewhere", sessionId)).toBeUndefined();
  });

  test("fails nothing while Postgres is away for ten seconds, and loses nothing: appends, joins, turns, throttled ones, tool results, reads", async () => {
    const postgres = await startPostgres();
    cleanUps.push(() => postgres.stop());
    const nats = onCluster();
    const { sessions, archiveState } = await pod({ store: postgres.url, nats, use: awayAgents });
    const other = await pod({ store: postgres.url, nats, use: awayAgents });
    const unarchived = () =>
      archiveState()!.unarchivedEntries + other.archiveState()!.unarchivedEntries;
    const chat = await sessions.create("echo", { user: "ann" });
    await chat.ask("before");
    const slow = await sessions.create("careful", { user: "ann" });
    await slow.ask("before");
    await expect.poll(unarchived).toBe(0);
    await postgres.kill();
    const sent: string[] = [];
    const answered: string[] = [];
    const beganMs = performance.now();
    const passedMs = () => performance.now() - beganMs;
    // It is away for ten seconds, or for longer where the machine has much else to do.
    while (passedMs() < 10_000 || (answered.length < 8 && passedMs() < 150_000)) {
      const text = `while it is away ${sent.length}`;
      await chat.send(text);
      sent.push(text);
      // Both pods share the permits of its throttle, whose leases are shorter than this takes.
      if (answered.length * 1_000 < passedMs()) {
        answered.push(...said([await slow.ask(`careful ${answered.length}`)]));
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(sent.length).toBeGreaterThan(10);
    expect(answered).toEqual(answered.map((_, nth) => `careful: took care of careful ${nth}`));
    expect(answered.length).toBeGreaterThanOrEqual(8);
    const away = () => [archiveState()!.isAway, other.archiveState()!.isAway];
    await expect.poll(away).toContain(true);
    expect(unarchived()).toBeGreaterThanOrEqual(sent.length + 2 * answered.length);

    // A session that is made now: no other process can know the id that its pod has just drawn.
    const made = await sessions.create("asker", { user: "ann" });
    const asks = await made.ask("where am I?");
    await made.toolResult(asks.messageId, [{ toolCallId: "call-1", output: "at sea" }]);
    // Clients of another pod join it, and see every message once.
    const joined = other.sessions.open(made.sessionId, { user: "bob" });
    const entries = await entriesOnce(joined, (all) => textOf(all.at(-1) ?? asks) === "found");
    expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, nth) => nth + 1));
    expect((await joined.view()).users).toEqual(["ann"]);
    await made.read(1);
    const known = await entriesOnce(other.sessions.open(chat.sessionId), (all) =>
      said(all).includes(`ann: ${sent.at(-1)}`),
    );
    expect(said(known)[0]).toBe("ann: before");
    // One that may be there, as far as anybody knows, is neither made nor written. A caller whose time is over
    // while its pod asks its log once more isn't told which of the two it is.
    const inVain = { code: expect.stringMatching(/unavailable$|^unknown_outcome$/) };
    const refused = [
      sessions.create("echo", { user: "ann", sessionId: "from-outside" }),
      sessions.open("from-outside", { user: "ann" }).send("hi"),
    ];
    for (const each of refused) await expect(each).rejects.toMatchObject(inVain);

    await postgres.start();
    await expect.poll(unarchived).toBe(0);
    const sql = await client(postgres.url);
    const { rows } = await sql.query(
      "select body, seq from flotilla.message where session_id = $1 order by seq",
      [chat.sessionId],
    );
    expect(rows.map(({ seq }) => Number(seq))).toEqual(rows.map((_, nth) => nth + 1));
    const all = rows.map(({ body }) => String(body)).join("\n");
    expect(sent.filter((text) => !all.includes(`"${text}"`))).toEqual([]);
    // What was learned of the throttle, and who has which share, is where pages look.
    const shares = async () =>
      (await sql.query("select shares from flotilla.throttle where name = 'careful-model'")).rows;
    await expect.poll(shares).toEqual([{ shares: expect.any(String) }]);
    await expect(
      sessions.create("echo", { user: "ann", sessionId: "from-outside" }),
    ).resolves.toBeDefined();
  }, 300_000);

  test("has nothing of a message in its streams that the codec didn't encode", async () => {
    const store = await database();
    const nats = onCluster();
    const codec = encryption({ keys: { k1: Buffer.alloc(32, 7).toString("base64") } });
    const { sessions } = await pod({ store, nats, codec });
    const chat = await sessions.create("echo", { user: "ann-the-member" });
    await chat.ask("a secret of hers");
    const bodies = await streamed(nats.namespace!);
    expect(bodies.length).toBeGreaterThan(2);
    expect(bodies.filter((body) => /secret of hers|ann-the-member/.test(body))).toEqual([]);
    const another = await pod({ store, nats, codec });
    const seen = await entriesOnce(another.sessions.open(chat.sessionId), (all) => all.length >= 2);
    expect(said(seen).at(-1)).toBe("echo: you said a secret of hers");
  });
});

describe("a pod is refused at its start, in a sentence that says what to do", () => {
  const replicas = { use: "all", durability: "replicas" } as const;

  test.each<[string, Parameters<typeof startNats>[0], Partial<NatsConfig>, RegExp]>([
    ["without JetStream", {}, replicas, /keep no streams for this account: set jetstream/],
    [
      "with messages that are too small",
      { jetStream: true, config: "max_payload: 1MB" },
      replicas,
      /max_payload of the NATS servers is 1048576 bytes: set it to 8MB/,
    ],
    ["by one server alone", { jetStream: true }, replicas, /needs 3 NATS servers with JetStream/],
    [
      "where no address tells whether servers flush",
      { jetStream: true },
      { use: "all" },
      /set nats\.monitor to their monitoring addresses, or nats\.durability to "replicas"/,
    ],
    [
      "with wrong credentials",
      { jetStream: true, config: "authorization { token: hunter2 }" },
      { ...replicas, credentials: { token: "wrong" } },
      /refuse these credentials: set nats\.credentials/,
    ],
  ])("%s", async (_, options, config, sentence) => {
    const { url } = await server(options);
    const store = await database();
    await expect(pod({ store, nats: { servers: url, ...config } })).rejects.toThrow(sentence);
  });

  test("where an address of nats.monitor doesn't answer", async () => {
    const { url } = await server({ jetStream: true });
    const nats = { servers: url, use: "all", monitor: "http://127.0.0.1:1" } as const;
    await expect(pod({ store: await database(), nats })).rejects.toThrow(
      /says anything of itself at http:\/\/127\.0\.0\.1:1\/varz .*: set `http`/,
    );
  });

  test("where a certificate doesn't verify", async () => {
    const certificates = makeCertificates();
    cleanUps.push(() => certificates.remove());
    const { port } = await server({
      jetStream: true,
      config: `tls { cert_file: "${certificates.certificate}", key_file: "${certificates.key}" }`,
    });
    const nats = { servers: `tls://localhost:${port}`, ...replicas };
    const tls = { caFile: certificates.stranger };
    await expect(pod({ store: await database(), nats: { ...nats, tls } })).rejects.toThrow(
      /certificate of a NATS server .* doesn't verify .*: name its authority in nats\.tls\.caFile/,
    );
  });

  test.each([
    ["$JS.API.STREAM.INFO.>", /may not publish to \$JS\.API\.STREAM\.INFO/],
    ["$JS.API.DIRECT.GET.>", /may not publish to \$JS\.API\.DIRECT\.GET/],
    ["flotilla.flotilla.log.*.*.m", /may not publish to flotilla\.flotilla\.log\.\d+\..*\.m/],
    ["flotilla.flotilla.meta", /may not publish to flotilla\.flotilla\.meta/],
  ])("where its user may not publish to %s", async (denied, sentence) => {
    const permissions = `publish: { deny: "${denied}" }`;
    const { url } = await server({
      jetStream: true,
      config: `authorization { users: [{ user: ann, password: pw, permissions: { ${permissions} } }] }`,
    });
    const credentials = { user: "ann", password: "pw" };
    const nats = { servers: url, credentials, use: "all", durability: "single" } as const;
    await expect(pod({ store: await database(), nats })).rejects.toThrow(sentence);
  });

  test("where the servers have no room for what logs reserve", async () => {
    const { url } = await server({ jetStream: true, maxFileStore: "1GB" });
    const nats = { servers: url, use: "all", durability: "single" } as const;
    await expect(pod({ store: await database(), nats })).rejects.toThrow(/raise max_file_store/);
  });

  test("where the streams are of another deployment", async () => {
    const nats = onCluster();
    await pod({ store: await database(), nats });
    await expect(pod({ store: await database(), nats })).rejects.toThrow(
      /belongs to (?:the|another) deployment.*: set nats\.namespace to one that is free/,
    );
  });

  test("where a stream was changed by hand", async () => {
    const nats = onCluster();
    const store = await database();
    await (await pod({ store, nats })).stop();
    const connection = await connectClient({ servers: [...cluster.urls] });
    cleanUps.push(() => connection.close());
    const { streams } = await jetstreamManager(connection, { timeout: 60_000 });
    for await (const { config } of streams.list()) {
      if (!config.name.startsWith(`FLOTILLA_${nats.namespace}_0_`)) continue;
      await streams.update(config.name, { discard: "old" as never });
    }
    await expect(pod({ store, nats })).rejects.toThrow(/was changed by hand: set it back/);
  });

  test("where the store's logs are in the database already", async () => {
    const store = await database();
    const plain = await pod({ store });
    await (await plain.sessions.create("echo", { user: "ann" })).ask("hello");
    await plain.stop();
    await expect(pod({ store, nats: onCluster() })).rejects.toThrow(
      /are in the database: start pods with nats\.use "bus", then `flotilla promote --to nats` moves/,
    );
  });

  test("where it doesn't know of NATS and the store's logs are there", async () => {
    const store = await database();
    await (await pod({ store, nats: onCluster() })).stop();
    await expect(pod({ store })).rejects.toThrow(
      /are on NATS: give this pod the `nats` of the others/,
    );
    await expect(pod({ store, nats: { servers: cluster.urls } })).rejects.toThrow(/are on NATS/);
  });

  test("with SQLite, unless one server is enough", async () => {
    const { path, remove } = temporaryFile();
    cleanUps.push(remove);
    const store = `sqlite:${path}`;
    await expect(pod({ store, nats: onCluster() })).rejects.toThrow(/needs a store on Postgres/);
    const { url } = await server({ jetStream: true });
    const nats = { servers: url, use: "all", durability: "single" } as const;
    const { sessions } = await pod({ store, nats });
    const chat = await sessions.create("echo", { user: "ann" });
    expect(said([await chat.ask("hello")])).toEqual(["echo: you said hello"]);
  });
});

test("a server that acknowledges before it flushes is refused, unless that is said to be enough", async () => {
  const lazy = await startNatsCluster({ syncInterval: "2m" });
  cleanUps.push(() => lazy.stop());
  const nats = { servers: lazy.urls, use: "all", monitor: monitorsOf(lazy.servers) } as const;
  const store = await database();
  await expect(pod({ store, nats })).rejects.toThrow(
    /acknowledges before it flushes: set sync_interval to always .* or nats\.durability/,
  );
  const { sessions } = await pod({ store, nats: { ...nats, durability: "replicas" } });
  const chat = await sessions.create("echo", { user: "ann" });
  expect(said([await chat.ask("hello")])).toEqual(["echo: you said hello"]);
});
