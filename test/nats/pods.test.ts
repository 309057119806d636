import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectClient } from "@nats-io/transport-node";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { silentLogger } from "../../src/base/log.ts";
import type { NatsConfig } from "../../src/bus/nats/config.ts";
import { connect } from "../../src/runtime/connect.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { encryption } from "../../src/store/codec/encryption.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";
import { makeCertificates } from "../postgres/certificates.ts";
import { startPostgres } from "../postgres/server.ts";
import { entriesOnce, said } from "../sessions/fleet.ts";
import { type NatsCluster, type NatsServer, startNats, startNatsCluster } from "./server.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});

let cluster: NatsCluster;
let used = 0;
const cleanUps: (() => unknown)[] = [];
const warnings: string[] = [];
beforeAll(async () => {
  cluster = await startNatsCluster();
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

type PodOptions = { store: string; nats?: NatsConfig; codec?: ReturnType<typeof encryption> };

async function pod({ store, nats, codec }: PodOptions) {
  const started = await startPod({
    store,
    use: [echo],
    log: { ...silentLogger, warn: (_: unknown, message: string) => warnings.push(message) },
    dataDir: false,
    shutdownMs: 2_000,
    ...(nats && { nats }),
    ...(codec && { codec }),
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
    const manager = await jetstreamManager(connection);
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

  test("takes messages from a program that is no pod", async () => {
    const store = await database();
    const nats = onCluster();
    await pod({ store, nats });
    await using web = connect(store, { nats, log: silentLogger });
    expect(web.hasStreamLogs).toBe(true);
    const chat = await web.sessions.create("echo", { user: "ann" });
    expect(said([await chat.ask("hello")])).toEqual(["echo: you said hello"]);
    // What pods say of themselves is understood by all of them.
    expect(warnings.filter((each) => each.includes("beats dropped"))).toEqual([]);
    const entries = await entriesOnce(chat, (all) => all.length >= 2);
    expect(said(entries)).toEqual(["ann: hello", "echo: you said hello"]);
  });

  test("is shown to pages as the owner of its logs", async () => {
    const store = await database();
    const nats = onCluster();
    const { podId, sessions } = await pod({ store, nats });
    const { sessionId } = await sessions.create("echo", { user: "ann" });
    await using web = connect(store, { nats, log: silentLogger });
    const owner = () => web.pages.sessionOwner("default", sessionId);
    await expect.poll(owner, { timeout: 30_000 }).toMatchObject({ podId });
    const { logId, term } = (await owner())!;
    expect(term).toBeGreaterThan(0);
    const shown = (await web.pages.fleet()).pods.find((each) => each.podId === podId);
    expect(shown?.logs).toContain(logId);
    expect((await web.pages.pods())[0]?.logs).toContain(logId);
    expect(await web.pages.sessionOwner("elsewhere", sessionId)).toBeUndefined();
  });

  test("fails no append while Postgres is away for ten seconds, and loses none", async () => {
    const postgres = await startPostgres();
    cleanUps.push(() => postgres.stop());
    const nats = onCluster();
    const { sessions, archiveState } = await pod({ store: postgres.url, nats });
    const chat = await sessions.create("echo", { user: "ann" });
    await chat.ask("before");
    await postgres.kill();
    const sent: string[] = [];
    const endMs = performance.now() + 10_000;
    while (performance.now() < endMs) {
      const text = `while it is away ${sent.length}`;
      await chat.send(text);
      sent.push(text);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(sent.length).toBeGreaterThan(10);
    expect(archiveState()).toMatchObject({ isAway: true });
    expect(archiveState()!.unarchivedEntries).toBeGreaterThanOrEqual(sent.length);
    await postgres.start();
    await expect.poll(() => archiveState()!.unarchivedEntries, { timeout: 60_000 }).toBe(0);
    const sql = await client(postgres.url);
    const { rows } = await sql.query(
      "select body, seq from flotilla.message where session_id = $1 order by seq",
      [chat.sessionId],
    );
    expect(rows.map(({ seq }) => Number(seq))).toEqual(rows.map((_, nth) => nth + 1));
    const all = rows.map(({ body }) => String(body)).join("\n");
    expect(sent.filter((text) => !all.includes(`"${text}"`))).toEqual([]);
  });

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
    const { streams } = await jetstreamManager(connection);
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
      /are in the database: set nats\.use to "bus", or name a store that has no sessions yet/,
    );
  });

  test("where it doesn't know of NATS and the store's logs are there", async () => {
    const store = await database();
    await (await pod({ store, nats: onCluster() })).stop();
    await expect(pod({ store })).rejects.toThrow(
      /are on NATS: give this pod the `nats` of the others, with `use: "all"`/,
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
