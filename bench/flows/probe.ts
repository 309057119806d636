import type { Entered } from "./systems/system.ts";

/** What a step does in a phase, and what is learned from it. */
export type Probe = { readonly entered: Entered };

export type LoadProbe = Probe & {
  finished(run: number): void;
  /** Forgets what was until now. */
  begin(): void;
  seen(): Seen;
};

export type Seen = {
  /** Steps that were stored as done: the next one was entered, or the run has finished. */
  readonly transitions: number;
  /** Of one transition: from the first line of a step to the first line of the next. */
  readonly latenciesMs: readonly number[];
};

/** Steps that do nothing. Latencies are kept only where somebody asks for them. */
export function loadProbe({ keepLatencies }: { keepLatencies: boolean }): LoadProbe {
  let transitions = 0;
  let latenciesMs: number[] = [];
  const enteredMs = new Map<number, number>();
  return {
    entered(run, step) {
      if (step > 0) transitions++;
      if (!keepLatencies) return undefined;
      const nowMs = performance.now();
      const beforeMs = enteredMs.get(run);
      if (step > 0 && beforeMs !== undefined) latenciesMs.push(nowMs - beforeMs);
      enteredMs.set(run, nowMs);
      return undefined;
    },
    finished(run) {
      transitions++;
      enteredMs.delete(run);
    },
    begin() {
      transitions = 0;
      latenciesMs = [];
    },
    seen: () => ({ transitions, latenciesMs }),
  };
}

const forever = new Promise<void>(() => {});

type Open = { readonly runs: number; readonly stored: number };

/** Every run stops behind so many stored steps. `all` resolves when each of them has got there. */
export function fillProbe({ runs, stored }: Open): Probe & { readonly all: Promise<void> } {
  return stoppingAt(stored, runs);
}

/** Every run goes on with the step that it was in, and stops in the next. */
export function resumeProbe({ runs, stored }: Open): ResumeProbe {
  let repeated = 0;
  const { entered, all, stopped } = stoppingAt(stored + 1, runs);
  return {
    all,
    advanced: stopped,
    repeated: () => repeated,
    entered(run, step) {
      if (step < stored) repeated++;
      return entered(run, step);
    },
  };
}

export type ResumeProbe = Probe & {
  readonly all: Promise<void>;
  /** How many runs have completed one further step. */
  advanced(): number;
  /** How many steps were done again though they had been stored: there must be none. */
  repeated(): number;
};

function stoppingAt(stop: number, runs: number) {
  const there = new Set<number>();
  let resolve = () => {};
  const all = new Promise<void>((done) => (resolve = done));
  const entered: Entered = (run, step) => {
    if (step < stop) return undefined;
    there.add(run);
    if (there.size === runs) resolve();
    return forever;
  };
  return { entered, all, stopped: () => there.size };
}
