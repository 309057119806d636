import { readFileSync } from "node:fs";
import { posix } from "node:path";
import { describe, expect, test } from "vitest";
import { type Import, importsOf, shippedSources, type Source } from "./sources.ts";

const pillars = [
  "store",
  "pods",
  "audit",
  "bus",
  "links",
  "files",
  "quotas",
  "throttles",
  "steps",
  "tasks",
  "dead-letters",
  "schedules",
  "flows",
  "bulk",
  "sessions",
  "keys",
  "series",
  "changes",
];
const server = ["base", "protocol", "redaction", "audit", "runtime"];

/** Which folders of `src/` each folder may import besides itself. */
const mayImport: Record<string, string[]> = {
  base: [],
  protocol: ["base"],
  redaction: ["base", "protocol"],
  agent: ["base", "protocol"],
  client: ["base", "protocol"],
  store: ["base"],
  pods: ["base", "store"],
  bus: ["base", "store"],
  links: ["base", "protocol", "store"],
  files: ["base", "protocol", "store", "bus"],
  quotas: ["base", "store"],
  audit: ["base", "redaction", "store", "pods"],
  throttles: ["base", "store", "pods", "audit"],
  steps: ["base", "store", "throttles"],
  tasks: [
    "base",
    "protocol",
    "redaction",
    "store",
    "pods",
    "audit",
    "links",
    "files",
    "throttles",
    "steps",
  ],
  schedules: ["base", "protocol", "store", "audit", "tasks"],
  "dead-letters": ["base", "store", "audit", "tasks"],
  flows: ["base", "store", "audit", "tasks", "throttles", "steps"],
  bulk: ["base", "store", "audit", "tasks", "dead-letters", "flows"],
  sessions: [
    "base",
    "protocol",
    "store",
    "bus",
    "pods",
    "audit",
    "links",
    "files",
    "quotas",
    "throttles",
    "steps",
    "tasks",
    "schedules",
  ],
  keys: ["base", "protocol", "store", "audit"],
  series: ["base", "protocol", "store"],
  promote: ["base", "bus", "store", "pods", "sessions"],
  changes: ["base", "store"],
  runtime: ["base", "protocol", "redaction", ...pillars],
  durable: ["base", "throttles", "steps"],
  testing: ["base", "protocol", ...pillars, "runtime"],
  server,
  dashboard: ["base", "protocol"],
  cli: [
    "base",
    "protocol",
    "redaction",
    "client",
    ...pillars,
    "promote",
    "runtime",
    "server",
    "testing",
    "index.ts",
  ],
  "index.ts": ["base", "protocol", "redaction", ...pillars, "runtime"],
};
const mayImportTypes: Record<string, string[]> = {
  server: [...server, ...pillars],
  dashboard: ["base", "protocol", "server"],
};

/** What decides and does nothing, with the declarations of its room that it may know besides. */
const pure: Record<string, string[]> = {
  "src/tasks/finish/outcome.ts": ["src/tasks/task.ts"],
  "src/flows/decide/": ["src/flows/machine.ts"],
  "src/throttles/learning/": [],
  "src/sessions/conversation/": [],
  "src/client/socket/connection-state.ts": ["src/client/backoff.ts"],
  "src/client/session/position.ts": [],
};

/**
 * A room's statements are its own. These pairs write another room's table within their own transaction, or
 * read it in one statement with theirs.
 */
const mayImportSql: Record<string, string[]> = {
  schedules: ["tasks"],
  "dead-letters": ["tasks"],
  flows: ["tasks"],
  bulk: ["audit", "tasks"],
  tasks: ["pods", "links", "files", "steps"],
  sessions: ["pods", "audit", "links", "files", "quotas", "steps", "tasks"],
  // A crash point is named by the statement after which a pod dies.
  testing: ["sessions", "tasks"],
};

/** What writes SQL though it is no file of statements, each with the reason. */
const mayWriteSql: Record<string, string> = {
  "src/tasks/finish/outbox-files.ts": "has a file of its own, with a table that is in no store",
};

/** It is loaded when a store asks for it, so that users of SQLite need not install it. */
const driver = "pg";

