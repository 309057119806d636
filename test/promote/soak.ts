/**
 * `npm run soak -- promote`: a large store in use is moved from SQLite to Postgres, its logs to NATS and back,
 * while the command is killed again and again. Then both stores are compared row by row, and so is what
 * followers of its sessions have seen.
 *
 *   npm run soak -- promote --tasks 1000000 --runs 10000 --sessions 1000 --kills 20
 *   npm run soak -- promote --tasks 100000 --kills 0
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as wait } from "node:timers/promises";
import { parseArgs } from "node:util";
import pg from "pg";
import { diskFolder } from "../../bench/folder.ts";
import { sql, type Statement, table } from "../../src/store/sql.ts";
import { openConnection } from "../../src/store/sqlite/connection.ts";
import { inlineDatabase } from "../../src/store/sqlite/inline.ts";
import { built } from "../built.ts";
import { type Running, start } from "../command.ts";
import { freePorts } from "../free-ports.ts";
import { makeBuild } from "../make-build.ts";
import { startNatsCluster } from "../nats/server.ts";
import { getParts, missing, parts } from "../parts.ts";
import { startPostgres } from "../postgres/server.ts";
import { type Chats, openChats } from "./chats.ts";
import { comparedTables, digestFile, digestPostgres } from "./digest.ts";

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: {
    tasks: { type: "string", default: "1000000" },
    runs: { type: "string", default: "10000" },
    sessions: { type: "string", default: "1000" },
    /** How often the command is killed on each way. */
    kills: { type: "string", default: "20" },
  },
});
const [tasks, runs, sessions, kills] = (["tasks", "runs", "sessions", "kills"] as const).map(
  (name) => {
    const given = Number(values[name]);
    if (!Number.isSafeInteger(given) || given < 0) throw new Error(`--${name} takes a number`);
    return given;
  },
) as [number, number, number, number];

const needed = [parts.postgres, parts.nats];
const failure = getParts(needed);
const absent = needed.filter((each) => each.find() === undefined);
if (absent.length > 0) throw missing(absent, failure);
await makeBuild();

/** Tasks that pods are to do once the store was moved. */
const waiting = 200;
const startLimitMs = 300_000;
const talkers = 20;
const settings = { shared_buffers: "512MB" };

await using opened = new AsyncDisposableStack();
const folder = mkdtempSync(join(diskFolder(), "flotilla-soak-promote-"));
opened.defer(() => rmSync(folder, { recursive: true, force: true }));
const path = join(folder, "store.db");
const processes: Running[] = [];
opened.defer(async () => {
  for (const { child } of processes) child.kill("SIGKILL");
  await Promise.all(processes.map(({ ended }) => ended));
});
const postgres = await startPostgres({ within: diskFolder(), settings });
opened.defer(() => postgres.stop());
const to = `${postgres.url}?connections=4`;
const nats = await startNatsCluster({ within: diskFolder(), maxFileStore: "200GB" });
opened.defer(() => nats.stop());
const monitors = nats.servers.map(({ monitorUrl }) => `monitor=${monitorUrl}`).join("&");
const natsEnv = { FLOTILLA_NATS: `${nats.urls.join(",")}?use=bus&${monitors}` };
const ports = await freePorts(2).then((first) => [first, first + 1]);
const faults: string[] = [];

writeFileSync(
  join(folder, "flotilla.config.mjs"),
  `import { defineConfig, task } from ${JSON.stringify(built.index)};
   export default defineConfig({ use: [task("count", {}, ({ input }) => input.n)] });`,
);
await fill();
let pods = await startPods(`sqlite:${path}`);
const chats = await openChats(
  ports.map((port) => `http://127.0.0.1:${port}`),
  sessions,
);
opened.defer(() => chats.close());
await chats.sayInAll();
await enqueueWaiting();
say(`${sessions} sessions are followed, and ${waiting} tasks wait`);

const pausedMs = performance.now();
await stopPods();
const compared = await comparedTables(path);
const before = digestFile(path, compared);
const total = Object.values(before).reduce((sum, { rows }) => sum + rows, 0);
await toPostgres();
const after = await digestPostgres(postgres.url, compared);
for (const [name, { rows, sum }] of Object.entries(before)) {
  const found = after[name];
  if (found?.rows !== rows || found.sum !== sum)
    faults.push(`the table ${name} had ${rows} rows, and has ${found?.rows}, or others`);
}
say(`${total} rows of ${compared.length} tables: ${faults.length} tables differ`);
pods = await startPods(to, natsEnv);
await chats.sayInAll();
await chats.caughtUp();
say(`all sessions go on; nothing was acked for ${seconds(performance.now() - pausedMs)} in all`);
faults.push(...chats.faults().slice(0, 10));
await untilDone();

