import { startRole } from "../roles.ts";
import { takeTurns } from "../side-by-side/bench.ts";
import { collect, type Work } from "../side-by-side/figures.ts";
import type { DriverParams } from "./driver.ts";
import type { HostParams, Resumed } from "./host.ts";
import type { FlowSide } from "./side.ts";
import type { FlowVariant } from "./variants.ts";

export type ResumeWork = {
  readonly metric: string;
  /** How many steps of each run are stored by then. */
  readonly stored: number;
  /** How many runs are open when the process that has them is killed. */
  readonly runs: number;
  /** Longer than this nobody is watched. */
  readonly cutMs: number;
};

/** From the start of a process to one further step of every run that a killed one left open. */
export async function measureResume(side: FlowSide, work: ResumeWork): Promise<Work[]> {
  const seconds = collect(work.metric, "s", "lower");
  const nodeCpu = collect(`${work.metric}.cpu`, "us/run", "lower");
  const serverCpu = collect(`${work.metric}.server_cpu`, "us/run", "lower");
  await takeTurns(side, side.variants, async (variant, round) => {
    const { key } = variant;
    const { resumed, serverMs } = await resumeOnce(side, variant, work);
    const { wallMs, cpuMs, advanced, repeated } = resumed;
    const cut = advanced < work.runs;
    seconds.add(key, { value: wallMs / 1_000, ...(cut && { cut }) });
    if (advanced > 0) {
      nodeCpu.add(key, { value: (cpuMs * 1_000) / advanced });
      if (serverMs !== undefined) serverCpu.add(key, { value: (serverMs * 1_000) / advanced });
    }
    side.options.progress(
      `${work.metric}, round ${round} of ${side.rounds}: ${key} ${(wallMs / 1_000).toFixed(2)} s` +
        `${cut ? `, cut after ${advanced} of ${work.runs} runs` : ""}${repeated > 0 ? `, ${repeated} steps were done again` : ""}; ` +
        `CPU: node ${(cpuMs / 1_000).toFixed(2)} s, server ${serverMs === undefined ? "none" : `${(serverMs / 1_000).toFixed(2)} s`}`,
    );
  });
  return [seconds.work, nodeCpu.work, serverCpu.work];
}

async function resumeOnce(
  side: FlowSide,
  variant: FlowVariant,
  { runs, stored, cutMs }: ResumeWork,
) {
  const place = side.placeOf(variant);
  const { system, holding = variant.settings, key, checkout } = variant;
  const url = await place.filled(`${key} ${runs} ${stored}`, (empty) =>
    leaveOpen(side, variant, { url: empty, runs, stored }),
  );
  const params: HostParams = {
    system,
    settings: holding,
    url,
    work: "resume",
    runs,
    stored,
    cutMs,
  };
  const profile = variant.key === "flotilla" ? side.options.profile : undefined;
  const host = startRole(new URL("./host.ts", import.meta.url), params, { profile, checkout });
  const begun = host.next("begin");
  const ended = host.next("resumed");
  // If the process ends before, whoever waits for its beginning says so.
  ended.catch(() => {});
  await begun;
  const beforeMs = place.cpuMs();
  const resumed: Resumed = await ended;
  const afterMs = place.cpuMs();
  host.send("stop");
  await host.gone;
  await place.drop(url);
  const serverMs = beforeMs === undefined || afterMs === undefined ? undefined : afterMs - beforeMs;
  return { resumed, serverMs };
}

/** Starts runs, lets each complete some steps and enter the next, and kills the process that has them. */
async function leaveOpen(
  side: FlowSide,
  variant: FlowVariant,
  { url, runs, stored }: { url: string; runs: number; stored: number },
): Promise<void> {
  const { system, holding = variant.settings, key, apart = false, checkout } = variant;
  side.options.progress(`leaving ${runs} runs of ${key} open`);
  const params: HostParams = {
    system,
    settings: holding,
    url,
    work: "fill",
    runs,
    stored,
    drives: !apart,
  };
  const host = startRole(new URL("./host.ts", import.meta.url), params, { checkout });
  const filled = host.next("filled");
  filled.catch(() => {});
  await host.next("ready");
  const starting: DriverParams = { system, settings: holding, url, atOnce: 100, starts: runs };
  const driver = apart ? startRole(new URL("./driver.ts", import.meta.url), starting) : undefined;
  await Promise.race([filled, ...(driver ? [driver.result] : [])]);
  host.kill("SIGKILL");
  driver?.kill("SIGKILL");
  await Promise.all([host.gone, driver?.gone]);
}
