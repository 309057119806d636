import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectClient } from "@nats-io/transport-node";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { FlotillaError } from "../../src/base/errors.ts";
import { silentLogger } from "../../src/base/log.ts";
import type { NatsConfig } from "../../src/bus/nats/config.ts";
import { connect } from "../../src/runtime/connect.ts";
import type { Pod, PodEvent } from "../../src/runtime/pod.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { events, serve, sse } from "../../src/sessions/contract/turns-harness.ts";
import { encryption } from "../../src/store/codec/encryption.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { task } from "../../src/tasks/task.ts";
import { built } from "../built.ts";
import { start } from "../command.ts";
import { startChaosProxy } from "../crash/postgres/chaos-proxy.ts";
import { entriesOnce, said } from "../sessions/fleet.ts";
import { type NatsServer, startNats } from "./server.ts";
import { ask, createUnnamed, echoConfig } from "./talking.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});

let server: NatsServer;
let used = 0;
const cleanUps: (() => unknown)[] = [];
beforeAll(async () => {
  server = await startNats({ jetStream: true, maxFileStore: "64GB" });
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});
afterAll(() => server.stop());

type Given = Partial<Parameters<typeof startPod>[0]> & { store: string };

/** A database behind a proxy that can take it away, and what runs on it. */
async function deployment() {
  const place = await temporaryDatabase();
  cleanUps.push(() => place.remove());
  const proxy = await startChaosProxy(place.url);
  cleanUps.push(() => proxy.close());
  const sql = new pg.Client(place.url);
  await sql.connect();
  cleanUps.push(() => sql.end());
  const namespace = `late_${++used}`;
  const nats: NatsConfig = {
    servers: server.url,
    use: "all",
    durability: "single",
    namespace,
  };
  const store = proxy.through(place.url);
  const dataDir = mkdtempSync(join(tmpdir(), "flotilla-late-"));
  cleanUps.push(() => rmSync(dataDir, { recursive: true, force: true }));
  const given: Given = { store, nats, use: [echo], dataDir, shutdownMs: 2_000 };
  const errors: string[] = [];
  const log = { ...silentLogger, error: (fields: object) => errors.push(JSON.stringify(fields)) };
  const pod = async (more: Partial<Given> = {}, onEvent?: (event: PodEvent) => void) => {
    const started = await startPod({ log, ...given, ...more }, onEvent ? { onEvent } : {});
    cleanUps.push(() => started.stop());
    return started;
  };
  return { proxy, sql, nats, namespace, store, given, pod, errors };
}

/** What the meta message of a namespace says. */
async function metaOf(namespace: string): Promise<{ secret?: string }> {
  const connection = await connectClient({ servers: server.url });
  try {
    const { streams } = await jetstreamManager(connection);
    const last = { last_by_subj: `flotilla.${namespace}.meta` };
    return (await streams.getMessage(`FLOTILLA_${namespace}_META`, last))!.json();
  } finally {
    await connection.close();
  }
}

const secretKept = async (namespace: string) =>
  await expect.poll(async () => (await metaOf(namespace)).secret).toBeDefined();

const archived = async (pod: Pod) =>
  await expect.poll(() => pod.archiveState()?.unarchivedEntries).toBe(0);