for (const place of ["nats", "postgres"]) await moveLogs(place, chats);
await chats.sayInAll();
await chats.caughtUp();
faults.push(...chats.faults().slice(0, 10));
await compareEntries();
await stopPods();
say(faults.length === 0 ? "nothing was lost, doubled or reset" : faults.join("\n"));
process.exitCode = faults.length === 0 ? 0 : 3;

/** Tasks and runs as they are after a year: most are done, some have failed, and each has had its event. */
async function fill(): Promise<void> {
  const connection = openConnection({ path, create: true, durability: "relaxed" });
  const database = inlineDatabase(connection);
  const { migrate } = await import("../../src/store/migrate.ts");
  await migrate(database);
  const numbers = (count: number): Statement => sql`with recursive number (n) as (
    select 1 union all select n + 1 from number where n < ${count})`;
  const payload = sql`'{"text":"' || hex(randomblob(40)) || '"}'`;
  if (tasks > 0)
    await database.write([
      sql`${numbers(tasks)}
        insert into ${table("task")} (name, payload, status, result)
        select 'mail', ${payload}, case n % 50 when 0 then 'failed' else 'completed' end, '{"ok":true}'
        from number`,
    ]);
  if (runs > 0)
    await database.write([
      sql`${numbers(runs)}
        insert into ${table("task")} (name, payload, run_at)
        select 'flow', ${payload}, 9000000000000000 from number`,
      sql`insert into ${table("task_event")} (task_id, seq, type, attempt, at)
        select task_id, 1, 'created', 0, 1 from ${table("task")} where name = 'flow'`,
    ]);
  await database.close();
  say(`${tasks} tasks and ${runs} runs are there`);
}

async function enqueueWaiting(): Promise<void> {
  const connection = openConnection({ path, durability: "relaxed" });
  const database = inlineDatabase(connection);
  // An hour from now, and then at once: no pod does them before the store was moved.
  await database.write([
    sql`with recursive number (n) as (select 1 union all select n + 1 from number where n < ${waiting})
      insert into ${table("task")} (name, payload, run_at)
      select 'count', '{"n":' || n || '}', ${(Date.now() + 3_600_000) * 1_000} from number`,
  ]);
  await database.close();
}

async function untilDone(): Promise<void> {
  const due = `update flotilla.task set run_at = 0 where name = 'count' and status = 'pending'`;
  await query(due);
  const limitMs = performance.now() + startLimitMs;
  for (;;) {
    const [row] = await query(
      `select count(*)::int as done, count(distinct result)::int as results, max(retry_count + deaths)::int as again
       from flotilla.task where name = 'count' and status = 'completed'`,
    );
    if (row!["done"] === waiting) {
      if (row!["results"] !== waiting || row!["again"] !== 0)
        faults.push(`tasks that waited were done ${JSON.stringify(row)}`);
      return say(`${waiting} tasks that waited are done, each once`);
    }
    if (performance.now() > limitMs)
      return void faults.push(`${Number(row!["done"])} tasks that waited are done of ${waiting}`);
    await wait(200);
  }
}

/** Starts the command again and again, killing it at points that are spread over all that it does. */
async function toPostgres(): Promise<void> {
  const beganMs = performance.now();
  let [peakBytes, killed] = [0, 0];
  const points = Array.from({ length: kills }, (_, nth) => nth);
  for (const nth of points) {
    const promoting = promote(["--from", `sqlite:${path}`, "--to", to, "--json"]);
    // Three of four while it copies, by its rows; the others while it compares, by the time.
    const copies = Math.ceil((kills * 3) / 4);
    const isThere =
      nth < copies
        ? async () => (await copied()) > (total * nth) / copies
        : async () => (await copied()) >= total;
    while (!(await isThere()) && !promoting.isOver()) await wait(20);
    if (nth >= copies) await wait((nth - copies) * 1_500);
    peakBytes = Math.max(peakBytes, promoting.peakBytes());
    if (await promoting.kill()) killed++;
  }
  const lastMs = performance.now();
  const had = await copied();
  const last = promote(["--from", `sqlite:${path}`, "--to", to, "--json"]);
  const ended = await last.untilOver();
  peakBytes = Math.max(peakBytes, last.peakBytes());
  if (ended.code !== 0) throw new Error(`promote ended with ${ended.code}: ${ended.stderr}`);
  const tookMs = performance.now() - lastMs;
  const moved = JSON.parse(ended.stdout) as { rows: number };
  say(
    `moved ${moved.rows} rows in ${seconds(performance.now() - beganMs)}, killed ${killed} times; the last run had ${had} and took ${seconds(tookMs)}, ${Math.round((1_000 * moved.rows) / tookMs)} rows/s; ${megabytes(peakBytes)} MB at most`,
  );
}

async function copied(): Promise<number> {
  const rows = await query("select progress from flotilla.promotion").catch(() => []);
  const progress = JSON.parse((rows[0]?.["progress"] as string | undefined) ?? "{}") as object;
  return Object.values(progress).reduce((sum: number, { rows: each }: { rows: number }) => {
    return sum + each;
  }, 0);
}

