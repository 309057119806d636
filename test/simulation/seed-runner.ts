/**
 * Processes that run seeds. One that tests start runs the bundled build, because what vitest makes of the
 * source takes half as long again.
 */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { built } from "../built.ts";
import type { Outcome } from "./report.ts";
import type { Scenario } from "./scenarios.ts";

export type SeedRunner = {
  /** Runs one seed. A runner runs one at a time. */
  run(scenario: Scenario, seed: number): Promise<Outcome>;
  close(): void;
};

/** The bundled program, which has to be made first. */
export const builtProgram = built.program(
  fileURLToPath(new URL("seeds-process.ts", import.meta.url)),
);

// A seed takes a second or two. One that goes on without any time passing in it never ends.
const seedLimitMs = 300_000;

export function startSeedRunner(program: string): SeedRunner {
  let child: ChildProcess | undefined;
  const start = (): ChildProcess => {
    const started = fork(program, [], {
      execArgv: ["--conditions=flotilla:source"],
      serialization: "advanced",
    });
    started.once("exit", () => {
      if (child === started) child = undefined;
    });
    return started;
  };
  return {
    run: (scenario, seed) =>
      new Promise((resolve) => {
        const asked = (child ??= start());
        const limit = setTimeout(() => asked.kill("SIGKILL"), seedLimitMs);
        const answered = (outcome: Outcome) => {
          clearTimeout(limit);
          asked.off("exit", crashed);
          resolve(outcome);
        };
        // What escapes from a simulated pod ends the process, and the next seed gets another.
        const crashed = (code: number | null, signal: string | null) => {
          clearTimeout(limit);
          asked.off("message", answered);
          const what = `its process ended with ${code ?? signal}`;
          const violations = [{ invariant: "crashed", what }];
          resolve({ seed, violations, hash: "", counts: new Map(), virtualMs: 0 });
        };
        asked.once("message", answered);
        asked.once("exit", crashed);
        asked.send({ scenario, seed });
      }),
    close() {
      child?.disconnect();
      child = undefined;
    },
  };
}

/** Runs seeds with several runners, each taking the next one as soon as it has ended another. */
export async function runSeeds(
  runners: readonly SeedRunner[],
  scenario: Scenario,
  seeds: Iterable<number>,
  onOutcome: (outcome: Outcome) => void,
): Promise<void> {
  const left = seeds[Symbol.iterator]();
  const work = async (runner: SeedRunner): Promise<void> => {
    for (let next = left.next(); !next.done; next = left.next()) {
      onOutcome(await runner.run(scenario, next.value));
    }
  };
  await Promise.all(runners.map(work));
}

/** So many seeds from this one on. There are 2 ** 32 of them. */
export function* seedsFrom(first: number, count: number): Generator<number> {
  for (let at = 0; at < count; at++) yield (first + at) % 2 ** 32;
}
