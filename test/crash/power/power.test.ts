import { type ChildProcess, spawn } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { connect } from "flotilla";
import { expect, onTestFinished, test } from "vitest";
import { built } from "../../built.ts";
import { until } from "../until.ts";

const script = fileURLToPath(new URL("./power-process.ts", import.meta.url));
const hook = new URL("./flushes.ts", import.meta.url).href;
const rounds = 12;
// A checkpoint flushes the log by itself, and comes when the log has so many pages.
const checkpointBytes = 4_000 * 4_096;

type Line = Readonly<Record<string, any>>;

/**
 * Cuts the power at every moment at which a caller or a handler was told something. What is then on the
 * disk is the database file as it was at first, because the run is shorter than a checkpoint, and the
 * write-ahead log as far as it was flushed; a disk may have more, and the lossy writes behind it.
 *
 * This doesn't show that SQLite flushes when it is told to, nor that a disk keeps what it was given, nor
 * a cut in the middle of a checkpoint: these are SQLite's own tests.
 */
test("what was acknowledged on SQLite is there after a power cut, whenever it comes", async () => {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-crash-power-"));
  const children: ChildProcess[] = [];
  onTestFinished(() => {
    for (const child of children) child.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  });
  const path = join(folder, "store.db");
  await migrated(path);

  const start = (store: string, given: { rounds: number }) => {
    const journal = `${store}.journal`;
    const env = { ...process.env, POWER_STORE: store, POWER_JOURNAL: journal };
    const args = [built.program(script), `sqlite:${store}`, hook, String(given.rounds)];
    const child = spawn(process.execPath, args, { stdio: ["pipe", "inherit", "inherit"], env });
    children.push(child);
    return { journal: () => linesIn(journal), kill: () => killed(child) };
  };

  const first = start(path, { rounds });
  await until("it is told enough", () => first.journal().some(({ what }) => what === "over"));
  await first.kill();
  const lines = first.journal();
  const commits = lines.filter(({ what }) => what === "commit");
  expect(new Set(commits.map(({ salt }) => salt)).size).toBe(1);
  expect(commits.at(-1)!["end"]).toBeLessThan(checkpointBytes);
  // There are writes whose loss is to be seen, or nothing would be shown.
  expect(commits.filter(({ flushed }) => !flushed).length).toBeGreaterThan(rounds);

  const log = readFileSync(`${path}-wal`);
  const cutAt = (flushedTo: number, name: string): string => {
    const image = join(folder, name);
    copyFileSync(path, image);
    writeFileSync(`${image}-wal`, log.subarray(0, flushedTo));
    return image;
  };
  let flushedTo = 0;
  let cuts = 0;
  const missing: string[] = [];
  for (const [at, line] of lines.entries()) {
    if (line["what"] === "commit" && line["flushed"]) flushedTo = Math.max(flushedTo, line["end"]);
    // What was told before is looked at now and then, and at the end.
    const told = at === lines.length - 1 || ++cuts % 50 === 0 ? lines.slice(0, at + 1) : [line];
    const acknowledged = told.filter(({ what }) => what in lookups);
    if (acknowledged.length === 0) continue;
    const image = cutAt(flushedTo, "image.db");
    using db = new DatabaseSync(image);
    for (const each of acknowledged) {
      if (!lookups[each["what"]]!(db, each)) missing.push(`cut ${at}: ${JSON.stringify(each)}`);
    }
  }
  expect(missing).toEqual([]);

  // The machine starts again, goes on with what was under way, and works as before.
  const last = start(cutAt(flushedTo, "again.db"), { rounds: 1 });
  const startsIn = (all: readonly Line[]) => all.filter(({ what }) => what === "began");
  const given = new Map(startsIn(lines).map(({ taskId, token }) => [taskId, token as number]));
  await until("what was under way runs again, and new work ends", () => {
    const told = last.journal();
    const again = startsIn(told).filter(({ taskId }) => given.has(taskId));
    return again.length >= 3 && told.some(({ what }) => what === "over");
  });
  await last.kill();
  for (const { taskId, token } of startsIn(last.journal())) {
    expect(token).toBeGreaterThan(given.get(taskId) ?? 0);
  }
});

/** Whether what was told is in a store, by what it was. */
const lookups: Readonly<Record<string, (db: DatabaseSync, line: Line) => boolean>> = {
  stored: (db, { taskId }) => taskIn(db, taskId) !== undefined,
  // A handler or a transition has a token only once no other can be given it.
  began: (db, { taskId, token }) => taskIn(db, taskId)?.["claim_token"] >= token,
  ended(db, { taskId, result }) {
    const row = taskIn(db, taskId);
    return row?.["status"] === "completed" && row["result"] === JSON.stringify(result);
  },
  reached(db, { runId, token, state }) {
    const row = taskIn(db, runId);
    const stored = JSON.parse(row?.["state"] ?? "{}") as Line;
    return row?.["claim_token"] >= token && Object.keys(state).every((key) => key in stored);
  },
  signalled(db, { runId }) {
    const [used] = db
      .prepare("select 1 from flotilla_task_event where task_id = ? and type = 'signal'")
      .all(runId);
    return (
      used !== undefined ||
      db.prepare("select 1 from flotilla_task_signal where task_id = ?").get(runId) !== undefined
    );
  },
  created: (db, { sessionId }) =>
    db.prepare("select 1 from flotilla_session where session_id = ?").get(sessionId) !== undefined,
  said(db, { sessionId, seq, text }) {
    const found = db
      .prepare("select body from flotilla_message where session_id = ? and seq = ?")
      .get(sessionId, seq);
    return String(found?.["body"]).includes(text);
  },
};

function taskIn(db: DatabaseSync, taskId: string): Line | undefined {
  return db.prepare("select * from flotilla_task where task_id = ?").get(taskId);
}

/** A store whose schema is in the database file, with nothing left in the log. */
async function migrated(path: string): Promise<void> {
  const flotilla = connect(`sqlite:${path}`);
  await flotilla.tasks.stats();
  await flotilla.close();
}

function linesIn(journal: string): Line[] {
  if (!existsSync(journal)) return [];
  const text = readFileSync(journal, "utf8");
  const whole = text.slice(0, text.lastIndexOf("\n") + 1);
  return whole
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Line);
}

async function killed(child: ChildProcess): Promise<void> {
  const gone = new Promise((resolve) => child.once("close", resolve));
  child.kill("SIGKILL");
  await gone;
}
