import { beforeEach, describe, expect, test } from "vitest";
import { beat } from "../../pods/sql.ts";
import { openStore } from "../../store/open.ts";
import { appHarness, openTestStore } from "../contract/app-harness.ts";

const signing = (letter: string) => `whsec_${Buffer.from(letter.repeat(24)).toString("base64")}`;
const url = "https://agent.example/chat";

const testStore = openTestStore();
let lines: string[];
beforeEach(() => {
  lines = [];
});

const told: string[] = [];
const ask = async (method: string, path: string, body?: unknown) => {
  const write = (...said: unknown[]) => void lines.push(JSON.stringify(said));
  const log = { debug: write, info: write, warn: write, error: write };
  const answer = await appHarness(testStore.flotilla, { log }).send(method, path, body);
  told.push(JSON.stringify(answer));
  return answer;
};

describe("agents over HTTP", () => {
  test("are made, shown, listed, replaced and removed", async () => {
    const settings = { url, during: "merge" };
    const made = await ask("POST", "/v1/agents", { name: "helper", settings });
    expect(made).toMatchObject({
      status: 201,
      body: { agent: { name: "helper", source: "stored", settings, revision: 1 } },
    });
    expect(await ask("GET", "/v1/agents/helper")).toEqual({ ...made, status: 200 });
    const other = await ask("POST", "/v1/agents", { name: "helper", settings: { url } });
    expect(other).toMatchObject({ status: 409, body: { error: { code: "conflict" } } });
    const replaced = await ask("PUT", "/v1/agents/helper", { settings: { url }, ifRevision: 1 });
    expect(replaced).toMatchObject({ status: 200, body: { agent: { revision: 2 } } });
    const late = await ask("PUT", "/v1/agents/helper", { settings, ifRevision: 1 });
    expect(late).toMatchObject({ status: 409, body: { error: { details: { revision: 2 } } } });
    expect((await ask("GET", "/v1/agents")).body).toEqual({
      agents: [replaced.body.agent],
      next: null,
    });
    expect(await ask("DELETE", "/v1/agents/helper")).toMatchObject({ status: 200 });
    for (const [method, body] of [["GET"], ["DELETE"], ["PUT", { settings }]] as const) {
      expect(await ask(method, "/v1/agents/helper", body)).toMatchObject({ status: 404 });
    }
  });

  test("are listed page by page, with those that pods have in code", async () => {
    for (const name of ["a/b", "c"]) {
      await ask("POST", "/v1/agents", { name, settings: { url } });
    }
    const database = await openStore(testStore.store);
    const facts = { during: "queue", attempts: 3, compaction: null };
    const metadata = JSON.stringify({ sessions: { agents: { coded: facts } } });
    await database.write([beat("pod", metadata, 0)]);
    await database.close();
    const seen: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const from: string = cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const { body } = await ask("GET", `/v1/agents?limit=1${from}`);
      seen.push(...body.agents.map(({ name }: { name: string }) => name));
      cursor = body.next;
    }
    expect(seen).toEqual(["a/b", "c", "coded"]);
    expect(await ask("GET", "/v1/agents/a%2Fb")).toMatchObject({ status: 200 });
    expect((await ask("GET", "/v1/agents/coded")).body).toEqual({
      agent: { name: "coded", source: "code", facts },
    });
    const taken = await ask("POST", "/v1/agents", { name: "coded", settings: { url } });
    expect(taken).toMatchObject({ status: 409, body: { error: { details: { source: "code" } } } });
    expect(await ask("DELETE", "/v1/agents/coded")).toMatchObject({ status: 409 });
  });

  test("never show their secrets, in an answer, an error or a log", async () => {
    const secrets = [signing("a"), signing("b"), "header-value-1", "header-value-2"] as const;
    const settings = { url, headers: { Authorization: secrets[2] } };
    const compaction = { url, headers: { "X-Key": secrets[3] } };
    const given = { settings: { ...settings, compaction }, secret: secrets[0] };
    const asked: [string, string, unknown?][] = [
      ["POST", "/v1/agents", { name: "q", ...given, compactionSecret: secrets[1] }],
      ["GET", "/v1/agents/q"],
      ["GET", "/v1/agents"],
      ["PUT", "/v1/agents/q", { ...given, secret: secrets[1] }],
      ["POST", "/v1/agents", { name: "q", ...given }],
      ["PUT", "/v1/agents/q", { ...given, secret: `${secrets[0]}?` }],
      ["PUT", "/v1/agents/q", { ...given, sekret: secrets[0] }],
      ["PUT", "/v1/agents/q", { settings: { ...settings, secret: secrets[0] } }],
      ["PUT", "/v1/agents/q", { settings: { url, headers: { "a b": secrets[2] } } }],
      ["PUT", "/v1/agents/q", { settings: { url: "http://[::1]/", headers: { a: secrets[2] } } }],
      ["PUT", "/v1/agents/q", { settings: `${secrets[0]}` }],
      ["DELETE", "/v1/agents/q", given],
    ];
    told.length = 0;
    const statuses: number[] = [];
    for (const [method, path, body] of asked) statuses.push((await ask(method, path, body)).status);
    expect(statuses).toEqual([201, 200, 200, 200, 409, 400, 400, 400, 400, 400, 400, 200]);
    const all = [...told, ...lines].join("\n");
    for (const secret of secrets) expect(all).not.toContain(secret.replace("whsec_", ""));
  });

  test.each<[string, unknown, string]>([
    ["no name", { settings: { url } }, "invalid_input"],
    ["a name that can't be", { name: "a b", settings: { url } }, "invalid_option"],
    ["no settings", { name: "a" }, "invalid_input"],
    [
      "an address of this machine",
      { name: "a", settings: { url: "http://localhost" } },
      "invalid_option",
    ],
    [
      "more than it takes",
      { name: "a", settings: { url, x: "y".repeat(200_000) } },
      "payload_too_large",
    ],
  ])("refuse %s", async (_, body, code) => {
    expect(await ask("POST", "/v1/agents", body)).toMatchObject({ body: { error: { code } } });
    expect((await ask("GET", "/v1/agents")).body.agents).toEqual([]);
  });
});