/** Moves the logs while sessions are talked in, killing the command ever later. */
async function moveLogs(place: string, all: Chats): Promise<void> {
  const talk = all.talk(Math.min(talkers, sessions));
  await wait(3_000);
  const usualMs = talk.gapMs();
  let [killed, peakBytes] = [0, 0];
  for (let nth = 0; nth < kills; nth++) {
    const moving = promote(["--to", place, "--store", to, "--json"], natsEnv);
    const endMs = performance.now() + 400 + 150 * nth;
    while (performance.now() < endMs && !moving.isOver()) await wait(20);
    if (await moving.kill()) killed++;
  }
  const killedMs = talk.gapMs();
  if (kills > 0) {
    // A way that wasn't interrupted, for the pause.
    await settle(place);
    await settle(place === "nats" ? "postgres" : "nats");
    await all.caughtUp();
    talk.gapMs();
  }
  const beganMs = performance.now();
  const moving = await settle(place);
  peakBytes = moving.peakBytes();
  const tookMs = performance.now() - beganMs;
  await wait(3_000);
  const gapMs = talk.gapMs();
  await talk.stop();
  if (talk.errors.length > 0)
    faults.push(`${talk.errors.length} messages failed, such as ${talk.errors[0]}`);
  say(
    `to ${place} in ${seconds(tookMs)}: no ack for ${seconds(gapMs)} at most, ${seconds(usualMs)} before it, ${seconds(killedMs)} while it was killed ${killed} times; ${talk.acked} acked, ${megabytes(peakBytes)} MB at most`,
  );
}

/** Moves the logs, also where a pod first has to follow the move before this one. */
async function settle(place: string): Promise<Promoting> {
  for (let tries = 1; ; tries++) {
    const moving = promote(["--to", place, "--store", to, "--json"], natsEnv);
    const { code, stderr } = await moving.untilOver();
    if (code === 0) return moving;
    const mayTry = stderr.includes("has not followed the move before") && tries < 30;
    if (!mayTry) throw new Error(`promote --to ${place} ended with ${code}: ${stderr}`);
    await wait(1_000);
  }
}

/** The archive has each entry once, without gaps. */
async function compareEntries(): Promise<void> {
  const wrong = await query(
    `select s.session_id from flotilla.session s left join flotilla.message m using (session_id)
     group by s.session_id, s.last_seq
     having count(m.seq) <> s.last_seq or max(m.seq) <> s.last_seq limit 5`,
  );
  for (const row of wrong) faults.push(`${String(row["session_id"])} has gaps in the database`);
  const [row] = await query(
    `select count(*)::int as tasks from flotilla.task where name <> 'count'`,
  );
  if (row!["tasks"] !== tasks + runs)
    faults.push(`there are ${String(row!["tasks"])} tasks and runs, of ${tasks + runs}`);
}

type Promoting = ReturnType<typeof promote>;

function promote(args: readonly string[], env: Record<string, string> = {}) {
  const running = start(["promote", ...args], { cwd: folder, env });
  processes.push(running);
  let peak = 0;
  let over = false;
  const look = setInterval(() => (peak = Math.max(peak, peakOf(running.child.pid!))), 100);
  const ended = running.ended.finally(() => {
    over = true;
    clearInterval(look);
    processes.splice(processes.indexOf(running), 1);
  });
  return {
    isOver: () => over,
    peakBytes: () => peak,
    untilOver: () => ended,
    /** True if it was killed before it was over. */
    async kill() {
      running.child.kill("SIGKILL");
      return (await ended).code === "SIGKILL";
    },
  };
}

/** The most memory that a process has had. */
function peakOf(pid: number): number {
  try {
    const [, kilobytes] = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))!;
    return 1_024 * Number(kilobytes);
  } catch {
    return 0;
  }
}

async function startPods(store: string, env: Record<string, string> = {}): Promise<Running[]> {
  const all = ports.map((port) => {
    const flags = ["serve", "--port", String(port), "--store", store, "--data-dir", folder];
    const pod = start([...flags.slice(0, -1), join(folder, `pod-${port}`)], { cwd: folder, env });
    processes.push(pod);
    return pod;
  });
  const limitMs = performance.now() + startLimitMs;
  for (const { output, child } of all) {
    while (!output.stdout.includes("listens on")) {
      if (child.exitCode !== null || performance.now() > limitMs)
        throw new Error(`a pod didn't start: ${output.stdout.slice(-500)}${output.stderr}`);
      await wait(100);
    }
  }
  return all;
}

async function stopPods(): Promise<void> {
  for (const { child } of pods) child.kill("SIGTERM");
  await Promise.all(pods.map(({ ended }) => ended));
}

async function query(text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(postgres.url);
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1024 / 1024);
}

function say(line: string): void {
  console.log(`${new Date().toISOString().slice(11, 19)} ${line}`);
}
