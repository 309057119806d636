import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../src/runtime/connect.ts";
import { migrations } from "../src/store/schema.ts";
import { built } from "./built.ts";
import { type Outcome, run } from "./command.ts";

// The commands that open the store, each in its own way.
const looking = ["tasks", "list"];
const enqueueing = ["enqueue", "mail", "1"];
const working = ["work"];
const serving = ["serve", "--no-work", "--port", "0"];
const migrating = ["migrate"];
const commands = [looking, working, migrating];

const config = `
  import { defineConfig, task } from ${JSON.stringify(built.index)};
  export default defineConfig({ use: [task("mail", {}, async () => "sent")] });`;

let healthy: Buffer;
let folder: string;
let file: string;

beforeAll(async () => {
  const made = mkdtempSync(join(tmpdir(), "flotilla-healthy-"));
  const flotilla = connect(`sqlite:${join(made, "flotilla.db")}`);
  const letters = Array.from({ length: 300 }, (_, at) => ({ at, text: "x".repeat(500) }));
  await flotilla.enqueueMany("mail", letters);
  await flotilla.close();
  healthy = readFileSync(join(made, "flotilla.db"));
  rmSync(made, { recursive: true });
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-bad-"));
  file = join(folder, "flotilla.db");
  writeFileSync(join(folder, "flotilla.config.mjs"), config);
});
afterEach(() => {
  chmodSync(folder, 0o755);
  rmSync(folder, { recursive: true, force: true });
});

describe("a file that isn't there", () => {
  test.each([[looking], [enqueueing], [["pods"]]])(
    "is missed, and not made, by %j",
    async (command) => {
      const outcome = await run(command, { cwd: folder });
      expectTrouble(outcome, /there is no database file at flotilla\.db/);
      expect(existsSync(file)).toBe(false);
    },
  );

  test("isn't made by `migrate --dry-run` or `doctor` either", async () => {
    const plan = await run(["migrate", "--dry-run"], { cwd: folder });
    expect(plan).toMatchObject({ code: 0, stderr: "" });
    expect(plan.stdout).toContain("create table flotilla_task (");
    expect(await run(["doctor"], { cwd: folder })).toMatchObject({ code: 1 });
    expect(existsSync(file)).toBe(false);
  });

  test("isn't made by a pod that may only check the schema", async () => {
    const careful = config.replace("{ use", `{ migrate: "check", use`);
    writeFileSync(join(folder, "flotilla.config.mjs"), careful);
    expectTrouble(await run(working, { cwd: folder }), /there is no database file/);
    expect(existsSync(file)).toBe(false);
  });

  test("in a folder that isn't there is missed by all", async () => {
    const store = ["--store", "sqlite:no/such/flotilla.db"];
    for (const command of [working, migrating]) {
      expectTrouble(await run([...command, ...store], { cwd: folder }), /its folder exists/);
    }
    expect(existsSync(join(folder, "no"))).toBe(false);
  });
});

