import { createHash, createHmac, randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { type Client, createClient } from "../../src/client/index.ts";
import type { Entry, Part } from "../../src/protocol/message.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { built } from "../built.ts";
import { type Outcome, start } from "../command.ts";
import { until } from "../crash/until.ts";
import { startNatsCluster } from "./server.ts";
import { makeSession } from "./talking.ts";

const limitMs = 300_000;
const hookSecret = "a-secret-of-the-sender";

/** Says what it was told, and the hash of each file that came with it. */
const program = `
  import { createHash } from "node:crypto";
  import { agent, defineConfig, githubSignature, hook } from ${JSON.stringify(built.index)};
  const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");
  const reader = agent("reader", async function* ({ messages, files }) {
    const { parts } = messages.at(-1);
    for (const part of parts) {
      if (part.type === "text") yield "heard " + part.text + ". ";
      if (part.type === "file") yield "read " + hash(await files.read(part)) + ". ";
    }
  });
  const builds = hook("builds", {
    verify: githubSignature({ secret: ${JSON.stringify(hookSecret)} }),
    handle: (delivery) => ({ sessionId: "chat", message: delivery.json().says }),
  });`;

const saidIn = (entries: readonly Entry[]) =>
  entries
    // That a wake was set or has fired is an entry too, which has what the agent is asked.
    .filter(({ kind }) => kind === "message")
    .map(({ parts }) => parts.map(textOf).join("").trim());

function textOf(part: Part): string {
  const { text, size } = part as { text?: string; size?: number };
  return text ?? `a file of ${size} bytes`;
}

test(
  "with logs on NATS, files, forks, wakes and hooks go on though a pod and a server are killed, each once",
  async () => {
    const cluster = await startNatsCluster();
    onTestFinished(() => cluster.stop());
    const { url: store, remove } = await temporaryDatabase();
    onTestFinished(remove);
    const folder = mkdtempSync(join(tmpdir(), "flotilla-conversations-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const monitor = cluster.servers.map(({ monitorUrl }) => monitorUrl);
    const nats = { servers: cluster.urls, use: "all", monitor };
    const config = JSON.stringify({ store, nats, sessions: { logs: 4 } });
    writeFileSync(
      join(folder, "flotilla.config.mjs"),
      `${program}
    export default defineConfig({ ...${config}, use: [reader], server: { hooks: [builds] } });`,
    );
    const serve = async () => {
      const { child, output, ended } = start(["serve", "--port", "0"], { cwd: folder });
      const kill = async () => {
        child.kill("SIGKILL");
        await ended;
      };
      onTestFinished(kill);
      const listens = () => /listens on (\S+)/.exec(output.stdout)?.[1];
      const url: string | Outcome = await Promise.race([until("a pod listens", listens), ended]);
      if (typeof url !== "string") throw new Error(`a pod ended: ${url.stderr}`);
      const client = createClient({ url, user: "ada" });
      onTestFinished(() => client.close());
      return { url, client, kill };
    };
    let one = await serve();
    const two = await serve();

    const entriesOf = async ({ sessions }: Client, sessionId: string) =>
      (await sessions.entries(sessionId)).entries;
    /** What a pod tells of a session, once that is all of this. */
    const reads = async (client: Client, sessionId: string, said: readonly string[]) =>
      await expect
        .poll(async () => saidIn(await entriesOf(client, sessionId).catch(() => [])))
        .toEqual(said);

    const bytes = new Uint8Array(700_000).map((_, at) => at % 251);
    const hash = createHash("sha256").update(bytes).digest("hex");
    await makeSession(one.url, { sessionId: "chat", agents: ["reader"], users: ["ada"] });
    const photo = await one.client.sessions.upload("chat", bytes, {
      filename: "photo.png",
      mediaType: "image/png",
    });
    await one.client.session("chat").send([{ ...photo }]);
    const begun = ["a file of 700000 bytes", `read ${hash}.`];
    await reads(two.client, "chat", begun);
    await two.client.session("chat").send("one");
    const first = [...begun, "one", "heard one."];
    await reads(one.client, "chat", first);

    // A fork shares what was said and its files, through whichever pod.
    const [, , message] = await entriesOf(two.client, "chat");
    const edited = await two.client.sessions.edit("chat", message!.messageId, "uno", {
      id: "fork",
    });
    expect(edited.session).toMatchObject({ sessionId: "fork", parent: { sessionId: "chat" } });
    const forked = [...begun, "uno", "heard uno."];
    await reads(one.client, "fork", forked);

    // Set by the pod that is killed at once, while one of the servers is gone.
    const wake = { key: "tea", afterMs: 5_000, message: "tea" };
    await one.client.sessions.wake("chat", wake);
    await cluster.servers[0]!.kill();
    await one.kill();
    const woken = [...first, "heard tea."];
    await reads(two.client, "chat", woken);
    one = await serve();
    expect(await one.client.sessions.wakes("chat")).toEqual([]);

    // A delivery that is sent again, to whichever pod, says one thing.
    const body = JSON.stringify({ says: "the build is red" });
    const signature = createHmac("sha256", hookSecret).update(body).digest("hex");
    const delivery = randomUUID();
    const deliver = async (url: string) => {
      const answer = await fetch(`${url}/v1/hooks/builds`, {
        method: "POST",
        body,
        headers: {
          "Content-Type": "application/json",
          "X-GitHub-Delivery": delivery,
          "X-Hub-Signature-256": `sha256=${signature}`,
        },
      });
      await answer.text();
      return answer.ok;
    };
    for (const { url } of [two, one, two])
      await until("it is delivered", () => deliver(url).catch(() => false));
    const last = [...woken, "the build is red", "heard the build is red."];
    for (const { client } of [one, two]) await reads(client, "chat", last);

    // The fork has the file and what was said, though the session that it shares them with is gone.
    await cluster.servers[0]!.start();
    await until("it is deleted", () =>
      two.client.sessions.remove("chat").then(
        () => true,
        () => false,
      ),
    );
    await reads(one.client, "fork", forked);
    await one.client.session("fork").send([{ ...photo }]);
    const all = [...forked, ...begun];
    for (const { client } of [one, two]) await reads(client, "fork", all);

    // And so does the database.
    const sql = new pg.Client(store);
    await sql.connect();
    onTestFinished(() => sql.end());
    const archived = async () => {
      const { rows } = await sql.query(
        "select count(*)::int as found from flotilla.message where session_id = 'fork'",
      );
      return rows[0]!.found as number;
    };
    await expect.poll(archived).toBe(4);
    await reads(two.client, "fork", all);
  },
  limitMs,
);