describe("a pod that starts while Postgres is away", () => {
  test("goes on with the chats of its logs, makes new ones, and is a pod like any other once it is back", async () => {
    const { proxy, sql, namespace, pod } = await deployment();
    let ran = 0;
    const mail = task("mail", {}, () => {
      ran++;
      return null;
    });
    const use = [echo, mail];
    const first = await pod({ use });
    const chat = await first.sessions.create("echo", { user: "ann" });
    await chat.ask("one");
    await archived(first);
    await secretKept(namespace);
    await proxy.refuse();
    await chat.ask("two");
    await first.stop();

    const events: string[] = [];
    const late = await pod({ use }, ({ type }) => events.push(type));
    const other = await pod({ use });
    // What the database has of it isn't needed, and what it lacks is there.
    const there = late.sessions.open(chat.sessionId, { user: "ann" });
    expect(said([await there.ask("three")])).toEqual(["echo: you said three"]);
    const made = await late.sessions.create("echo", { user: "bob" });
    const { tasks } = await made.send("and a task", { tasks: [{ task: mail, input: {} }] });
    const seen = await entriesOnce(made, (all) => all.length >= 2);
    expect(said(seen)).toEqual(["bob: and a task", "echo: you said and a task"]);
    // The two know each other, and what they send each other is signed.
    const joined = other.sessions.open(made.sessionId, { user: "bob" });
    expect(said([await joined.ask("from there")])).toEqual(["echo: you said from there"]);
    const known = await entriesOnce(other.sessions.open(chat.sessionId), (all) => all.length >= 6);
    expect(said(known).filter((text) => text.startsWith("echo"))).toEqual([
      "echo: you said one",
      "echo: you said two",
      "echo: you said three",
    ]);
    await expect(late.enqueue(mail, {})).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringMatching(/has been away since this pod started/),
      retryAfterMs: 1_000,
    });
    expect([ran, late.archiveState()!.isAway]).toEqual([0, true]);

    await proxy.accept();
    expect(await late.waitFor(tasks![0]!, { timeoutMs: 60_000 })).toBeNull();
    const pods = async () => {
      const { rows } = await sql.query("select pod_id from flotilla.pod where status = 'up'");
      return rows.map((row) => row.pod_id as string).toSorted();
    };
    const both = [late.podId, other.podId].toSorted();
    await expect.poll(pods).toEqual(expect.arrayContaining(both));
    await archived(late);
    await archived(other);
    const { rows } = await sql.query(
      "select body from flotilla.message where session_id = $1 order by seq",
      [chat.sessionId],
    );
    expect(rows).toHaveLength(6);
    await expect.poll(() => ran).toBe(1);
    await late.waitFor(await late.enqueue(mail, {}), { timeoutMs: 60_000 });
    expect(ran).toBe(2);
    expect(events).toContain("beat");
    expect(events).not.toContain("refused");
  }, 240_000);

  test("gives an agent behind a URL addresses of files, though the database has what they are signed with", async () => {
    const { proxy, namespace, nats, store, pod } = await deployment();
    const text = [
      { type: "text-start", id: "t" },
      { type: "text-delta", id: "t", delta: "I see." },
      { type: "text-end", id: "t" },
      { type: "finish" },
    ];
    const seeing = await serve((answer) => {
      answer.writeHead(200, sse).end(events(...text));
    });
    cleanUps.push(() => seeing[Symbol.asyncDispose]());
    const use = [agent("seer", { url: seeing.url, allowPrivate: true })];
    const files = { publicUrl: "https://chat.example.com" };
    const first = await pod({ use, files });
    const chat = await first.sessions.create("seer", { user: "ann" });
    const part = await chat.upload(Buffer.from("a picture"), { mediaType: "image/png" });
    await chat.ask([part]);
    await secretKept(namespace);
    await proxy.refuse();
    await first.stop();
    const late = await pod({ use, files });
    const there = late.sessions.open(chat.sessionId, { user: "ann" });
    expect(said([await there.ask("and now?")])).toEqual(["seer: I see."]);
    const { body } = seeing.requests.at(-1)!;
    const [, access] = /https:\/\/chat\.example\.com\/v1\/files\/([^/"]+)/.exec(body)!;
    await proxy.accept();
    await using web = connect(store, { nats });
    expect(await web.files.check(access!)).toMatchObject({ sessionId: chat.sessionId });
  });

  test("finds what the codec has encoded, and no secret in the clear", async () => {
    const { proxy, sql, namespace, pod } = await deployment();
    const codec = encryption({ keys: { one: Buffer.alloc(32, 1).toString("base64") } });
    const first = await pod({ codec });
    const chat = await first.sessions.create("echo", { user: "ann" });
    await chat.ask("one");
    await secretKept(namespace);
    const { rows } = await sql.query("select secret from flotilla.bus_secret");
    expect(JSON.stringify(await metaOf(namespace))).not.toContain(rows[0].secret);
    await proxy.refuse();
    await first.stop();
    // Without the key it could talk to no other.
    await expect(pod()).rejects.toMatchObject({ code: "store_unavailable" });
    const late = await pod({ codec });
    const there = late.sessions.open(chat.sessionId, { user: "ann" });
    expect(said([await there.ask("two")])).toEqual(["echo: you said two"]);
    // A pod that ends before it was let in leaves nothing behind.
    await late.stop();
    await proxy.accept();
    const listed = await sql.query("select 1 from flotilla.pod where pod_id = $1", [late.podId]);
    expect(listed.rows).toEqual([]);
  });

  const definite: readonly [string, string, string, RegExp][] = [
    [
      "is of a newer release",
      `insert into flotilla.migration (id, name, needs, applied_at)
        select max(id) + 1, 'later', max(id) + 1, 0 from flotilla.migration`,
      "store_newer",
      /this release knows \d+ and can't work with it/,
    ],
    [
      "is another deployment's",
      "update flotilla.log_place set cluster_id = 'another'",
      "unsupported",
      /belongs to the deployment .*, and the database to another/,
    ],
    [
      "has the logs itself",
      "update flotilla.log_place set place = 'sql'",
      "unsupported",
      /doesn't say what the database does of where logs are/,
    ],
    [
      "has another secret",
      "update flotilla.bus_secret set secret = 'another'",
      "conflict",
      /has another secret than its pods had/,
    ],
  ];
  test.each(definite)(
    "stops, and says why, where it turns out that the store %s",
    async (_, change, code, why) => {
      const { proxy, sql, namespace, pod, errors } = await deployment();
      const first = await pod();
      const chat = await first.sessions.create("echo", { user: "ann" });
      await chat.ask("one");
      await secretKept(namespace);
      await proxy.refuse();
      await first.stop();
      const refused: FlotillaError[] = [];
      const late = await pod({}, (event) => {
        if (event.type === "refused") refused.push(event.error);
      });
      const there = late.sessions.open(chat.sessionId, { user: "ann" });
      await there.ask("two");
      await sql.query(change);
      await proxy.accept();
      await expect.poll(() => refused.length).toBe(1);
      expect(refused[0]).toMatchObject({ code, message: expect.stringMatching(why) });
      expect(errors.filter((each) => why.test(each))).toHaveLength(1);
      await expect(late.enqueue("mail", {})).rejects.toMatchObject({
        code: expect.stringMatching(`^${code}$|^closed$`),
      });
      await late.stop();
      const listed = await sql.query("select 1 from flotilla.pod where pod_id = $1", [late.podId]);
      expect(listed.rows).toEqual([]);
      // It has changed nothing there.
      const { rows } = await sql.query("select body from flotilla.message");
      expect(JSON.stringify(rows)).not.toContain("you said two");
    },
  );

  test("is refused as ever where that isn't why it can't be used, or no streams have logs", async () => {
    const { proxy, sql, namespace, nats, store, pod } = await deployment();
    const away = { code: "store_unavailable", message: expect.stringMatching(/can't be reached/) };
    await proxy.refuse();
    await expect(pod()).rejects.toMatchObject(away);
    await proxy.accept();
    const first = await pod();
    await secretKept(namespace);
    const stranger = store.replace(/\/\/[^@]*@/, "//nobody@");
    await expect(pod({ store: stranger })).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringMatching(/refuses this user/),
    });
    const missing = new URL(store);
    missing.pathname = "/nowhere";
    await expect(pod({ store: missing.href })).rejects.toMatchObject({ code: "store_missing" });
    await proxy.refuse();
    await expect(pod({ sessions: false })).rejects.toMatchObject(away);
    const elsewhere = { ...nats, namespace: `${namespace}_none` };
    await expect(pod({ nats: elsewhere })).rejects.toMatchObject(away);
    await first.stop();
    await proxy.accept();
    expect((await sql.query("select place from flotilla.log_place")).rows).toEqual([
      { place: "nats" },
    ]);
  });
});

