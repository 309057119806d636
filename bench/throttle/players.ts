import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { Contender } from "./fleet.ts";
import type { Played, Round } from "./rows.ts";

/** What a thread is asked for: scenarios and contenders go by name. */
export type Job = {
  readonly id: number;
  readonly round: Omit<Round, "scenario"> & { readonly scenario: string };
  readonly contender: string;
};

/** Runs have nothing to do with one another, so every core plays some. */
export function createPlayers() {
  const waiting: Job[] = [];
  const answers = new Map<number, (played: Played) => void>();
  let jobs = 0;
  let failed: (error: Error) => void = () => {};
  const failure = new Promise<never>((_, reject) => {
    failed = reject;
  });

  const idle: Worker[] = [];
  const workers = Array.from({ length: Math.min(4, availableParallelism()) }, () => {
    const worker = new Worker(new URL("./player.ts", import.meta.url));
    worker.on("error", failed);
    worker.on("message", ({ id, played }: { id: number; played: Played }) => {
      answers.get(id)!(played);
      answers.delete(id);
      idle.push(worker);
      hand();
    });
    idle.push(worker);
    return worker;
  });

  function hand(): void {
    while (idle.length > 0 && waiting.length > 0) idle.pop()!.postMessage(waiting.shift());
  }

  return {
    play({ scenario, ...round }: Round, contender: Contender): Promise<Played> {
      const id = jobs++;
      waiting.push({ id, round: { ...round, scenario: scenario.name }, contender: contender.name });
      const played = new Promise<Played>((resolve) => answers.set(id, resolve));
      hand();
      return Promise.race([played, failure]);
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(workers.map((worker) => worker.terminate()));
    },
  };
}
