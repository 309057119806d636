import { parentPort } from "node:worker_threads";
import { contenders } from "./contenders.ts";
import type { Job } from "./players.ts";
import { play } from "./rows.ts";
import { allScenarios } from "./scenarios.ts";

/** A thread that plays what it is told to. */
async function answer({ id, round, contender }: Job): Promise<void> {
  const scenario = allScenarios.find(({ name }) => name === round.scenario)!;
  const player = contenders.find(({ name }) => name === contender)!;
  parentPort!.postMessage({ id, played: await play({ ...round, scenario }, player) });
}

parentPort!.on("message", (job: Job) => void answer(job));
