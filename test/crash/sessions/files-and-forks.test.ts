import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { between, type Random, seededRandom, systemRandom } from "../../../src/base/random.ts";
import { createFiles } from "../../../src/files/files.ts";
import { createFilesLeader } from "../../../src/files/leader.ts";
import type { Entry, SessionView } from "../../../src/protocol/message.ts";
import { openStore } from "../../../src/store/open.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import { type KeyedServer, startKeyedServer } from "../keyed-server.ts";
import { pauseFor, until } from "../until.ts";

const key = "a-key-of-a-program-that-retries";
const rounds = 8;
/** About as long as what a round sends takes. */
const killWithinMs = 120;
const answerLimitMs = 30_000;
const author = "ada";

type Asked = {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly json?: object;
  readonly bytes?: Buffer<ArrayBuffer>;
};
type EntriesPage = { readonly entries: readonly Entry[] };

/** What a round had stored, as its callers were told. */
type Stored = {
  readonly parentId: string;
  readonly files: Map<string, Buffer<ArrayBuffer>>;
  readonly forkIds: readonly string[];
  readonly editId: string;
};

describe.each(storeKinds)("on %s, files and forks that are sent until they are answered", (on) => {
  test("are whole and there once, however often servers are killed, and leave nothing", async () => {
    const fleet = await createFleet({ on });
    const random = seededRandom(69);
    const start = () =>
      startKeyedServer(fleet, { apiKeys: [{ key, name: "program", role: "admin" }] });
    const servers: KeyedServer[] = await Promise.all([start(), start()]);
    let lost = 0;

    const send = async ({ url }: KeyedServer, { method, path, json, bytes }: Asked) => {
      try {
        const answer = await fetch(`${url}${path}`, {
          method,
          headers: {
            Authorization: `Bearer ${key}`,
            ...(json && { "Content-Type": "application/json" }),
            ...(bytes && { "Content-Type": "image/png" }),
          },
          ...(json && { body: JSON.stringify(json) }),
          ...(bytes && { body: bytes }),
          signal: AbortSignal.timeout(answerLimitMs),
        });
        const body = Buffer.from(await answer.arrayBuffer());
        return answer.status >= 500 || answer.status === 429 ? undefined : { answer, body };
      } catch {
        lost++;
        return undefined;
      }
    };
    /** Asks one server after the other, until there is an answer that says something. */
    const bytesOf = async (asked: Asked, first = servers[0]!): Promise<Buffer> => {
      let answered = await send(first, asked);
      await until(`an answer to ${asked.method} ${asked.path}`, async () => {
        const other = servers.find((each) => each !== first)!;
        answered ??= (await send(other, asked)) ?? (await send(servers[0]!, asked));
        return answered !== undefined;
      });
      const { answer, body } = answered!;
      if (answer.ok) return body;
      throw new Error(`${asked.method} ${asked.path}: ${answer.status} ${body.toString()}`);
    };
    const ask = async <Answer>(asked: Asked, first?: KeyedServer): Promise<Answer> =>
      JSON.parse((await bytesOf(asked, first)).toString()) as Answer;
    const entriesOf = async (sessionId: string) =>
      (await ask<EntriesPage>({ method: "GET", path: `/v1/sessions/${sessionId}/messages` }))
        .entries;
    const isAnswered = (sessionId: string, seq: number) =>
      until(`the answer in ${sessionId}`, async () => (await entriesOf(sessionId)).length >= seq);

    const playRound = async (round: number, victim: KeyedServer): Promise<Stored> => {
      const parentId = `parent-${round}`;
      const at = `/v1/sessions/${parentId}`;
      const made = { sessionId: parentId, agents: ["clerk"], users: [author] };
      await ask({ method: "POST", path: "/v1/sessions", json: made });
      const asking = (id: string, parts: object[]): Asked => ({
        method: "POST",
        path: `${at}/messages`,
        json: { id, author, parts },
      });
      await ask(asking("first", [textPart("first")]));
      await isAnswered(parentId, 2);

      const files = new Map<string, Buffer<ArrayBuffer>>();
      const upload = async (name: string) => {
        const bytes = noise(random, between(random, 200_000, 900_000));
        const hash = hashOf(bytes);
        const path = `${at}/files?filename=${name}&sha256=${hash}`;
        const part = await ask<{ url: string }>({ method: "POST", path, bytes }, victim);
        expect(part.url).toBe(`flotilla-file:${hash}`);
        files.set(hash, bytes);
        await ask(asking(name, [part]), victim);
      };
      const sendInline = async () => {
        const bytes = noise(random, 100_000);
        files.set(hashOf(bytes), bytes);
        const url = `data:image/png;base64,${bytes.toString("base64")}`;
        await ask(asking("inline", [{ type: "file", mediaType: "image/png", url }]), victim);
      };
      const forkIds = [`fork-${round}-a`, `fork-${round}-b`];
      const fork = (id: string) =>
        ask({ method: "POST", path: `${at}/fork`, json: { id, atSeq: 2 } }, victim);
      const editId = `edit-${round}`;
      const anew = { id: editId, messageId: "first", author, parts: [textPart("anew")] };
      const edit = () => ask({ method: "POST", path: `${at}/edit`, json: anew }, victim);

      const killed = pauseFor(between(random, 0, killWithinMs)).then(() => victim.kill());
      await Promise.all([
        killed,
        upload("one"),
        upload("two"),
        sendInline(),
        ...forkIds.map(fork),
        edit(),
      ]);
      return { parentId, files, forkIds, editId };
    };

    const all: Stored[] = [];
    for (let round = 0; round < rounds; round++) {
      const at = round % servers.length;
      all.push(await playRound(round, servers[at]!));
      servers[at] = await start();
    }
    // Else no server was killed while it had something to do.
    expect(lost).toBeGreaterThan(0);

    for (const { parentId, files, forkIds, editId } of all) {
      for (const [hash, bytes] of files) {
        const path = `/v1/sessions/${parentId}/files/${hash}`;
        expect(hashOf(await bytesOf({ method: "GET", path }))).toBe(hashOf(bytes));
      }
      const said = await entriesOf(parentId);
      expect(new Set(said.map(({ messageId }) => messageId)).size).toBe(said.length);
      for (const id of ["one", "two", "inline"]) {
        expect(said.filter(({ messageId }) => messageId === id)).toHaveLength(1);
      }
      await isAnswered(editId, 2);
      expect(
        (await entriesOf(editId)).map(({ seq, role, parts }) => [seq, role, parts[0]!["text"]]),
      ).toEqual([
        [1, "user", "anew"],
        [2, "assistant", "message 1"],
      ]);
      for (const forkId of forkIds) {
        const { parent } = await ask<SessionView>({
          method: "GET",
          path: `/v1/sessions/${forkId}`,
        });
        expect(parent).toEqual({ sessionId: parentId, atSeq: 2 });
      }
      // What a fork begins with stays when its parent goes, and it goes on.
      await ask({ method: "DELETE", path: `/v1/sessions/${parentId}` });
      const [forkId] = forkIds;
      const more = { id: "more", author, parts: [textPart("more")] };
      await ask({ method: "POST", path: `/v1/sessions/${forkId}/messages`, json: more });
      await isAnswered(forkId!, 4);
      expect((await entriesOf(forkId!)).map(({ parts }) => parts[0]!["text"])).toEqual([
        "first",
        "message 1",
        "more",
        "message 3",
      ]);
    }

    const [rows] = await fleet.sql(
      "select count(*) as held, count(distinct session_id) as forks from flotilla_session_fork",
    );
    expect([Number(rows!["held"]), Number(rows!["forks"])]).toEqual([rounds * 3, rounds * 3]);
    await Promise.all(servers.map((each) => each.kill()));
    await expectNoneLeft(fleet);
  });
});