describe("the import table", () => {
  test("holds for everything under src", () => {
    expect(shippedSources().flatMap(strays)).toEqual([]);
  });

  test("is the one that ARCHITECTURE.md shows", () => {
    const text = readFileSync(new URL("../ARCHITECTURE.md", import.meta.url), "utf8");
    const rows = /^\| room .*\n\|.*\n((?:\|.*\n)+)/m.exec(text)![1]!.trim().split("\n");
    const shown = rows.map((row) => {
      const [, room, rooms] = row.split("|").map((cell) => cell.trim());
      return [
        room!,
        rooms!
          .split(";")[0]!
          .split(", ")
          .filter((each) => each !== ""),
      ];
    });
    const held = Object.entries(mayImport).filter(([room]) => !room.endsWith(".ts"));
    const sorted = (rooms: Iterable<string>) =>
      [...rooms].filter((each) => !each.endsWith(".ts")).toSorted();
    expect(Object.fromEntries(shown.map(([room, rooms]) => [room, sorted(rooms!)]))).toEqual(
      Object.fromEntries(held.map(([room, rooms]) => [room, sorted(rooms)])),
    );
  });

  test("keeps what decides from doing", () => {
    expect(shippedSources().flatMap(impurities)).toEqual([]);
  });

  test.each([
    ["src/flows/decide/x.ts", "../drive/drive.ts"],
    ["src/tasks/finish/outcome.ts", "./finish.ts"],
    ["src/tasks/finish/outcome.ts", "../tasks.ts"],
    ["src/tasks/finish/outcome.ts", "../sql/finish.ts"],
    ["src/throttles/learning/x.ts", "../registry.ts"],
    ["src/sessions/conversation/x.ts", "../log/owner.ts"],
    ["src/client/socket/connection-state.ts", "./socket.ts"],
    ["src/client/session/position.ts", "./session.ts"],
  ])("catches %s importing %s", (path, from) => {
    expect(impurities({ path, text: `import { x } from "${from}";` })).toHaveLength(1);
  });

  test("has no exception for what decides that isn't needed", () => {
    const imported = shippedSources().flatMap(({ path, text }) => {
      const room = Object.keys(pure).find((each) => path.startsWith(each));
      return importsOf(text)
        .filter(({ kind }) => kind !== "type")
        .map(({ from }) => `${room} ${posix.join(posix.dirname(path), from)}`);
    });
    const listed = Object.entries(pure).flatMap(([room, also]) =>
      also.map((each) => `${room} ${each}`),
    );
    expect(listed.filter((each) => !imported.includes(each))).toEqual([]);
  });

  test("keeps statements to their rooms", () => {
    expect(shippedSources().flatMap(foreignSql)).toEqual([]);
    const text = `import { x } from "../tasks/sql/claim.ts";`;
    expect(foreignSql({ path: "src/cli/x.ts", text })).toHaveLength(1);
    expect(foreignSql({ path: "src/flows/x.ts", text })).toEqual([]);
  });

  test("keeps SQL to the files of statements", () => {
    expect(shippedSources().flatMap(scatteredSql)).toEqual([]);
    const text = `import { now, sql } from "../store/sql.ts";`;
    expect(scatteredSql({ path: "src/cli/x.ts", text })).toHaveLength(1);
    expect(scatteredSql({ path: "src/cli/sql.ts", text })).toHaveLength(1);
    expect(scatteredSql({ path: "src/flows/x.ts", text })).toHaveLength(1);
    expect(scatteredSql({ path: "src/flows/sql.ts", text })).toEqual([]);
    const types = `import type { Statement } from "../store/sql.ts";`;
    expect(scatteredSql({ path: "src/flows/x.ts", text: types })).toEqual([]);
  });

  test.each([
    ["src/base/clock.ts", `import { x } from "../store/x.ts";`],
    ["src/base/clock.ts", `import { hash } from "node:crypto";`],
    ["src/base/clock.ts", `import type { ZodType } from "zod";`],
    ["src/store/database.ts", `export {\n  claim,\n} from "../tasks/claim.ts";`],
    ["src/store/sqlite/open.ts", `export * from "../../tasks/claim.ts";`],
    ["src/store/database.ts", `import pg, { Pool } from "pg";`],
    ["src/tasks/claim.ts", `const pg = await import("pg");`],
    ["src/tasks/claim.ts", `import { flotilla } from "flotilla";`],
    ["src/tasks/claim.ts", `import "../../test/sources.ts";`],
    ["src/server/routes.ts", `import { enqueue } from "../tasks/task.ts";`],
    ["src/cli/main.ts", `await import("../helpers/misc.ts");`],
    ["src/helpers/misc.ts", ``],
  ])("catches a stray in %s: %s", (path, text) => {
    expect(strays({ path, text })).toHaveLength(1);
  });

  test.each([
    ["src/base/clock.ts", `import { x } from "./x.ts";\n// import { y } from "pg";`],
    ["src/tasks/claim.ts", `import * as pods from "../pods/pod.ts";\nimport pino from "pino";`],
    ["src/store/postgres.ts", `import type { Pool } from "pg";\nconst pg = await import("pg");`],
    ["src/server/routes.ts", `import type { Task } from "../tasks/task.ts";`],
    ["src/store/statements.ts", 'export const all = sql`select * from "tasks"`;'],
  ])("lets pass in %s: %s", (path, text) => {
    expect(strays({ path, text })).toEqual([]);
  });
});

