/**
 * Writes runs of a flow as this release leaves them when its pod is killed, one in every state, for the
 * releases after it to finish. Run once at a release; what was written is never written again:
 *
 *     npx node --conditions=flotilla:source test/upgrade/write-runs.ts 1
 */
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { silentLogger } from "../../src/base/log.ts";
import { abort } from "../../src/base/errors.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import { type Kept, kept, legs, trips } from "./trips.ts";

const release = Number(process.argv[2]);
const file = fileURLToPath(new URL(`runs/${release}.json`, import.meta.url));
if (!(release >= 1)) throw new Error("say which release this is");
if (existsSync(file)) throw new Error(`the runs of release ${release} have been written`);

/** Where it was thrown says nothing about the release. */
const plain = (error: Error) => Object.assign(error, { stack: "" });
const never = new Promise(() => {});
const hooks = {
  at(run: string, place: string): unknown {
    const where = `${run} ${place}`;
    if (where === "retrying book") throw plain(new Error("not yet"));
    if (where === "waiting-2 ride" || where === "held pay") return never;
    if (where === "failing pay" || where === "failed book") throw plain(abort("no money"));
    if (where === "failing report" || where === "cancelling report")
      throw plain(new Error("not yet"));
    return undefined;
  },
};

const path = join(mkdtempSync(join(tmpdir(), "flotilla-runs-")), "runs.db");
const use = [trips(hooks), legs(hooks)];
const pod = await startPod({ store: `sqlite:${path}`, use, log: silentLogger, shutdownMs: 1_000 });
const ids = new Map<Kept, string>();
const start = async (run: Kept) => {
  const options = { key: run, ...(run === "new" && { delayMs: 60_000 }) };
  ids.set(run, (await pod.runs.start("trip", { run }, options)).runId);
};
for (const run of Object.keys(kept) as Kept[]) if (run !== "sleeping") await start(run);
const doing = async (run: Kept) => (await pod.runs.get(ids.get(run)!))!;
const until = async (holds: () => Promise<boolean>) => {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 20));
};
const approve = (run: Kept) => pod.runs.signal(ids.get(run)!, "approval", { by: "ada" });
for (const run of ["waiting", "held", "failing", "done"] as const) await approve(run);
for (const run of ["cancelling", "cancelled"] as const) {
  await until(async () => (await doing(run)).doing?.type === "waiting_for_signal");
  await pod.runs.cancel(ids.get(run)!);
}
await until(async () => (await doing("done")).status === "completed");
await until(async () => (await doing("failed")).status === "failed");
await until(async () => (await doing("cancelled")).status === "cancelled");
await until(async () => (await doing("held")).at === "pay");
await until(async () => (await doing("waiting")).doing?.type === "waiting_for_children");
await until(async () => (await doing("failing")).at === "report");
await until(async () => (await doing("asking")).doing?.type === "waiting_for_signal");
await until(async () => (await doing("told")).doing?.type === "waiting_for_signal");
// One begins its sleep at last, so that the pod is gone before it wakes.
await start("sleeping");
await until(async () => (await doing("sleeping")).doing?.type === "sleeping");

const db = new DatabaseSync(path, { readOnly: true });
const tables = ["task", "task_event", "task_signal", "task_dependency"];
const rows = Object.fromEntries(
  tables.map((table) => [table, db.prepare(`select * from flotilla_${table}`).all()]),
);
writeFileSync(file, `${JSON.stringify(rows, null, 1)}\n`);
process.stdout.write(`wrote ${rows["task"]!.length} rows to ${file}\n`);
// As a power cut would.
process.kill(process.pid, "SIGKILL");
