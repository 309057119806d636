import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Flotilla } from "../src/runtime/connect.ts";
import { run, start } from "./command.ts";

let folder: string;
let flotilla: Flotilla;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-file-"));
  flotilla = connect(`sqlite:${join(folder, "flotilla.db")}`);
  await flotilla.ping();
});
afterAll(async () => {
  await flotilla.close();
  rmSync(folder, { recursive: true, force: true });
});

const file = (name: string, lines: readonly unknown[]): string => {
  const texts = lines.map((each) => (typeof each === "string" ? each : JSON.stringify(each)));
  writeFileSync(join(folder, name), `${texts.join("\n")}\n`);
  return name;
};
const command = async (args: string[], stdin?: string) => {
  const told = await run(["enqueue", ...args], {
    cwd: folder,
    ...(stdin !== undefined && { stdin }),
  });
  return { ...told, stderr: withoutProgress(told.stderr) };
};
/** How far it is is told only where it takes long. */
const withoutProgress = (text: string) => text.replaceAll(/^.*\d rows, [\d,]+\/s\n/gm, "");
const countOf = async (name: string) => (await flotilla.tasks.stats()).byName[name]?.pending ?? 0;

describe("a file of tasks", () => {
  test("is stored row by row, says what was refused, and adds nothing when it is sent again", async () => {
    const rows = Array.from({ length: 2_500 }, (_, at) => ({
      name: "a",
      options: { key: `${at}` },
    }));
    const path = file("rows.ndjson", [...rows, "", "{oops", { name: "a b" }]);
    const first = await command(["--file", path]);
    expect(first).toMatchObject({
      code: 1,
      stdout: "2,502 rows: 2,500 created, 2 rejected\n",
      stderr:
        "line 2502: invalid_input: line 2502 isn't JSON\n" +
        `line 2503: invalid_option: a task's name is 1 to 200 letters, digits and _ . : / -, and begins with a letter, a digit or _, not "a b"\n` +
        'flotilla: no pod that is up works on "a": its tasks wait until one does\n',
    });
    const again = await command(["--file", path, "--json"]);
    const lines = again.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines).toHaveLength(2_503);
    expect(lines[0]).toMatchObject({ line: 1, outcome: "existing" });
    expect(lines[2_500]).toMatchObject({ line: 2_502, outcome: "rejected", code: "invalid_input" });
    expect(lines.at(-1)).toEqual({
      rows: 2_502,
      created: 0,
      existing: 2_500,
      replaced: 0,
      rejected: 2,
    });
    expect(await countOf("a")).toBe(2_500);
  });

  test("comes from standard input, and rows are what the command line says where they don't", async () => {
    const rows = `{"input":1}\n{"name":"c","options":{"priority":2}}`;
    const args = [
      "b",
      "--file",
      "-",
      "--priority",
      "7",
      "--run-at",
      "2100-01-01T00:00:00Z",
      "--json",
    ];
    const { code, stdout, stderr } = await command(args, rows);
    expect(code).toBe(0);
    // Each name that no pod works on is named once, beside the output.
    expect(stderr.match(/works on "\w"/g)).toEqual(['works on "b"', 'works on "c"']);
    const [b, c] = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const runAtMs = Date.UTC(2100, 0);
    expect(await flotilla.tasks.get(b.taskId)).toMatchObject({
      name: "b",
      payload: 1,
      priority: 7,
      runAtMs,
    });
    expect(await flotilla.tasks.get(c.taskId)).toMatchObject({ name: "c", priority: 2, runAtMs });
  });

  test("is left where it is when the command is told to stop", async () => {
    const running = start(["enqueue", "d", "--file", "-"], { cwd: folder, stdin: null });
    const many = Array.from({ length: 1_000 }, (_, at) => JSON.stringify({ input: at })).join("\n");
    running.child.stdin!.write(`${many}\n{"input":"wait"}\n`);
    await expect.poll(() => countOf("d")).toBe(1_000);
    running.child.kill("SIGINT");
    const { code, stderr } = await running.ended;
    expect(code).toBe(1);
    expect(withoutProgress(stderr)).toBe("flotilla: enqueueing was stopped (after 1000 rows)\n");
  });

  test.each([
    [["--file", "nowhere.ndjson"], 2, /nowhere.ndjson can't be read/],
    [["a", "{}", "--file", "rows.ndjson"], 2, /a payload is for a single task/],
    [[], 2, /the task's name is missing/],
    [["a", "--run-at", "soon"], 2, /runAt must be a time/],
    [["a", "--on-duplicate", "reject"], 2, /onDuplicate needs a key/],
    [["a", "--key", "0", "--on-duplicate", "reject"], 4, /holds the key "0" already/],
  ])("%j is refused", async (args, code, message) => {
    expect(await command(args)).toMatchObject({ code, stderr: expect.stringMatching(message) });
  });
});
