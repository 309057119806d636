import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dayMs } from "../../base/durations.ts";
import type { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { seededRandom } from "../../base/random.ts";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { beat, markLeft } from "../../pods/sql.ts";
import type { OpenStore } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { storeKinds } from "../../store/contract/kinds.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { type AgentRegistry, createAgentRegistry, warnOfShadowed } from "./registry.ts";
import { agent } from "./agent.ts";
import { createStoredAgents, type StoredAgents } from "./stored-agents.ts";

const signing = (letter: string) => `whsec_${Buffer.from(letter.repeat(24)).toString("base64")}`;
const url = "https://agent.example/chat";
const facts = { during: "queue", attempts: 3, compaction: null } as const;
const inCode = (...names: string[]) =>
  JSON.stringify({ sessions: { agents: Object.fromEntries(names.map((name) => [name, facts])) } });

describe.each(storeKinds)("agents made over HTTP on $name", (kind) => {
  const clock = movableClock();
  let store: OpenStore;
  let database: Database;
  let agents: StoredAgents;
  const bookOf = (
    code: Parameters<typeof createAgentRegistry>[0]["code"] = new Map(),
  ): AgentRegistry => createAgentRegistry({ database, clock, code });

  beforeAll(async () => {
    store = await kind.open();
    database = store.database;
    await migrate(database);
    const random = seededRandom(1);
    agents = createStoredAgents({ database, clock, random, ids: uuidv7(clock, random) });
  });
  afterAll(async () => {
    await database.close();
    await store.remove();
  });

  test("are made once, read, changed and removed, each tenant's for itself", async () => {
    const made = await agents.create("t", "helper", { settings: { url, during: "merge" } });
    expect(made).toMatchObject({
      name: "helper",
      source: "stored",
      settings: { url, during: "merge" },
      revision: 1,
    });
    const again = agents.create("t", "helper", { settings: { url } });
    await expect(again).rejects.toMatchObject({ code: "conflict" });
    expect(await agents.get("t", "helper")).toEqual(made);
    expect(await agents.get("other", "helper")).toBeUndefined();

    const later = { settings: { url, during: "interrupt" }, ifRevision: 1 };
    expect(await agents.replace("t", "helper", later)).toMatchObject({
      settings: { during: "interrupt" },
      revision: 2,
    });
    await expect(agents.replace("t", "helper", later)).rejects.toMatchObject({
      code: "conflict",
      details: { revision: 2 },
    });
    const elsewhere = agents.replace("other", "helper", { settings: { url } });
    await expect(elsewhere).rejects.toMatchObject({ code: "not_found" });

    expect(await agents.remove("other", "helper")).toBe(false);
    expect(await agents.remove("t", "helper")).toBe(true);
    expect(await agents.remove("t", "helper")).toBe(false);
    expect(await agents.get("t", "helper")).toBeUndefined();
  });

  test.each<[string, unknown]>([
    ["without a URL", {}],
    ["that are no object", "https://agent.example"],
    ["with a URL in a private network", { url: "http://127.0.0.1:3000" }],
    ["that allow themselves private networks", { url: "http://127.0.0.1", allowPrivate: true }],
    ["with a misspelt name", { url, durring: "queue" }],
    ["with a header that isn't text", { url, headers: { a: 1 } }],
    ["with headers that are a list", { url, headers: ["a"] }],
    ["that keep a header which isn't there", { url, headers: { a: null } }],
    ["with a secret among them", { url, secret: signing("a") }],
  ])("are refused with settings %s", async (_, settings) => {
    const made = agents.create("t", "bad", { settings });
    await expect(made).rejects.toMatchObject({ code: "invalid_option" });
    expect(await agents.get("t", "bad")).toBeUndefined();
  });

  test("keep what signs, and what headers hold, to themselves", async () => {
    const secrets = [signing("a"), signing("b"), "Bearer-1", "Bearer-2"];
    const compaction = { url, headers: { "X-Key": "Bearer-2" } };
    const settings = { url, headers: { Authorization: "Bearer-1" }, compaction };
    const made = await agents.create("s", "quiet", {
      settings,
      secret: secrets[0]!,
      compactionSecret: secrets[1]!,
    });
    const seen = [made, await agents.get("s", "quiet"), await agents.list("s")];
    const kept = {
      settings: {
        url,
        headers: { Authorization: null },
        compaction: { url, headers: { "X-Key": null } },
      },
    };
    expect(made).toMatchObject({ ...kept, signing: [{ untilMs: null }] });
    // What was shown can be given back: what it doesn't say stays.
    seen.push(await agents.replace("s", "quiet", kept));
    const found = await bookOf().spec("s", "quiet");
    expect(found).toMatchObject({
      source: { headers: { Authorization: "Bearer-1" }, secrets: [secrets[0]] },
      compaction: { source: { headers: { "X-Key": "Bearer-2" }, secrets: [secrets[1]] } },
    });
    const refusals = [
      { settings: { ...kept.settings, url: "https://thief.example/" } },
      { settings: { ...settings, url: "ftp://x" } },
      { settings, secret: `${secrets[0]}!` },
      { settings: { url, headers: { "bad name": "Bearer-1" } } },
      { settings: { url, headers: { a: `Bearer-1\n` } } },
    ];
    const refused: unknown[] = [];
    for (const each of refusals) {
      const error = await agents
        .replace("s", "quiet", each)
        .catch((thrown: FlotillaError) => thrown);
      expect(error).toMatchObject({ code: "invalid_option" });
      const { message, details } = error as FlotillaError;
      refused.push({ message, details });
    }
    const told = JSON.stringify([seen, refused]);
    for (const secret of secrets) expect(told).not.toContain(secret.replace("whsec_", ""));
    await agents.remove("s", "quiet");
    expect(await database.read(sql`select name from ${table("agent")} where tenant = 's'`)).toEqual(
      [],
    );
  });

  test("sign with the old secret beside the new one for a while", async () => {
    const [a, b, c] = [signing("a"), signing("b"), signing("c")];
    const settings = { url };
    const book = bookOf();
    const signsWith = async () => {
      await clock.advance(5_001);
      const spec = await book.spec("r", "signer");
      return spec?.source.type === "url" && spec.source.secrets;
    };
    await agents.create("r", "signer", { settings, secret: a });
    expect(await signsWith()).toEqual([a]);
    const rotated = await agents.replace("r", "signer", { settings, secret: b });
    expect(rotated).toMatchObject({
      signing: [{ untilMs: null }, { untilMs: clock.now() + dayMs }],
    });
    // To say the same again changes nothing.
    await agents.replace("r", "signer", { settings, secret: b });
    expect(await signsWith()).toEqual([b, a]);
    await clock.advance(dayMs);
    expect(await signsWith()).toEqual([b]);
    await agents.replace("r", "signer", { settings, secret: c, keepOldSecretMs: 0 });
    expect(await signsWith()).toEqual([c]);
    for (const letter of "defgh") {
      await agents.replace("r", "signer", { settings, secret: signing(letter) });
    }
    expect(await signsWith()).toEqual(["h", "g", "f", "e"].map((letter) => signing(letter)));
    await agents.replace("r", "signer", { settings, secret: null });
    expect(await signsWith()).toEqual([]);
  });

  test("that code has in their place are shown, logged by pods that start, and can be removed", async () => {
    await agents.create("d", "both", { settings: { url } });
    await database.write([beat("pod-0", inCode("both", "coded"), 0)]);
    const shadowing = { name: "both", source: "code", facts, shadows: true };
    expect(await agents.get("d", "both")).toEqual(shadowing);
    expect((await agents.list("d")).agents).toContainEqual(shadowing);

    const lines: unknown[] = [];
    const log = { ...silentLogger, warn: (fields: unknown) => void lines.push(fields) };
    const code = new Map(["both", "coded"].map((name) => [name, agent(name, () => "")]));
    await warnOfShadowed({ database, log, code });
    expect(lines).toEqual([{ agent: "both", tenant: "d" }]);

    expect(await agents.remove("d", "both")).toBe(true);
    expect(await agents.get("d", "both")).toEqual({ name: "both", source: "code", facts });
    lines.length = 0;
    await warnOfShadowed({ database, log, code });
    expect(lines).toEqual([]);
    await database.write([markLeft("pod-0")]);
  });

  test("lose nothing where two change one at the same time", async () => {
    const settings = { url };
    await agents.create("r", "raced", { settings, secret: signing("a") });
    const rotate = (letter: string) =>
      agents.replace("r", "raced", { settings, secret: signing(letter) });
    await Promise.all([rotate("b"), rotate("c")]);
    expect(await agents.get("r", "raced")).toMatchObject({ revision: 3 });
    const { source } = (await bookOf().spec("r", "raced"))!;
    const signs = source.type === "url" ? source.secrets : [];
    expect(signs.toSorted()).toEqual(["a", "b", "c"].map((letter) => signing(letter)).toSorted());
  });

  test("aren't made or changed under a name that a live pod has in code", async () => {
    await agents.create("c", "early", { settings: { url } });
    await agents.create("c", "zebra", { settings: { url } });
    await database.write([beat("pod-1", inCode("early", "coded"), 0)]);
    const settings = { url };
    const conflict = { code: "conflict", details: { source: "code" } };
    await expect(agents.create("c", "coded", { settings })).rejects.toMatchObject(conflict);
    await expect(agents.replace("c", "early", { settings })).rejects.toMatchObject(conflict);
    await expect(agents.remove("c", "coded")).rejects.toMatchObject(conflict);
    expect(await agents.get("c", "coded")).toEqual({ name: "coded", source: "code", facts });
    const listed = await agents.list("c");
    expect(listed.agents.map(({ name, source }) => [name, source])).toEqual([
      ["coded", "code"],
      ["early", "code"],
      ["zebra", "stored"],
    ]);
    const seen: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const page = await agents.list("c", { limit: 1, ...(cursor !== "" && { cursor }) });
      seen.push(...page.agents.map(({ name }) => name));
      cursor = page.next;
    }
    expect(seen).toEqual(["coded", "early", "zebra"]);
    await database.write([markLeft("pod-1")]);
    expect(await agents.get("c", "early")).toMatchObject({ source: "stored" });
    expect(await agents.remove("c", "early")).toBe(true);
  });

  test("are known to pods within seconds, and read once for many", async () => {
    let reads = 0;
    const counting: Database = {
      ...database,
      read: (statement) => (reads++, database.read(statement)),
    };
    const own = agent("own", () => "hello");
    const book = createAgentRegistry({ database: counting, clock, code: new Map([["own", own]]) });
    expect(await book.spec("b", "own")).toBe(own);
    expect(book.facts("b", "own")).toMatchObject({ during: "queue", attempts: 3 });
    expect(reads).toBe(0);

    await agents.create("b", "one", { settings: { url, during: "merge" } });
    await agents.create("b", "two", { settings: { url, attempts: 5 } });
    expect(book.facts("b", "one")).toBeUndefined();
    await Promise.all([
      book.prime("b", ["one", "two", "own"]),
      book.prime("b", ["one"]),
      book.spec("b", "two"),
    ]);
    expect(reads).toBe(1);
    expect(book.facts("b", "one")).toMatchObject({ during: "merge" });
    expect(book.facts("b", "two")).toMatchObject({ attempts: 5 });
    expect(book.facts("other", "two")).toBeUndefined();
    expect(await book.spec("b", "one")).toMatchObject({ name: "one", source: { url } });
    expect(reads).toBe(1);

    await agents.replace("b", "one", { settings: { url, during: "interrupt" } });
    await agents.remove("b", "two");
    await clock.advance(5_001);
    await book.prime("b", ["one", "two"]);
    expect(book.facts("b", "one")).toMatchObject({ during: "interrupt" });
    expect(await book.spec("b", "two")).toBeUndefined();

    await agents.create("b", "two", { settings: { url, attempts: 7 } });
    await clock.advance(1_001);
    await book.prime("b", ["two"]);
    expect(book.facts("b", "two")).toMatchObject({ attempts: 7 });
  });

  test("are read again by a process that only lists them", async () => {
    const book = bookOf();
    await agents.create("b", "asked", { settings: { url, attempts: 5 } });
    await book.prime("b", ["asked"]);
    await agents.replace("b", "asked", { settings: { url, attempts: 6 } });
    await clock.advance(5_001);
    await expect.poll(() => book.facts("b", "asked")).toMatchObject({ attempts: 6 });
  });

  test("go on as they were known while the store is away", async () => {
    let isAway = false;
    const away: Database = {
      ...database,
      read: (statement) => (isAway ? Promise.reject(new Error("away")) : database.read(statement)),
    };
    const book = createAgentRegistry({ database: away, clock, code: new Map() });
    await agents.create("a", "kept", { settings: { url } });
    await book.prime("a", ["kept"]);
    isAway = true;
    await clock.advance(60_000);
    expect(await book.spec("a", "kept")).toMatchObject({ name: "kept" });
    await expect(book.spec("a", "unknown")).rejects.toThrow("away");
  });
});
