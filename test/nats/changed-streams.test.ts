import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager, type StreamAPI } from "@nats-io/jetstream";
import { connect as connectClient } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Logger, silentLogger } from "../../src/base/log.ts";
import type { NatsConfig } from "../../src/bus/nats/config.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import type { Entry } from "../../src/protocol/message.ts";
import type { Chat } from "../../src/sessions/sessions.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { run } from "../command.ts";
import { said } from "../sessions/fleet.ts";
import { untilAnswered } from "./retried.ts";
import { type NatsCluster, startNatsCluster } from "./server.ts";

const echo = agent("echo", async function* ({ messages }) {
  yield `you said ${String(messages.at(-1)?.parts[0]?.["text"])}`;
});

let cluster: NatsCluster;
let used = 0;
const cleanUps: (() => unknown)[] = [];
beforeAll(async () => {
  cluster = await startNatsCluster();
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});
afterAll(() => cluster.stop());

type Line = { readonly fields: object; readonly message: string };

/** A pod with one log on three servers, and what it says. */
async function onePod() {
  const nats: NatsConfig = {
    servers: cluster.urls,
    use: "all",
    monitor: cluster.servers.map(({ monitorUrl }) => monitorUrl),
    namespace: `changed_${++used}`,
  };
  const { url: store, remove } = await temporaryDatabase();
  cleanUps.push(remove);
  const lines: Line[] = [];
  const note: Logger["warn"] = (fields, message) => void lines.push({ fields, message });
  const pod = await startPod({
    store,
    use: [echo],
    sessions: { logs: 1 },
    log: { ...silentLogger, warn: note, error: note, info: note },
    dataDir: false,
    shutdownMs: 2_000,
    nats,
  });
  cleanUps.push(() => pod.stop());
  const connection = await connectClient({ servers: [...cluster.urls] });
  cleanUps.push(() => connection.close());
  const { streams } = await jetstreamManager(connection, { timeout: 60_000 });
  const named = async (part: string): Promise<string> => {
    for await (const { config } of streams.list()) {
      if (config.name.startsWith(`FLOTILLA_${nats.namespace}_${part}`)) return config.name;
    }
    throw new Error(`there is no stream of ${part}`);
  };
  const told = (stream: string) =>
    lines.filter(({ fields }) => "stream" in fields && fields.stream === stream);
  return { store, nats, pod, streams, named, told, connection };
}

/** What `flotilla doctor` says of these streams. */
async function doctor({ store, nats }: Pick<Awaited<ReturnType<typeof onePod>>, "store" | "nats">) {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-changed-"));
  cleanUps.push(() => rmSync(folder, { recursive: true, force: true }));
  const monitors = cluster.servers.map(({ monitorUrl }) => `monitor=${monitorUrl}`);
  const query = ["use=all", `namespace=${nats.namespace}`, ...monitors].join("&");
  const env = { FLOTILLA_NATS: `${cluster.urls.join(",")}?${query}` };
  return (await run(["doctor", "--store", store], { cwd: folder, env })).stdout;
}

/** Asks until a log without an owner or a leader has them again. Under its id a message is stored once. */
function askAgain(chat: Chat, text: string): Promise<Entry> {
  const id = randomUUID();
  return untilAnswered(() => chat.ask(text, { id }));
}

type Change = Parameters<StreamAPI["update"]>[1];

const changes: readonly [Change, Change, string, unknown, unknown][] = [
  [{ max_age: 3_600_000_000_000 }, { max_age: 0 }, "maxAgeMs", 3_600_000, 0],
  [{ discard: "old" as never }, { discard: "new" as never }, "discard", "old", "new"],
  [{ num_replicas: 1 }, { num_replicas: 3 }, "replicas", 1, 3],
];

test("S1: a log takes no messages while its stream could lose them, says what to set, and goes on when it is set back", async () => {
  const { store, nats, pod, streams, named, told } = await onePod();
  const chat = await pod.sessions.create("echo", { user: "ann" });
  await chat.ask("before");
  const stream = await named("0_");
  const isRefused = async () => {
    expect(await doctor({ store, nats })).toMatch(/fail\s+streams\s+.*replicas is 1, not 3/);
    // Callers wait for as long as for any other log that isn't there.
    const refusal = await chat.send("meanwhile").catch((error: unknown) => error as Error);
    expect(refusal).toMatchObject({ code: "store_unavailable" });
    expect((refusal as Error).message).toContain("replicas is 1, not 3");
  };
  for (const [nth, [change, back, setting, value, set]] of changes.entries()) {
    await streams.update(stream, change);
    await expect.poll(() => told(stream).length).toBe(2 * nth + 1);
    expect(told(stream).at(-1)).toEqual({
      fields: { log: 0, stream, setting, value, set },
      message: expect.stringContaining("takes no messages until that is put right"),
    });
    expect(pod.archiveState()!.changedStreams).toBe(1);
    if (setting === "replicas") await isRefused();
    await streams.update(stream, back);
    await expect.poll(() => told(stream).length).toBe(2 * nth + 2);
    expect(told(stream).at(-1)!.message).toBe("a stream is as it was made again");
    const answer = await askAgain(chat, `after ${setting}`);
    expect(said([answer])).toEqual([`echo: you said after ${setting}`]);
  }
  expect(pod.archiveState()!.changedStreams).toBe(0);
  const { entries } = await chat.entries();
  expect(said(entries).filter((each) => each.includes("meanwhile"))).toEqual([]);
});

test("a message of another program in a stream costs its log one taking, and nothing that was acked", async () => {
  const { pod, streams, named, connection } = await onePod();
  const chat = await pod.sessions.create("echo", { user: "ann" });
  await chat.ask("one");
  const { config } = await streams.info(await named("0_"));
  const subject = config.subjects![0]!.replace(">", "stray");
  for (const text of ["two", "three"]) {
    connection.publish(subject, "who is there?");
    await connection.flush();
    expect(said([await askAgain(chat, text)])).toEqual([`echo: you said ${text}`]);
  }
  const { entries } = await chat.entries();
  expect(said(entries)).toEqual(
    ["one", "two", "three"].flatMap((text) => [`ann: ${text}`, `echo: you said ${text}`]),
  );
});

test("a stream that is deleted under its pod takes no message, which callers are told with what to do", async () => {
  const { pod, streams, named, told } = await onePod();
  const chat = await pod.sessions.create("echo", { user: "ann" });
  await chat.ask("before");
  const stream = await named("0_");
  await streams.delete(stream);
  await expect.poll(() => told(stream).at(-1)?.message).toContain("a stream is gone");
  await expect(chat.send("lost?")).rejects.toMatchObject({
    code: "store_unavailable",
    message: expect.stringContaining("is gone: restore it from a backup of the servers"),
  });
});
