import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { connect, type Flotilla } from "flotilla";
import { type Entry, monotonicMs, readLedgers } from "./ledger.ts";
import { type Fault, isWritable, type PodProcess, startedPod } from "./pod-handle.ts";
import type { PodSpec } from "./pod-process.ts";
import { installWitness, readWitness, type Transition } from "./witness.ts";

export type Fleet = {
  readonly store: string;
  readonly flotilla: Flotilla;
  readonly faults: readonly Fault[];
  readonly pods: readonly PodProcess[];
  start(spec?: Partial<Pick<PodSpec, "names" | "config" | "gate">>): Promise<PodProcess>;
  /** Plain SQL on the file, past everything that is tested. */
  sql(text: string, ...values: (string | number | null)[]): Record<string, any>[];
  ledger(): Entry[];
  /** Every change of status or token that was ever committed, in order. */
  transitions(): Transition[];
};

const script = fileURLToPath(new URL("./pod-process.ts", import.meta.url));
const compileCache = fileURLToPath(new URL("../../node_modules/.cache/pods", import.meta.url));

/** One SQLite file in a folder of its own, and the processes on it. All gone when the test is over. */
export async function createFleet(): Promise<Fleet> {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-crash-"));
  const path = join(folder, "store.db");
  const store = `sqlite:${path}`;
  const flotilla = connect(store);
  const children = new Set<ChildProcess>();
  const pods: PodProcess[] = [];
  const faults: Fault[] = [];
  // A stopped process doesn't see that its parent is gone, so it is ended whatever happens.
  const killAll = () => children.forEach((child) => child.kill("SIGKILL"));
  process.once("exit", killAll);
  onTestFinished(async () => {
    const gone = [...children].map(
      (child) => new Promise((resolve) => child.once("exit", resolve)),
    );
    killAll();
    await Promise.all(gone);
    process.off("exit", killAll);
    plain?.close();
    await flotilla.close();
    if (process.env["FLOTILLA_CRASH_KEEP"]) console.log(`kept ${folder}`);
    else rmSync(folder, { recursive: true, force: true });
  });

  let plain: DatabaseSync | undefined;
  await flotilla.stats();
  plain = new DatabaseSync(path, { timeout: 30_000 });
  installWitness(plain);

  const start: Fleet["start"] = async ({ names = ["work"], config = {}, gate } = {}) => {
    const stem = join(folder, `pod-${pods.length + 1}-${monotonicMs()}`);
    const logPath = `${stem}.log`;
    const spec: PodSpec = {
      store,
      ledgerPath: `${stem}.ledger`,
      logPath,
      names,
      config,
      ...(gate && { gate }),
    };
    const output = openSync(`${stem}.out`, "a");
    const child = spawn(
      process.execPath,
      ["--conditions=flotilla:source", script, JSON.stringify(spec)],
      {
        stdio: ["ignore", output, output, "ipc"],
        // Pods start by the dozen, and most of a start is compiling the same files again.
        env: { ...process.env, NODE_COMPILE_CACHE: compileCache },
      },
    );
    closeSync(output);
    children.add(child);
    const pod = await startedPod(child, {
      faults,
      writable: () => isWritable(path),
      onExit: () => children.delete(child),
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${readFileSync(`${stem}.out`, "utf8")}`);
    });
    pods.push(pod);
    return pod;
  };

  return {
    store,
    flotilla,
    faults,
    pods,
    start,
    sql: (text, ...values) => plain.prepare(text).all(...values),
    ledger: () => readLedgers(folder),
    transitions: () => readWitness(plain),
  };
}
