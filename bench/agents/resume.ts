import { join } from "node:path";
import { sharedMs, startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { RunnerParams } from "./runner.ts";
import type { AgentEntrant, AgentSide } from "./side.ts";
import type { Watched, WatcherParams } from "./watcher.ts";

export type ResumeSize = {
  /** How many agents answer in the process that is killed. */
  readonly agents: number;
  readonly wordMs: number;
  /** The call that all of them have come to by then. */
  readonly untilCall: number;
};

/** How the process goes: SIGKILL is seen by others on its machine, and SIGSTOP is silence, as of a lost machine. */
const ways = {
  kill: { signal: "SIGKILL", metric: "agents.resume_s" },
  silence: { signal: "SIGSTOP", metric: "agents.resume.silent_s" },
} as const;

/** From the end of the process with the agents to the next word that their readers haven't had. */
export async function measureResume(
  side: AgentSide,
  way: keyof typeof ways,
  size: ResumeSize,
): Promise<Work[]> {
  const { signal, metric } = ways[way];
  const seconds = collect(metric, "s", "lower");
  const repeated = collect("agents.repeated", "calls", "lower");
  await takeTurns(side, side.entrants, async (entrant, round) => {
    const found = await resumeOnce(side, entrant, { ...size, signal, round });
    seconds.add(entrant.key, { value: found.tookMs / 1_000 });
    repeated.add(entrant.key, { value: found.mostRepeated });
    side.options.progress(
      `${metric}, round ${round} of ${side.rounds}: ${entrant.key} ${(found.tookMs / 1_000).toFixed(2)} s ` +
        `until the last of ${size.agents} agents went on; at most ${found.mostRepeated} calls of one repeated`,
    );
  });
  // How many calls are repeated has nothing to do with how long it took to notice.
  return way === "kill" ? [seconds.work, repeated.work] : [seconds.work];
}

async function resumeOnce(
  side: AgentSide,
  { key, durable, checkout }: AgentEntrant,
  {
    agents,
    untilCall,
    wordMs,
    signal,
    round,
  }: ResumeSize & { signal: NodeJS.Signals; round: number },
): Promise<{ tookMs: number; mostRepeated: number }> {
  const url = await side.place.fresh();
  const sessions = Array.from({ length: agents }, (_, at) => `clerk-${at}`);
  const ledger = join(side.options.folder, `calls-${key}-${signal}-${round}`);
  const params: RunnerParams = { url, durable, sessions, wordMs, ledger };
  const runner = startRole(new URL("./runner.ts", import.meta.url), params, { checkout });
  await runner.next("begun");
  const watching: WatcherParams = { ...params, untilCall };
  const watcher = startRole(new URL("./watcher.ts", import.meta.url), watching, { checkout });
  await watcher.next("watching");
  const there = watcher.next("there");
  runner.send("go");
  await there;
  const killedMs = sharedMs();
  runner.kill(signal);
  const { wentOnMs, mostRepeated }: Watched = await watcher.result;
  runner.kill("SIGKILL");
  await Promise.all([runner.gone, watcher.gone]);
  await side.place.drop(url);
  return { tookMs: Math.max(...wentOnMs) - killedMs, mostRepeated };
}