test("a server that starts while Postgres is away is ready and answers, and its process ends where that can't be used", async () => {
  const { proxy, sql, namespace, nats, store, pod } = await deployment();
  const first = await pod();
  await using web = connect(store, { nats });
  const chat = await web.sessions.create("echo", { user: "ann" });
  await chat.ask("one");
  await secretKept(namespace);
  await proxy.refuse();
  await first.stop();
  const folder = mkdtempSync(join(tmpdir(), "flotilla-late-command-"));
  cleanUps.push(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "flotilla.config.mjs"), echoConfig(built.index));
  const env = {
    FLOTILLA_STORE: store,
    FLOTILLA_NATS: `${server.url}?use=all&durability=single&namespace=${namespace}`,
  };
  const { child, output, ended } = start(["serve", "--port", "0"], { cwd: folder, env });
  cleanUps.push(() => child.kill("SIGKILL"));
  await expect.poll(() => output.stdout).toMatch(/listens on (\S+)/);
  const [, url] = /listens on (\S+)/.exec(output.stdout)!;
  const ready = async () => {
    const answer = await fetch(`${url}/health/ready`);
    return { status: answer.status, body: await answer.json() };
  };
  await expect
    .poll(ready)
    .toEqual({ status: 200, body: { status: "ready", nats: "connected", archive: "away" } });
  await expect.poll(() => output.stderr).toContain("pod started");
  expect(await ask(url!, chat.sessionId, "two")).toBe("you said two");
  const made = await createUnnamed(url!);
  expect(await ask(url!, made, "three")).toBe("you said three");
  const refusal = async (path: string, body: string, type = "application/json") => {
    const headers = { "Content-Type": type };
    const answer = await fetch(`${url}/v1/sessions${path}`, { method: "POST", headers, body });
    const { error } = (await answer.json()) as { error: { code: string } };
    return [answer.status, error.code, answer.headers.get("retry-after")];
  };
  // Files are in the database, wherever their bytes are.
  const isAway = [503, "store_unavailable", "5"];
  expect(await refusal(`/${made}/files`, "hello", "text/plain")).toEqual(isAway);
  const picture = { type: "file", mediaType: "image/png", url: "data:image/png;base64,aGVsbG8=" };
  const withPicture = JSON.stringify({ author: "ann", parts: [picture] });
  expect(await refusal(`/${made}/messages`, withPicture)).toEqual(isAway);
  // Only the database knows whether an id from outside is new, whatever its sender says.
  const outside = { sessionId: "from-outside", agents: ["echo"], users: ["ann"] };
  expect((await refusal("", JSON.stringify(outside))).slice(0, 2)).toEqual(isAway.slice(0, 2));
  expect(await refusal("", JSON.stringify({ ...outside, isFresh: true }))).toEqual([
    400,
    "invalid_option",
    null,
  ]);
  // One that starts now knows no revocation, and takes a user's token that was issued a moment ago.
  await using late = connect(store, { nats });
  await late.credentials.ready();
  const ofToken = { kind: "token", tenant: "default", user: "ann" } as const;
  const issued = (agoMs: number) =>
    late.credentials.refusalOf({ ...ofToken, issuedAtMs: Date.now() - agoMs })?.code;
  expect([issued(0), issued(3_600_000)]).toEqual([undefined, "unavailable"]);
  await sql.query("update flotilla.log_place set cluster_id = 'another'");
  await proxy.accept();
  const { code, stderr } = await ended;
  expect(code).not.toBe(0);
  expect(stderr).toContain("and the database to another: set nats.namespace to one that is free");
});
