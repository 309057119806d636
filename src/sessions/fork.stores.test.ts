import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { systemRandom } from "../base/random.ts";
import { createFiles } from "../files/files.ts";
import type { OpenStore } from "../store/contract/database.ts";
import { emptyTables, storeKinds, waitsBehind } from "../store/contract/kinds.ts";
import { migrate, schemaState } from "../store/migrate.ts";
import { sql, table } from "../store/sql.ts";
import { rowsOf, startForking, unknownAgent } from "./contract/forking.ts";
import { abandonedAfterMs } from "./fork-collector.ts";
import { holdEntries } from "./log/sql/forks.ts";
import { createSqlJournal } from "./log/sql-journal.ts";

const longEnough = { timeout: 90_000 };
const tables = [
  "session",
  "session_user",
  "session_log",
  "session_fork",
  "message",
  "file",
  "file_part",
  "file_remnant",
  "file_reference",
  "file_count",
] as const;

describe.each(storeKinds)("forks on $name", (kind) => {
  let store: OpenStore;
  let t: Awaited<ReturnType<typeof startForking>>;
  const tenant = "default";

  beforeAll(async () => {
    store = await kind.open();
    await migrate(store.database);
  });
  beforeEach(async () => {
    await emptyTables(store, tables);
    const { database } = store;
    t = await startForking(
      database,
      createSqlJournal({ database, ids: uuidv7(systemClock, systemRandom) }),
    );
  });
  afterAll(async () => {
    await store.database.close();
    await store.remove();
  });

  const ages = (sessionId: string) =>
    store.database.write([
      sql`update ${table("session_fork")} set created_at = ${t.clock.now() - abandonedAfterMs - 1}
        where session_id = ${sessionId}`,
    ]);

  test("a fork begins with the same entries, and then each goes its own way", async () => {
    await t.talked("p", 5);
    const fork = await t.service.fork(tenant, "p", { id: "f", atSeq: 3, users: ["eve"] });
    expect(fork).toMatchObject({
      sessionId: "f",
      parent: { sessionId: "p", atSeq: 3 },
      lastSeq: 3,
      tokens: 3,
      users: ["eve"],
      preview: "p-3",
      previewAuthor: "ada",
    });
    expect(await t.say("f", "f-4")).toMatchObject({ seq: 4, duplicate: false });
    await t.say("p", "p-6");
    const forked = ["p-1", "p-2", "p-3", "f-4"];
    for (const limit of [1, 2, 1_000]) {
      expect(await t.read("f", limit)).toEqual(forked);
      expect(await t.readBack("f", limit)).toEqual(forked);
    }
    expect(await t.read("p")).toEqual(["p-1", "p-2", "p-3", "p-4", "p-5", "p-6"]);
    // Nothing is copied.
    expect(await rowsOf(store.database, "f")).toEqual([{ entries: 1, forks: 1 }]);
    expect(await t.journal.newest("f", "p-2")).toMatchObject({ seq: 2 });
    expect(await t.journal.newest("f", "p-4")).toBeUndefined();
    expect(await t.journal.tail("f", { after: 1, upTo: 3, limit: 1 })).toMatchObject([{ seq: 3 }]);
  });

  test("forks of forks read as one log, whichever entries they have of whom", async () => {
    await t.talked("p", 4);
    await t.service.fork(tenant, "p", { id: "f1", atSeq: 4 });
    for (const text of ["f1-5", "f1-6"]) await t.say("f1", text);
    await t.service.fork(tenant, "f1", { id: "f2", atSeq: 5 });
    await t.say("f2", "f2-6");
    await t.service.fork(tenant, "f2", { id: "f3", atSeq: 6 });
    await t.say("f3", "f3-7");
    await t.service.fork(tenant, "f3", { id: "early", atSeq: 2 });
    const all = ["p-1", "p-2", "p-3", "p-4", "f1-5", "f2-6", "f3-7"];
    for (const limit of [1, 3, 1_000]) {
      expect(await t.read("f3", limit)).toEqual(all);
      expect(await t.readBack("f3", limit)).toEqual(all);
    }
    expect(await t.read("early")).toEqual(all.slice(0, 2));
    expect(await t.service.get(tenant, "early")).toMatchObject({
      parent: { sessionId: "f3", atSeq: 2 },
      lastSeq: 2,
    });
    // A page of few bytes ends where it is full, in the middle of what others have.
    const page = await t.journal.entries("f3", { after: 0, limit: 100, maxBytes: 1_500 });
    expect(page.length).toBeGreaterThan(1);
    expect(page.length).toBeLessThan(7);
    expect(page.map(({ seq }) => seq)).toEqual(page.map((_, at) => at + 1));
  });

  test("the same fork asked for again is the same one; another with its id is refused", async () => {
    await t.talked("p", 3);
    await t.talked("other", 3);
    const fork = { id: "f", atSeq: 2 };
    await t.service.fork(tenant, "p", fork);
    await t.say("f", "mine");
    await t.say("p", "p-4");
    expect(await t.service.fork(tenant, "p", fork)).toMatchObject({ sessionId: "f", lastSeq: 3 });
    const refused = [
      ["p", { id: "f", atSeq: 3 }],
      ["other", fork],
      ["p", { id: "other", atSeq: 2 }],
    ] as const;
    for (const [of, input] of refused) {
      await expect(t.service.fork(tenant, of, input)).rejects.toMatchObject({ code: "conflict" });
    }
    await t.service.remove(tenant, "p");
    expect(await t.service.fork(tenant, "p", fork)).toMatchObject({ sessionId: "f" });
    await t.service.remove(tenant, "f");
    await expect(t.service.fork(tenant, "other", fork)).rejects.toMatchObject({ code: "conflict" });
  });

  test("a place that isn't is refused in words, and leaves nothing behind", async () => {
    await t.talked("p", 2);
    const at = (atSeq: number) => t.service.fork(tenant, "p", { id: "f", atSeq });
    await expect(at(0)).rejects.toThrow("create a session");
    await expect(at(3)).rejects.toThrow("the session has 2 entries");
    await expect(at(-1)).rejects.toMatchObject({ code: "invalid_option" });
    await expect(at(1.5)).rejects.toMatchObject({ code: "invalid_option" });
    const nobody = { code: "not_found" };
    await expect(t.service.fork(tenant, "none", { atSeq: 1 })).rejects.toMatchObject(nobody);
    await expect(t.service.fork("other", "p", { atSeq: 1 })).rejects.toMatchObject(nobody);
    expect(await rowsOf(store.database, "f")).toEqual([{ entries: 0, forks: 0 }]);
  });

  test("a fork with an agent that isn't is refused, and leaves nothing: its id is free", async () => {
    await t.talked("p", 3);
    const agents = [unknownAgent];
    const none = { code: "not_found", message: expect.stringContaining("there is no agent") };
    const forked = t.service.fork(tenant, "p", { id: "f", atSeq: 2, agents });
    await expect(forked).rejects.toMatchObject(none);
    const anew = { id: "f", messageId: "p-2", author: "ada", parts: [{ type: "text", text: "2" }] };
    await expect(t.service.edit(tenant, "p", { ...anew, agents })).rejects.toMatchObject(none);
    expect(await rowsOf(store.database, "f")).toEqual([{ entries: 0, forks: 0 }]);
    await t.service.fork(tenant, "p", { id: "f", atSeq: 3, agents: ["helper"] });
    expect(await t.read("f")).toEqual(["p-1", "p-2", "p-3"]);
  });

  test("a fork that is refused while another caller makes the same one leaves that one whole", async () => {
    await t.talked("p", 2);
    const first = Promise.withResolvers<() => Promise<unknown>>();
    t.onTheWay((command, go) => {
      if (command.type !== "create") return go();
      first.resolve(go);
      return new Promise(() => {});
    });
    const fork = { id: "f", atSeq: 2, agents: ["helper"] };
    void t.service.fork(tenant, "p", fork).catch(() => {});
    const create = await first.promise;
    // The pod with its agent goes in between.
    t.onTheWay((command, go) =>
      command.type === "create"
        ? Promise.reject(new FlotillaError("not_found", "there is no agent"))
        : go(),
    );
    await expect(t.service.fork(tenant, "p", fork)).rejects.toMatchObject({ code: "not_found" });
    await create();
    await t.service.remove(tenant, "p");
    expect(await t.read("f")).toEqual(["p-1", "p-2"]);
  });

  test("an archived session can be forked", async () => {
    await t.talked("p", 2);
    await t.service.archive(tenant, "p");
    expect(await t.service.fork(tenant, "p", { id: "f", atSeq: 2 })).toMatchObject({
      status: "active",
    });
    await t.say("f", "on");
    expect(await t.read("f")).toEqual(["p-1", "p-2", "on"]);
  });

  test("what a fork begins with stays when its parent is deleted, and goes with the last fork", async () => {
    await t.talked("p", 5);
    await t.service.fork(tenant, "p", { id: "f1", atSeq: 2 });
    await t.service.fork(tenant, "p", { id: "f2", atSeq: 4 });
    await t.service.remove(tenant, "p");
    await expect(t.service.get(tenant, "p")).rejects.toMatchObject({ code: "not_found" });
    await expect(t.read("p")).rejects.toMatchObject({ code: "not_found" });
    expect(await rowsOf(store.database, "p")).toMatchObject([{ entries: 4 }]);
    expect(await t.read("f2")).toEqual(["p-1", "p-2", "p-3", "p-4"]);
    await t.service.remove(tenant, "f2");
    expect(await rowsOf(store.database, "p", "f2")).toEqual([
      { entries: 2, forks: 0 },
      { entries: 0, forks: 0 },
    ]);
    expect(await t.read("f1")).toEqual(["p-1", "p-2"]);
    await t.service.remove(tenant, "f1");
    expect(await rowsOf(store.database, "p", "f1")).toMatchObject([
      { entries: 0 },
      { entries: 0, forks: 0 },
    ]);
  });

  test("a deleted fork keeps for its own forks what it has and what it was given", async () => {
    await t.talked("p", 3);
    await t.service.fork(tenant, "p", { id: "f1", atSeq: 3 });
    await t.say("f1", "f1-4");
    await t.say("f1", "f1-5");
    await t.service.fork(tenant, "f1", { id: "f2", atSeq: 4 });
    for (const each of ["p", "f1"]) await t.service.remove(tenant, each);
    expect(await t.read("f2")).toEqual(["p-1", "p-2", "p-3", "f1-4"]);
    expect(await rowsOf(store.database, "p", "f1")).toEqual([
      { entries: 3, forks: 0 },
      { entries: 1, forks: 1 },
    ]);
    await t.service.remove(tenant, "f2");
    expect(await rowsOf(store.database, "p", "f1", "f2")).toEqual([
      { entries: 0, forks: 0 },
      { entries: 0, forks: 0 },
      { entries: 0, forks: 0 },
    ]);
  });

  test("a session that is deleted while it is forked: the fork is whole, or there is none", async () => {
    for (let round = 0; round < 10; round++) {
      const [p, f] = [`p${round}`, `f${round}`];
      await t.talked(p, 2);
      const forked = t.service.fork(tenant, p, { id: f, atSeq: 2 }).then(
        () => true,
        (error: unknown) => {
          expect(error).toMatchObject({ code: "not_found" });
          return false;
        },
      );
      await Promise.all([forked, t.service.remove(tenant, p)]);
      const isMade = await forked;
      const read = isMade ? await t.read(f) : [];
      expect(read).toEqual(isMade ? [`${p}-1`, `${p}-2`] : []);
      expect(await rowsOf(store.database, p)).toMatchObject([{ entries: read.length }]);
    }
  });

  test("a session that is deleted just before its entries are held isn't forked", async () => {
    await t.talked("p", 2);
    t.beforeWrite(() => t.owner.submit(tenant, "p", { type: "delete" }));
    await expect(t.service.fork(tenant, "p", { id: "f", atSeq: 2 })).rejects.toMatchObject({
      code: "not_found",
    });
    expect(await rowsOf(store.database, "p", "f")).toMatchObject([{ entries: 0 }, { forks: 0 }]);
  });

  test.runIf(kind.name === "Postgres")(
    "a deletion waits for the fork that is just taking hold of its entries, and leaves them",
    async () => {
      await t.talked("p", 3);
      const caller = await store.caller!();
      await caller.begin();
      const row = { sessionId: "f", parentId: "p", atSeq: 2, segments: '[["p",2]]' };
      await store.database.within(caller.handle).write(holdEntries(row, tenant));
      const removed = t.owner.submit(tenant, "p", { type: "delete" });
      const isOver = removed.then(() => "over");
      await expect
        .poll(async () => (await Promise.race([isOver, waitsBehind(caller)])).length, longEnough)
        .toBeGreaterThan(0);
      await caller.exec("commit");
      await removed;
      await caller.close();
      expect(await rowsOf(store.database, "p", "f")).toMatchObject([{ entries: 2 }, { forks: 1 }]);
    },
  );

  test("a caller that dies before its fork is made: it is made once, by the next that asks", async () => {
    await t.talked("p", 2);
    t.onTheWay(() => new Promise(() => {}));
    void t.service.fork(tenant, "p", { id: "f", atSeq: 2 }).catch(() => {});
    await expect
      .poll(async () => (await rowsOf(store.database, "f"))[0], longEnough)
      .toMatchObject({ forks: 1 });
    t.onTheWay(undefined);
    await t.service.remove(tenant, "p");
    // It was begun before, so that its entries are still there; but its parent isn't any more.
    await expect(t.service.fork(tenant, "p", { id: "f", atSeq: 2 })).rejects.toMatchObject({
      code: "not_found",
    });
    await t.collector.pass();
    expect(await rowsOf(store.database, "p", "f")).toMatchObject([{ entries: 2 }, { forks: 1 }]);
    await ages("f");
    await t.collector.pass();
    await t.collector.pass();
    expect(await rowsOf(store.database, "p", "f")).toMatchObject([{ entries: 0 }, { forks: 0 }]);
  });

  test("what was given up is never made, however late its command comes", async () => {
    await t.talked("p", 2);
    const late = Promise.withResolvers<() => Promise<unknown>>();
    t.onTheWay((command, go) => {
      if (command.type === "create") late.resolve(go);
      return command.type === "create" ? new Promise(() => {}) : go();
    });
    void t.service.fork(tenant, "p", { id: "f", atSeq: 2 }).catch(() => {});
    const create = await late.promise;
    await ages("f");
    await t.collector.pass();
    await t.collector.pass();
    expect(await rowsOf(store.database, "f")).toMatchObject([{ forks: 0 }]);
    await expect(create()).rejects.toMatchObject({ code: "conflict" });
    await expect(t.service.get(tenant, "f")).rejects.toMatchObject({ code: "not_found" });
  });

  test("a session that takes the id of a fork in between has none of its entries", async () => {
    await t.talked("p", 2);
    t.onTheWay(async (command, go) => {
      if (command.type !== "create" || !command.fork) return go();
      t.onTheWay(undefined);
      await t.service.create(tenant, { sessionId: "f", users: ["eve"] });
      expect(await t.read("f")).toEqual([]);
      return go();
    });
    await expect(t.service.fork(tenant, "p", { id: "f", atSeq: 2 })).rejects.toMatchObject({
      code: "conflict",
    });
    expect(await t.read("f")).toEqual([]);
    expect(await rowsOf(store.database, "f")).toMatchObject([{ forks: 0 }]);
    await t.say("f", "own");
    expect(await t.read("f")).toEqual(["own"]);
  });

  test("a session of another tenant that takes the id of a fork in between has no file of its parent", async () => {
    await t.talked("p", 2);
    const random = systemRandom;
    const ids = uuidv7(systemClock, random);
    const files = createFiles({ database: store.database, clock: systemClock, random, ids });
    const upload = async (owner: readonly [tenant: string, sessionId: string], text: string) => {
      const named = { filename: `of ${owner[0]}`, kept: true };
      const { url } = await files.upload(...owner, [Buffer.from(text)], named);
      return url.replace("flotilla-file:", "");
    };
    const both = await upload([tenant, "p"], "what both have");
    const secret = await upload([tenant, "p"], "what only the parent has");
    t.onTheWay(async (command, go) => {
      if (command.type !== "create" || !command.fork) return go();
      t.onTheWay(undefined);
      await t.service.create("other", { sessionId: "f" });
      const guessed = files.keep("other", "f", { parts: [], inline: [], references: [secret] });
      await expect(guessed).rejects.toMatchObject({ code: "not_found" });
      expect(await upload(["other", "f"], "what both have")).toBe(both);
      return go();
    });
    await expect(t.service.fork(tenant, "p", { id: "f", atSeq: 2 })).rejects.toMatchObject({
      code: "conflict",
    });
    expect(await files.find("f", both)).toMatchObject({ tenant: "other", filename: "of other" });
    expect(await files.find("f", secret)).toBeUndefined();
    for (const hash of [both, secret])
      expect(await files.find("p", hash)).toMatchObject({ tenant, filename: "of default" });
  });

  test("a deletion whose process ended before it let go is done by the next pass", async () => {
    await t.talked("p", 2);
    await t.service.fork(tenant, "p", { id: "f", atSeq: 2 });
    for (const sessionId of ["p", "f"]) await t.owner.submit(tenant, sessionId, { type: "delete" });
    expect(await rowsOf(store.database, "p", "f")).toMatchObject([{ entries: 2 }, { forks: 1 }]);
    await t.collector.pass();
    expect(await rowsOf(store.database, "p", "f")).toMatchObject([{ entries: 0 }, { forks: 0 }]);
  });

  test("an edit is a fork before the message that says it anew, once however often it is sent", async () => {
    await t.service.create(tenant, { sessionId: "p", agents: ["helper"], users: ["ada"] });
    for (const text of ["one", "two", "three"]) await t.say("p", text);
    const edit = {
      id: "e",
      messageId: "two",
      author: "ada",
      users: ["ada"],
      parts: [{ type: "text", text: "zwei" }],
    };
    const edited = await t.service.edit(tenant, "p", edit);
    expect(edited).toMatchObject({
      seq: 2,
      messageId: "two",
      duplicate: false,
      session: { sessionId: "e", parent: { sessionId: "p", atSeq: 1 }, agents: ["helper"] },
    });
    expect(edited.session.state).toMatchObject({ state: "catching_up", upToSeq: 2 });
    expect(await t.service.edit(tenant, "p", edit)).toMatchObject({ seq: 2, duplicate: true });
    expect(await t.read("e")).toEqual(["one", "zwei"]);
    expect(await t.read("p")).toEqual(["one", "two", "three"]);
    const first = { ...edit, id: "e1", messageId: "one" };
    expect(await t.service.edit(tenant, "p", first)).toMatchObject({
      seq: 1,
      session: { parent: { sessionId: "p", atSeq: 0 } },
    });
    expect(await t.read("e1")).toEqual(["zwei"]);
    const none = t.service.edit(tenant, "p", { ...edit, id: "e2", messageId: "none" });
    await expect(none).rejects.toMatchObject({ code: "not_found" });
    await t.service.fork(tenant, "p", { id: "plain", atSeq: 1 });
    const another = t.service.edit(tenant, "p", { ...edit, id: "plain" });
    await expect(another).rejects.toMatchObject({ code: "conflict" });
  });

  test("only what a user has said can be edited", async () => {
    await t.talked("p", 1);
    const parts = [{ type: "text", text: "an answer" }];
    await t.service.send(tenant, "p", { id: "a", role: "assistant", author: "helper", parts });
    await expect(
      t.service.edit(tenant, "p", { messageId: "a", author: "ada", parts }),
    ).rejects.toThrow("only a user's message can be edited");
  });

  test(
    "as many forks of one as are asked for cost it nothing, and each is whole",
    longEnough,
    async () => {
      await t.talked("p", 3);
      const before = await t.service.get(tenant, "p");
      const count = 200;
      const ids = Array.from({ length: count }, (_, at) => `f${at}`);
      for (let at = 0; at < count; at += 20) {
        const some = ids.slice(at, at + 20);
        await Promise.all(some.map((id) => t.service.fork(tenant, "p", { id, atSeq: 2 })));
      }
      // What is read and written of the parent is as it was: a fork is a row of its own.
      expect(await t.service.get(tenant, "p")).toEqual(before);
      for (const id of [ids[0]!, ids.at(-1)!]) {
        expect(await rowsOf(store.database, id)).toEqual([{ entries: 0, forks: 1 }]);
        expect(await t.read(id)).toEqual(["p-1", "p-2"]);
      }
      const page = await t.service.forks(tenant, "p", { limit: 50 });
      expect([page.forks.length, page.next !== null]).toEqual([50, true]);
      await t.service.remove(tenant, "p");
      expect(await t.read(ids.at(-1)!)).toEqual(["p-1", "p-2"]);
    },
  );

  test("forks are listed by their places, in pages, and by their members", async () => {
    await t.talked("p", 3);
    const places = [3, 1, 2, 1, 3];
    for (const [at, atSeq] of places.entries()) {
      const users = at % 2 === 0 ? ["ada"] : ["eve"];
      await t.service.fork(tenant, "p", { id: `f${at}`, atSeq, users });
    }
    await t.service.remove(tenant, "f2");
    const listed = async (query = {}) => {
      const found: string[] = [];
      let cursor: string | undefined;
      do {
        const from = cursor === undefined ? {} : { cursor };
        const page = await t.service.forks(tenant, "p", { limit: 2, ...query, ...from });
        expect(page.forks.length).toBeLessThanOrEqual(2);
        found.push(...page.forks.map(({ sessionId }) => sessionId));
        cursor = page.next ?? undefined;
      } while (cursor !== undefined);
      return found;
    };
    expect(await listed()).toEqual(["f1", "f3", "f0", "f4"]);
    expect(await listed({ atSeq: 3 })).toEqual(["f0", "f4"]);
    expect(await listed({ user: "ada" })).toEqual(["f0", "f4"]);
    await expect(t.service.forks(tenant, "none")).rejects.toMatchObject({ code: "not_found" });
    await expect(t.service.forks("other", "p")).rejects.toMatchObject({ code: "not_found" });
  });

  test("with the first fork, pods that know none don't start any more, and one that is up is waited for", async () => {
    const { database } = store;
    await database.write([sql`update ${table("migration")} set needs = 5 where id = 8`]);
    await t.talked("p", 1);
    const old = (sessions: object) =>
      database.write([
        sql`delete from ${table("pod")}`,
        sql`insert into ${table("pod")} (pod_id, metadata) values ('old', ${JSON.stringify({ sessions })})`,
      ]);
    await old({ agents: {} });
    const refused = t.service.fork(tenant, "p", { id: "f", atSeq: 1 });
    await expect(refused).rejects.toMatchObject({ code: "unsupported" });
    expect((await schemaState(database)).needs).toBe(5);
    await old({ agents: {}, forks: true });
    await t.service.fork(tenant, "p", { id: "f", atSeq: 1 });
    expect((await schemaState(database)).needs).toBe(8);
    await database.write([sql`delete from ${table("pod")}`]);
  });
});
