import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { migrate } from "../../src/store/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { sql, table } from "../../src/store/sql.ts";
import { makeBuild } from "../../test/make-build.ts";
import { diskFolder } from "../folder.ts";
import { startBenchPostgres } from "../servers/postgres.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import { pause } from "./appender.ts";
import { startCallers } from "./callers.ts";
import { sayErrors } from "./failover.ts";
import { makeSessions, openPods, runCommand, sessionPerLog } from "./pods.ts";
import type { ClusterSite } from "./works.ts";

export type PromoteWork = {
  readonly rounds: number;
  /** What the SQLite store has. */
  readonly tasks: number;
  readonly runs: number;
  readonly sessions: number;
  readonly settleMs: number;
};

const acksLimitMs = 60_000;

/** From SQLite to Postgres by rows a second, and how long sessions wait while their logs go to the servers. */
export async function measurePromote(site: ClusterSite, work: PromoteWork): Promise<Work[]> {
  const rows = await measureRows(site, work);
  return [rows, ...(await measurePause(site, work))];
}

async function measureRows({ options }: ClusterSite, work: PromoteWork): Promise<Work> {
  const figures = collect("promote.rows", "rows/s", "higher");
  await using opened = new AsyncDisposableStack();
  await makeBuild();
  const folder = mkdtempSync(join(diskFolder(), "flotilla-bench-promote-"));
  opened.defer(() => rmSync(folder, { recursive: true, force: true }));
  const postgres = await startBenchPostgres();
  opened.defer(() => postgres.stop());
  for (let round = 1; round <= work.rounds; round++) {
    const file = join(folder, `store-${round}.db`);
    await fill(`sqlite:${file}`, work);
    const to = await postgres.fresh();
    const args = ["promote", "--from", `sqlite:${file}`, "--to", to, "--json"];
    const printed = await runCommand(args, { cwd: folder, env: process.env });
    const { rows, durationMs } = JSON.parse(printed) as { rows: number; durationMs: number };
    figures.add("flotilla", { value: (1_000 * rows) / durationMs });
    options.progress(
      `promote.rows, round ${round} of ${work.rounds}: ${rows} rows in ${(durationMs / 1_000).toFixed(1)} s`,
    );
  }
  return figures.work;
}

/** Tasks that are done, runs that wait, and sessions of ten messages, made by SQL. */
async function fill(store: string, { tasks, runs, sessions }: PromoteWork): Promise<void> {
  const database = await openStore(store, {});
  try {
    await migrate(database);
    const numbers = (count: number) =>
      sql`with recursive number (n) as (
        select 1 union all select n + 1 from number where n < ${count})`;
    await database.write([
      sql`${numbers(tasks)}
        insert into ${table("task")} (name, payload, status)
        select 'mail', hex(randomblob(50)), 'completed' from number`,
      sql`${numbers(runs)}
        insert into ${table("task")} (name, payload, run_at)
        select 'flow', hex(randomblob(50)), 9000000000000000 from number`,
      sql`${numbers(sessions)}
        insert into ${table("session")}
          (session_id, log_id, last_offset, last_seq, header, created_at, active_at)
        select 'session-' || n, 0, n, 10, '{}', n, n from number`,
      sql`${numbers(sessions * 10)}
        insert into ${table("message")} (session_id, seq, role, author, message_id, body, at)
        select 'session-' || ((n + 9) / 10), (n + 9) % 10 + 1, 'user', 'ada', 'message-' || n,
          hex(randomblob(100)), n from number`,
    ]);
  } finally {
    await database.close();
  }
}

async function measurePause(site: ClusterSite, work: PromoteWork): Promise<Work[]> {
  const pauses = collect("promote.pause_s", "s", "lower");
  const back = collect("promote.back_pause_s", "s", "lower");
  await using opened = new AsyncDisposableStack();
  const pods = await openPods(site, { use: "bus" });
  opened.defer(() => pods.close());
  const sessions = sessionPerLog("called", pods.logs);
  await makeSessions(pods.running[0]!.url, sessions);
  const callers = startCallers(sessions, () => pods.running);
  opened.defer(() => callers.end());
  await callers.allAcked(acksLimitMs);
  for (let round = 1; round <= work.rounds; round++) {
    for (const [to, figures] of [
      ["nats", pauses],
      ["postgres", back],
    ] as const) {
      await pause(work.settleMs);
      callers.begin();
      const startedMs = performance.now();
      await pods.command(["promote", "--to", to]);
      const tookMs = performance.now() - startedMs;
      await callers.allAcked(acksLimitMs);
      const seconds = Math.max(...callers.gapsMs()) / 1_000;
      figures.add("flotilla", { value: seconds });
      site.options.progress(
        `${figures.work.metric}, round ${round} of ${work.rounds}: no ack for ${seconds.toFixed(2)} s at most, in a command of ${(tookMs / 1_000).toFixed(1)} s`,
      );
    }
  }
  sayErrors(callers, site.options.progress);
  return [pauses.work, back.work];
}
