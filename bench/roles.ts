import { type ChildProcess, fork } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { inCheckout } from "./beside.ts";

/**
 * Every measured role (a producer, a pod, the limit) is a process of its own. This file has both
 * ends: `startRole` for the bench, `playRole` for the process it starts.
 */
export type Role = {
  /** What the role returned. Rejects if it ended without returning. */
  readonly result: Promise<any>;
  /** The next message of this type that the role tells. */
  next(type: string): Promise<any>;
  on(type: string, listener: (value: any) => void): void;
  send(type: string): void;
  kill(signal: NodeJS.Signals): void;
  /** Resolves when its process is gone. */
  readonly gone: Promise<unknown>;
};

const started = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of started) child.kill("SIGKILL");
});

export type RoleOptions = {
  /** Where CPU profiles of the process and its threads are written. */
  profile?: string | undefined;
  /** The checkout whose program of the same name is started. Default: this one. */
  checkout?: string | undefined;
};

/** Starts the program `file`, whose one statement is a `playRole`. */
export function startRole(
  file: URL,
  params: unknown,
  { profile, checkout }: RoleOptions = {},
): Role {
  // Threads have flags of their own, and heed these all the same where they come by the environment.
  const flags = profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir="${profile}"`];
  const options = [process.env["NODE_OPTIONS"], ...flags].filter(Boolean).join(" ");
  // Only the report may write to standard output.
  const child = fork(fileURLToPath(inCheckout(file, checkout)), [JSON.stringify(params)], {
    execArgv: ["--conditions=flotilla:source"],
    env: { ...process.env, NODE_OPTIONS: options },
    stdio: ["ignore", process.stderr, process.stderr, "ipc"],
  });
  started.add(child);
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const listeners = new Map<string, Set<(value: any) => void>>();
  const on = (type: string, listener: (value: any) => void) => {
    const those = listeners.get(type) ?? new Set();
    listeners.set(type, those.add(listener));
  };
  child.on("message", ({ type, value }: Message) => {
    for (const listener of listeners.get(type) ?? []) listener(value);
  });

  // Whoever waits for a role that has died must hear of it.
  const died = new Promise<never>((_, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => {
      started.delete(child);
      reject(new Error(`${file.pathname} ended early (${signal ?? code})`));
    });
  });
  died.catch(() => {});
  const next = (type: string): Promise<any> => {
    const told = new Promise<any>((resolve) => {
      const once = (value: any) => {
        listeners.get(type)!.delete(once);
        resolve(value);
      };
      on(type, once);
    });
    return Promise.race([told, died]);
  };
  const result = next("result");
  result.catch(() => {});
  return {
    result,
    next,
    on,
    send: (type) => child.send({ type } satisfies Message),
    kill: (signal) => child.kill(signal),
    gone,
  };
}

type Message = { type: string; value?: unknown };

export type Bench = {
  /** Resolves when the bench says this. */
  heard(type: string): Promise<void>;
  tell(type: string, value?: unknown): void;
};

/**
 * The whole program of a role. What `play` returns goes to the bench, and the process ends: when it has
 * nothing more to do, or at once if that is how it `ends`.
 */
export function playRole<Params>(
  play: (params: Params, bench: Bench) => Promise<unknown>,
  { ends }: { ends?: "at once" } = {},
): void {
  const tell = (type: string, value?: unknown) => process.send?.({ type, value });
  const orphaned = () => process.exit(1);
  process.once("disconnect", orphaned);
  // What is said before anybody listens is kept.
  const said: string[] = [];
  const waiting: { type: string; resolve: () => void }[] = [];
  process.on("message", ({ type }: Message) => {
    const at = waiting.findIndex((each) => each.type === type);
    if (at === -1) said.push(type);
    else waiting.splice(at, 1)[0]!.resolve();
  });
  const bench: Bench = {
    tell,
    async heard(type) {
      const at = said.indexOf(type);
      if (at === -1) await new Promise<void>((resolve) => waiting.push({ type, resolve }));
      else said.splice(at, 1);
    },
  };
  const params = JSON.parse(process.argv[2] ?? "null") as Params;
  void play(params, bench).then((value) => {
    process.off("disconnect", orphaned);
    process.send?.({ type: "result", value }, () => {
      process.disconnect();
      if (ends) process.exit();
    });
  });
}

/** Milliseconds on a clock that all processes of a machine share. */
export function sharedMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