/** After the hour that uploads and unsent files have: every part is of a file, and every file is referred to. */
async function expectNoneLeft(fleet: Fleet): Promise<void> {
  await using database = await openedFor(fleet);
  const time = { clock: systemClock, random: systemRandom, ids: uuidv7(systemClock, systemRandom) };
  const files = createFiles({ ...time, database });
  const leader = createFilesLeader({ database, files, clock: systemClock, graceMs: 0 });
  // What one pass drops is what the next one finds unused, and the one behind it removes.
  for (let pass = 0; pass < 4; pass++) await leader.pass();
  // The collector has taken no byte of a file that is referred to.
  const referred = await fleet.sql(
    "select distinct owner_id, hash from flotilla_file_reference where owner_kind = 'session'",
  );
  expect(referred.length).toBeGreaterThan(0);
  for (const { owner_id: sessionId, hash } of referred) {
    const digest = createHash("sha256");
    const file = await files.find(String(sessionId), String(hash));
    for await (const piece of files.read(file!)) digest.update(piece);
    expect(digest.digest("hex")).toBe(hash);
  }
  const counts = async (text: string) => Number((await fleet.sql(text))[0]!["found"]);
  expect(await counts("select count(*) as found from flotilla_file_remnant")).toBe(0);
  expect(
    await counts(
      "select count(*) as found from flotilla_file_part where file_id not in (select file_id from flotilla_file)",
    ),
  ).toBe(0);
  expect(
    await counts(
      "select count(*) as found from flotilla_file where file_id not in (select file_id from flotilla_file_reference)",
    ),
  ).toBe(0);
  expect(await counts("select files as found from flotilla_file_count")).toBe(
    await counts("select count(*) as found from flotilla_file"),
  );
}

async function openedFor(fleet: Fleet) {
  const database = await openStore(fleet.store as `sqlite:${string}`, { migrate: "check" });
  return Object.assign(database, { [Symbol.asyncDispose]: () => database.close() });
}

function noise(random: Random, length: number): Buffer<ArrayBuffer> {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at + 4 <= length; at += 4) bytes.writeUInt32LE(random.uint32(), at);
  return bytes;
}

const textPart = (text: string) => ({ type: "text", text });
const hashOf = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
