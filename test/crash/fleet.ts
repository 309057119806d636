import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { connect, type Flotilla } from "flotilla";
import { built } from "../built.ts";
import { type Entry, monotonicMs, readLedgers } from "./ledger.ts";
import { type Fault, type PodProcess, startedPod } from "./pod-handle.ts";
import type { PodSpec } from "./pod-process.ts";
import { type FleetStore, type PlainValue, type StoreKind } from "./stores.ts";
import { installWitness, readWitness, type Transition } from "./witness.ts";

export type Fleet = {
  readonly kind: StoreKind;
  /** The store's URL, as pods and producers get it. */
  readonly store: string;
  /** Where ledgers and logs are. */
  readonly folder: string;
  readonly flotilla: Flotilla;
  /** What was done to pods. A test that harms them in its own way adds to it. */
  readonly faults: Fault[];
  readonly pods: readonly PodProcess[];
  start(options?: StartOptions): Promise<PodProcess>;
  /** Plain SQL on the store, past everything that is tested. In SQLite's words on both. */
  sql(text: string, ...values: PlainValue[]): Promise<Record<string, any>[]>;
  ledger(): Entry[];
  /** Every change of status or token that was ever committed. */
  transitions(): Promise<Transition[]>;
  /** Ends all processes, and removes everything unless it is to be kept. */
  close(options?: { keep: boolean }): Promise<void>;
};

export type StartOptions = Partial<Pick<PodSpec, "names" | "config" | "gate" | "given">> & {
  /** The path of a program that makes another pod than usual, and talks as that one does. */
  script?: string;
  /** A way to the store that only this pod takes: through a proxy, or to another server. */
  store?: string;
  env?: Readonly<Record<string, string>>;
  /** A program that this pod's process is started by, with its arguments: `["faketime", "-1h"]`. */
  under?: readonly string[];
};

const usualScript = fileURLToPath(new URL("./pod-process.ts", import.meta.url));
const compileCache = fileURLToPath(new URL("../../node_modules/.cache/pods", import.meta.url));

/** One store, and the processes on it. */
export async function openFleet(
  openStore: (folder: string) => FleetStore | Promise<FleetStore>,
): Promise<Fleet> {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-crash-"));
  const store = await openStore(folder);
  const flotilla = connect(store.url);
  const children = new Set<ChildProcess>();
  const pods: PodProcess[] = [];
  const faults: Fault[] = [];
  let started = 0;
  // A stopped process doesn't see that its parent is gone, so it is ended whatever happens.
  const killAll = () => children.forEach((child) => child.kill("SIGKILL"));
  process.once("exit", killAll);

  const close: Fleet["close"] = async ({ keep } = { keep: false }) => {
    const gone = [...children].map(
      (child) => new Promise((resolve) => child.once("exit", resolve)),
    );
    killAll();
    await Promise.all(gone);
    process.off("exit", killAll);
    await flotilla.close();
    await store.remove();
    if (!keep) rmSync(folder, { recursive: true, force: true });
  };

  const start: Fleet["start"] = async (options = {}) => {
    const { names = ["work"], config = {}, gate, given, env = {}, under = [] } = options;
    const stem = join(folder, `pod-${++started}-${monotonicMs()}`);
    const spec: PodSpec = {
      store: options.store ?? store.url,
      ledgerPath: `${stem}.ledger`,
      logPath: `${stem}.log`,
      names,
      config,
      ...(gate && { gate }),
      ...(given !== undefined && { given }),
    };
    const output = openSync(`${stem}.out`, "a");
    const [program, ...args] = [
      ...under,
      process.execPath,
      built.program(options.script ?? usualScript),
      JSON.stringify(spec),
    ];
    const child = spawn(program!, args, {
      stdio: ["ignore", output, output, "ipc"],
      // Pods start by the dozen, and most of a start is compiling the same files again.
      env: { ...process.env, NODE_COMPILE_CACHE: compileCache, ...env },
    });
    closeSync(output);
    children.add(child);
    const pod = await startedPod(child, {
      store: spec.store,
      faults,
      writable: store.writable,
      onExit: () => children.delete(child),
    }).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${readFileSync(`${stem}.out`, "utf8")}`);
    });
    pods.push(pod);
    return pod;
  };

  try {
    await flotilla.tasks.stats();
    await installWitness(store);
  } catch (error) {
    await close();
    throw error;
  }
  return {
    kind: store.kind,
    store: store.url,
    folder,
    flotilla,
    faults,
    pods,
    start,
    sql: store.sql,
    ledger: () => readLedgers(folder),
    transitions: () => readWitness(store),
    close,
  };
}
