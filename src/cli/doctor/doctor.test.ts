import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../runtime/connect.ts";
import { encryption } from "../../store/codec/encryption.ts";
import { temporaryFile } from "../../store/contract/kinds.ts";
import { openFile } from "../../promote/contract/harness.ts";
import { beginMove, finishMove, takeMove } from "../../promote/logs/sql.ts";
import { migrate } from "../../store/migrate.ts";
import { markStore } from "../../store/promotion-mark.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import { runDoctor } from "./doctor.ts";

let place: ReturnType<typeof temporaryFile>;
let store: string;
beforeEach(() => {
  place = temporaryFile();
  store = `sqlite:${place.path}`;
});
afterEach(() => place.remove());

const url = "https://agent.example/chat";
const headers = { Authorization: "a-secret-of-the-agent" };
const codec = encryption({ keys: { one: "07".repeat(32) } });

const secretsIn = async (hasCodec: boolean) => {
  const checks = await runDoctor(store, "full", { hasCodec });
  const { verdict, message } = checks.find(({ name }) => name === "secrets")!;
  expect(message).not.toContain("a-secret-of-the-agent");
  return { verdict, message };
};

/** What it says under a name; undefined if it says nothing. */
const said = async (name: string, options: Parameters<typeof runDoctor>[2] = {}) => {
  const checks = await runDoctor(store, "full", options);
  const found = checks.find((each) => each.name === name);
  return found && `${found.verdict}: ${found.message}`;
};

/** A store of which rows are changed by hand. */
async function changed(...statements: readonly Statement[]): Promise<void> {
  const database = openFile(place.path, { create: true });
  await migrate(database).catch(() => {});
  await database.write(statements);
  await database.close();
}

describe("the doctor of a promotion", () => {
  const other = "postgres://…@host/app";
  const marked = (state: "moving" | "moved" | "filling") =>
    changed(markStore({ promotionId: "p", other, state }));

  test("says where the data of a source went, and nothing else of it", async () => {
    await marked("moved");
    expect(await said("schema")).toBe(
      `fail: the data of this store was moved to ${other} by \`flotilla promote\`: start with that store`,
    );
    const checks = await runDoctor(store, "full");
    expect(checks.filter(({ verdict }) => verdict === "fail")).toHaveLength(1);
  });

  test("says how one that isn't finished goes on, or is given up, of both its stores", async () => {
    await marked("moving");
    expect(await said("schema")).toMatch(
      /^fail: .* is being moved to .*: run the same `flotilla promote` again, or give it up with its --undo$/,
    );
    await marked("filling");
    expect(await said("schema")).toMatch(
      /^fail: this store is being filled from .*: run the same `flotilla promote` again, .* or empty it with its --undo$/,
    );
  });

  test.each([
    ["nats", "sql", "to NATS", "nats"],
    ["nats", "nats", "to NATS", "nats"],
    ["sql", "nats", "back to the database", "postgres"],
  ] as const)(
    "says how logs go on that are to go to %s and are in %s",
    async (to, at, way, flag) => {
      await changed(
        beginMove({ moveId: "m", clusterId: "c", to, logs: 8 }),
        sql`update ${table("log_place")} set place = ${at}`,
      );
      const begun = await said("logs");
      expect(begun).toContain(`fail: the logs of sessions are on their way ${way}, and no process`);
      expect(begun).toContain(`run \`flotilla promote --to ${flag}\` again`);
      await changed(takeMove({ holder: "h", host: null }, { forMs: 60_000, gone: null }));
      expect(await said("logs")).toMatch(/^warn: .* a process is at it: wait/);
      await changed(finishMove("h"), sql`update ${table("log_place")} set place = 'sql'`);
      expect(await said("logs")).toBeUndefined();
    },
  );

  test("says that the config lacks the NATS where the logs are", async () => {
    await changed(sql`update ${table("log_place")} set place = 'nats'`);
    expect(await said("logs")).toMatch(
      /^fail: the logs .* are on NATS, and this config has no `nats`: give it that of the pods/,
    );
  });
});

describe("the doctor", () => {
  test("finds nothing wrong with agents that have no secrets, or whose secrets are encoded", async () => {
    await using plain = connect(store);
    await plain.agents.create("default", "open", { settings: { url } });
    await using encoding = connect(store, { codec });
    await encoding.agents.create("default", "closed", { settings: { url, headers } });
    expect(await secretsIn(true)).toMatchObject({ verdict: "ok" });
    expect(await secretsIn(false)).toMatchObject({ verdict: "ok" });
  });

  test("warns of secrets of agents in plain text, and says what to do", async () => {
    await using flotilla = connect(store);
    await flotilla.agents.create("default", "first", { settings: { url, headers } });
    await flotilla.agents.create("acme", "second", { settings: { url, headers } });
    expect(await secretsIn(false)).toMatchObject({
      verdict: "warn",
      message: expect.stringMatching(/^2 stored agents .* `codec` .*encryption.*agents set/),
    });
    expect(await secretsIn(true)).toMatchObject({
      verdict: "warn",
      message: expect.stringMatching(/^2 stored agents .*from before .* codec.*agents set/),
    });
    await using encoding = connect(store, { codec });
    for (const [tenant, name] of [
      ["default", "first"],
      ["acme", "second"],
    ] as const) {
      await encoding.agents.replace(tenant, name, { settings: { url, headers } });
    }
    expect(await secretsIn(true)).toMatchObject({ verdict: "ok" });
  });
});
