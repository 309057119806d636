import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { temporaryFile } from "../contract/kinds.ts";
import { openStore } from "../open.ts";
import { migrations } from "../schema.ts";
import { sql, table } from "../sql.ts";

let place: ReturnType<typeof temporaryFile>;
const children: ChildProcess[] = [];
beforeEach(() => {
  place = temporaryFile();
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await place.remove();
});

/** Runs a program in a process of its own; its lines arrive as they are printed. */
function run(script: string) {
  const file = join(place.folder, `program-${children.length}.mjs`);
  writeFileSync(file, script);
  const child = spawn(process.execPath, [file], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  children.push(child);
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += String(chunk)));
  // What it has printed may come after its end, and before that of its pipes.
  const exited = once(child, "close").then(([code]) => code as number | null);
  return { child, exited, output: () => output };
}

const moduleAt = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);

describe("several processes on one file", () => {
  test("make the schema together, and lose none of each other's writes", async () => {
    const writer = (number: number) => `
      import { openStore } from ${moduleAt("../open.ts")};
      import { sql, table } from ${moduleAt("../sql.ts")};
      const database = await openStore(${JSON.stringify(place.path)});
      const writes = [];
      for (let at = 0; at < 200; at++) {
        writes.push(database.write([
          sql\`insert into \${table("task")} (name, payload) values (\${"p" + ${number}}, \${String(at)})\`,
        ]));
        if (at % 20 === 0) await writes.at(-1);
      }
      await Promise.all(writes);
      await database.close();
      console.log("written");`;
    const writers = Array.from({ length: 8 }, (_, number) => run(writer(number)));
    expect(await Promise.all(writers.map((each) => each.exited))).toEqual(writers.map(() => 0));
    const database = await openStore(place.path, { migrate: "check", create: false });
    const counts = await database.read(
      sql`select name, count(*) as count, count(distinct payload) as different
        from ${table("task")} group by name order by name`,
    );
    expect(counts).toEqual(
      writers.map((_, number) => ({ name: `p${number}`, count: 200, different: 200 })),
    );
    const applied = await database.read(sql`select id from ${table("migration")}`);
    expect(applied).toEqual(migrations.map((_, at) => ({ id: at + 1 })));
    await database.close();
  });

  test("wait for each other's locks instead of failing", async () => {
    const database = await openStore(place.path);
    const holder = run(`
      import { DatabaseSync } from "node:sqlite";
      const db = new DatabaseSync(${JSON.stringify(place.path)}, { timeout: 30_000 });
      db.exec("begin immediate");
      console.log("locked");
      process.stdin.once("data", () => {
        db.exec("commit");
        console.log("free");
        process.exit(0);
      });`);
    await until("the lock", () => holder.output().includes("locked"));

    let answered = 0;
    const writes = Array.from({ length: 3 }, (_, id) =>
      database
        .write([sql`insert into ${table("task")} (name) values (${`n${id}`})`])
        .then(() => answered++),
    );
    // Reads go on while the lock is held, and the event loop isn't held up by the writer's waiting.
    for (let reads = 0; reads < 20; reads++) {
      expect(await database.read(sql`select count(*) as count from ${table("task")}`)).toEqual([
        { count: 0 },
      ]);
    }
    expect(answered).toBe(0);
    holder.child.stdin!.write("let go\n");
    await Promise.all(writes);
    expect(answered).toBe(3);
    expect(await holder.exited).toBe(0);
    await database.close();
  });

  test("are notified of what another process has committed", async () => {
    const database = await openStore(place.path);
    let hints = 0;
    database.subscribe(() => hints++);
    const other = new DatabaseSync(place.path, { timeout: 30_000 });
    other.exec("insert into flotilla_task (name) values ('by hand')");
    other.close();
    const byProcess = run(`
      import { DatabaseSync } from "node:sqlite";
      const db = new DatabaseSync(${JSON.stringify(place.path)}, { timeout: 30_000 });
      const insert = () => db.exec("insert into flotilla_task (name) values ('elsewhere')");
      process.stdin.once("data", () => {
        insert();
        // One that sleeps in the middle of its commit is left to polls. The next isn't.
        setInterval(insert, 500);
      });
      process.stdin.once("end", () => process.exit(0));
      console.log("ready");`);
    await until("the other process", () => byProcess.output().includes("ready"));
    await until("the first hint", () => hints > 0);
    const before = hints;
    byProcess.child.stdin!.write("go\n");
    await until("a hint of the other process", () => hints > before);
    byProcess.child.stdin!.end();
    expect(await byProcess.exited).toBe(0);
    await database.close();
  });

  test("lose nothing acknowledged when one of them is killed", async () => {
    const killed = run(`
      import { openStore } from ${moduleAt("../open.ts")};
      import { sql, table } from ${moduleAt("../sql.ts")};
      const database = await openStore(${JSON.stringify(place.path)});
      for (let at = 0; ; at++) {
        await database.write([sql\`insert into \${table("task")} (name, priority) values ('n', \${at})\`]);
        console.log(at);
      }`);
    await until("some writes", () => killed.output().split("\n").length > 100);
    killed.child.kill("SIGKILL");
    await killed.exited;
    const acknowledged = killed.output().split("\n").filter(Boolean).length;
    const database = await openStore(place.path, { create: false });
    const [row] = await database.read(
      sql`select count(*) as count, max(priority) as last from ${table("task")}`,
    );
    expect(row!["count"]).toBeGreaterThanOrEqual(acknowledged);
    expect(row!["count"]).toBe(row!["last"] + 1);
    await database.close();
  });
});

describe("a program that only enqueues", () => {
  test("ends by itself when its work is done, and not before", async () => {
    const program = run(`
      import { openStore } from ${moduleAt("../open.ts")};
      import { sql, table } from ${moduleAt("../sql.ts")};
      const database = await openStore(${JSON.stringify(place.path)});
      database.subscribe(() => {});
      void database.write([sql\`insert into \${table("task")} (name) values ('n')\`]).then(() => console.log("stored"));`);
    expect(await program.exited).toBe(0);
    expect(program.output()).toBe("stored\n");
  });
});