function strays({ path, text }: Source): string[] {
  const folder = folderOf(path);
  if (!Object.hasOwn(mayImport, folder)) return [`${path} is in no folder of the table`];
  return importsOf(text)
    .filter((found) => !allowed(path, found))
    .map(({ from, kind }) => `${path} may not import ${from} (${kind})`);
}

function allowed(path: string, { from, kind }: Import): boolean {
  const folder = folderOf(path);
  if (!from.startsWith(".")) {
    if (folder === "base" || /^flotilla(\/|$)/.test(from)) return false;
    return from !== driver || (kind !== "static" && folder === "store");
  }
  const target = posix.join(posix.dirname(path), from);
  if (!target.startsWith("src/")) return false;
  const folders = (kind === "type" && mayImportTypes[folder]) || mayImport[folder]!;
  return folderOf(target) === folder || folders.includes(folderOf(target));
}

/** What is imported though it would do something, into what only decides. */
function impurities({ path, text }: Source): string[] {
  const room = Object.keys(pure).find((each) => path.startsWith(each));
  if (room === undefined) return [];
  const allowed = ["src/base/", "src/protocol/", ...Object.keys(pure), ...pure[room]!];
  return importsOf(text)
    .filter(({ from, kind }) => {
      if (!from.startsWith(".")) return true;
      const target = posix.join(posix.dirname(path), from);
      return !allowed.some((each) => target.startsWith(each)) && kind !== "type";
    })
    .map(({ from }) => `${path} may not import ${from}`);
}

function foreignSql({ path, text }: Source): string[] {
  const room = folderOf(path);
  return importsOf(text)
    .map(({ from }) => posix.join(posix.dirname(path), from))
    .filter((target) => isSql(target) && target.startsWith("src/"))
    .filter((target) => ![room, ...(mayImportSql[room] ?? [])].includes(folderOf(target)))
    .map((target) => `${path} may not import ${target}`);
}

/** What makes statements but is no file of them, or is in a room that has none. */
function scatteredSql({ path, text }: Source): string[] {
  const hasNone = ["cli", "server", "runtime"].includes(folderOf(path));
  if (folderOf(path) === "store" || path in mayWriteSql || (isSql(path) && !hasNone)) return [];
  return importsOf(text)
    .filter(({ from, kind }) => from.endsWith("store/sql.ts") && kind !== "type")
    .map(() => `${path} may not make statements: its room's sql file does`);
}

/** A file of statements, but for what statements are made of. */
function isSql(path: string): boolean {
  return /\/sql(?:\.ts$|\/)/.test(path) && !path.startsWith("src/store/");
}

function folderOf(path: string): string {
  return path.split("/")[1]!;
}