describe("a damaged file", () => {
  test("of garbage is refused and left alone", async () => {
    const garbage = Buffer.alloc(20_000, "no database ");
    writeFileSync(file, garbage);
    for (const command of [...commands, enqueueing, serving]) {
      const outcome = await run(command, { cwd: folder });
      expectTrouble(outcome, /isn't a SQLite database.*restore it from a back-up/);
    }
    expect(readFileSync(file).equals(garbage)).toBe(true);
    expect(readdirSync(folder).toSorted()).toEqual(["flotilla.config.mjs", "flotilla.db"]);
    await expectDoctorFails(/isn't a SQLite database/);
  });

  test("that lost its end is refused", async () => {
    writeFileSync(file, healthy);
    truncateSync(file, 6_000);
    await expectTroubleFromAll(/is damaged: restore it from a back-up/);
    await expectDoctorFails(/is damaged/);
  });

  test("with pages written over at its start is refused", async () => {
    writeFileSync(file, healthy);
    overwrite({ from: 4_096, bytes: 3 * 4_096 });
    await expectTroubleFromAll(/is damaged: restore it from a back-up/);
    await expectDoctorFails(/integrity/);
  });

  test("whose damage is found only at work ends the pod, and says so", async () => {
    writeFileSync(file, healthy);
    // The schema and where every table begins are whole, so that the store can be opened.
    const from = lastOfSchema() * 4_096;
    overwrite({ from, bytes: healthy.length - from });
    expectTrouble(await run(working, { cwd: folder }), /is damaged: restore it from a back-up/);
    await expectDoctorFails(/integrity/);
  });
});

describe("a file of a newer release", () => {
  test("that needs a newer one is refused by all, and left alone", async () => {
    writeFileSync(file, healthy);
    withDatabase("insert into flotilla_migration values (99, 'the future', 99, 0)");
    await expectTroubleFromAll(/has schema 99, this release knows \d+ .*update flotilla/);
    await expectDoctorFails(/schema 99/);
    const dryRun = await run(["migrate", "--dry-run"], { cwd: folder });
    expectTrouble(dryRun, /update flotilla/);
  });

  test("that this one can work with is worked with", async () => {
    writeFileSync(file, healthy);
    withDatabase("insert into flotilla_migration values (99, 'the future', 1, 0)");
    expect(await run(enqueueing, { cwd: folder })).toMatchObject({ code: 0 });
  });
});

describe("a file of an older release", () => {
  test("is brought up to date by `migrate`, and refused until then by commands that only read", async () => {
    writeFileSync(file, "");
    expectTrouble(await run(looking, { cwd: folder }), /has schema 0.*flotilla migrate/);
    expect(await run(migrating, { cwd: folder })).toMatchObject({
      code: 0,
      stdout: `migrated from schema 0 to ${migrations.length}\n`,
    });
    expect(await run(migrating, { cwd: folder })).toMatchObject({
      stdout: `schema ${migrations.length} is up to date\n`,
    });
    expect(await run(looking, { cwd: folder })).toMatchObject({ code: 0, stdout: "no tasks\n" });
  });
});

describe("a file that can't be written", () => {
  // Root may write anything, so it gives up that right first.
  const prefix =
    process.getuid!() === 0 ? ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] : [];

  test("by its own permissions", async () => {
    writeFileSync(file, healthy);
    chmodSync(file, 0o444);
    await expectTroubleFromAll(/can't be written: check the permissions/, prefix);
    await expectDoctorFails(/can't be written/, prefix);
    expect(readFileSync(file).equals(healthy)).toBe(true);
  });

  test("by those of its folder", async () => {
    writeFileSync(file, healthy);
    chmodSync(folder, 0o555);
    await expectTroubleFromAll(/can't be written: check the permissions/, prefix);
    await expectDoctorFails(/can't be written/, prefix);
  });

  test("and isn't there, in a folder that can't be written", async () => {
    chmodSync(folder, 0o555);
    const options = { cwd: folder, prefix };
    expectTrouble(await run(migrating, options), /its folder exists and can be written/);
    expect(existsSync(file)).toBe(false);
  });

  test("because its file system is read-only", async () => {
    writeFileSync(file, healthy);
    const mounted = mounting(`mount --bind "${folder}" "${folder}" &&
      mount -o remount,ro,bind "${folder}"`);
    await expectTroubleFromAll(/can't be written: check the permissions/, mounted);
  });
});

describe("a disk that is full", () => {
  const fill = (command: string) => `mount -t tmpfs -o size=1m tmpfs "${folder}/disk" &&
    ${command} && { head -c 2M /dev/zero > "${folder}/disk/fill" || true; } 2>/dev/null`;
  const store = ["--store", "sqlite:disk/flotilla.db"];

  test("is named by all, whatever they do", async () => {
    mkdirSync(join(folder, "disk"));
    writeFileSync(join(folder, "healthy.db"), healthy);
    const prefix = mounting(fill(`cp "${folder}/healthy.db" "${folder}/disk/flotilla.db"`));
    for (const command of commands) {
      const outcome = await run([...command, ...store], { cwd: folder, prefix });
      expectTrouble(outcome, /the disk is full: free some space/);
    }
    const doctor = await run(["doctor", ...store], { cwd: folder, prefix });
    expect(doctor).toMatchObject({ code: 1, stderr: "" });
    expect(doctor.stdout).toMatch(/fail +disk/);
  });

  test("takes no new file", async () => {
    mkdirSync(join(folder, "disk"));
    const outcome = await run([...migrating, ...store], {
      cwd: folder,
      prefix: mounting(fill("true")),
    });
    expectTrouble(outcome, /the disk is full: free some space/);
  });
});

test("a folder in place of the file is called a folder", async () => {
  mkdirSync(file);
  await expectTroubleFromAll(/flotilla\.db is a folder: name a file in it/);
  await expectDoctorFails(/isn't a file/);
  expect(readdirSync(file)).toEqual([]);
});

async function expectTroubleFromAll(message: RegExp, prefix: string[] = []): Promise<void> {
  for (const command of commands) {
    expectTrouble(await run(command, { cwd: folder, prefix }), message);
  }
}

/** One clear sentence for people, the store's exit code for scripts, and no stack. */
function expectTrouble({ code, stdout, stderr }: Outcome, message: RegExp): void {
  const sentences = stderr.split("\n").filter((line) => line !== "" && !line.startsWith("{"));
  expect(sentences).toEqual([expect.stringMatching(/^flotilla: /)]);
  expect(sentences[0]).toMatch(message);
  expect({ code, stdout }).toEqual({ code: 3, stdout: "" });
}

async function expectDoctorFails(message: RegExp, prefix: string[] = []): Promise<void> {
  const { code, stdout, stderr } = await run(["doctor"], { cwd: folder, prefix });
  expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
  const failed = stdout.split("\n").filter((line) => line.startsWith("fail"));
  expect(failed.join("\n")).toMatch(message);
}

/** The last of the pages that the schema is in, or that a table or an index begins with. */
function lastOfSchema(): number {
  const database = new DatabaseSync(file);
  const pages = "select max(pageno) as last from dbstat where name = 'sqlite_schema' or path = '/'";
  const { last } = database.prepare(pages).get()!;
  database.close();
  return Number(last);
}

function overwrite({ from, bytes }: { from: number; bytes: number }): void {
  writeSync(openSync(file, "r+"), Buffer.alloc(bytes, 0x5a), 0, bytes, from);
}

function withDatabase(text: string): void {
  const database = new DatabaseSync(file);
  database.exec(text);
  database.close();
}

/** Runs a command among mounts of its own, which are gone when it ends. */
function mounting(script: string): string[] {
  const unshare = ["unshare", ...(process.getuid!() === 0 ? [] : ["-r"]), "--mount"];
  const prefix = [...unshare, "sh", "-c", `${script} || exit 99; exec "$@"`, "sh"];
  try {
    execFileSync(prefix[0]!, [...prefix.slice(1), "true"], { stdio: "pipe" });
  } catch (error) {
    throw new Error(
      "this test mounts a small file system, which it may not do here: run the tests as root, in a container with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN), or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
      { cause: error },
    );
  }
  return prefix;
}
