import { goals } from "./agents/goals.ts";
import type { Alone, HostParams, Loaded, LoadSize, Stored } from "./agents/host.ts";
import { measureResume } from "./agents/resume.ts";
import { type AgentSide, openAgentSide } from "./agents/side.ts";
import { callsOfTurn } from "./agents/clerk.ts";
import { besideNotes, evenRounds } from "./beside.ts";
import { sayGoals } from "./goals.ts";
import type { Report } from "./report.ts";
import { startRole } from "./roles.ts";
import type { BenchOptions } from "./run.ts";
import { takeTurns } from "./side-by-side/bench.ts";
import { collect, type Work } from "./side-by-side/figures.ts";
import { reportOf } from "./side-by-side/report.ts";
import { saveResults } from "./side-by-side/results.ts";

const sizes = {
  full: {
    rounds: 3,
    alone: { warmUps: 30, turns: 100 },
    load: { atOnce: 100, warmMs: 2_000, runMs: 5_000 },
    bytes: { calls: 100, promptTokens: 200_000 },
    resume: { agents: 10, wordMs: 20, untilCall: 6 },
  },
  quick: {
    rounds: 1,
    alone: { warmUps: 5, turns: 20 },
    load: { atOnce: 100, warmMs: 700, runMs: 1_500 },
    bytes: { calls: 100, promptTokens: 200_000 },
    resume: { agents: 3, wordMs: 20, untilCall: 6 },
  },
};

/** Turns of ten calls to a model that costs no time and ten tools, with `durable` and without. */
export async function bench(options: BenchOptions): Promise<Report> {
  const { rounds, ...size } = options.quick ? sizes.quick : sizes.full;
  const { store, only } = options;
  await using side = await openAgentSide(
    options,
    evenRounds(options.rounds ?? rounds, options.beside),
  );
  const measuring: Readonly<Record<string, () => Promise<Work[]>>> = {
    call: () => measureCall(side, size.alone),
    turns: () => measureTurns(side, size.load),
    bytes: () => measureBytes(side, size.bytes),
    resume: () => measureResume(side, "kill", size.resume),
    // Two processes of one file are on one machine, which can't be lost for one of them alone.
    ...(store === "postgres" && { silence: () => measureResume(side, "silence", size.resume) }),
  };
  const works: Work[] = [];
  for (const [name, measure] of Object.entries(measuring)) {
    if (only?.includes(name) ?? true) works.push(...(await measure()));
  }
  if (options.save) saveResults(works, side.about, `agents-${store as "sqlite" | "postgres"}`);
  const report = reportOf(works, side.about);
  return {
    ...report,
    notes: [...sayGoals(goals, report.measures, store), ...report.notes, ...besideNotes(options)],
  };
}

/** What `durable` adds to each call with its tool, where nothing else is under way. */
async function measureCall(
  side: AgentSide,
  size: { readonly warmUps: number; readonly turns: number },
): Promise<Work[]> {
  const added = collect("agents.call_ms", "ms", "lower");
  const turn = collect("agents.turn_ms", "ms", "lower");
  await takeTurns(side, side.builds, async ({ key, checkout }, round) => {
    const url = await side.place.fresh();
    const found = (await host(side, { url, work: "alone", ...size }, checkout)) as Alone;
    const { durableMs, plainMs } = found;
    const addedMs = (durableMs - plainMs) / callsOfTurn;
    await side.place.drop(url);
    added.add(key, { value: addedMs });
    turn.add(key, { value: durableMs });
    if (key === "flotilla") turn.add("plain", { value: plainMs });
    side.options.progress(
      `agents.call_ms, round ${round} of ${side.rounds}: ${key} ${addedMs.toFixed(2)} ms for each call; ` +
        `a turn takes ${durableMs.toFixed(1)} ms, without durable ${plainMs.toFixed(1)} ms`,
    );
  });
  return [added.work, turn.work];
}

/** Turns a second, with many sessions at once. */
async function measureTurns(side: AgentSide, size: LoadSize): Promise<Work[]> {
  const rate = collect("agents.turns", "turns/s");
  const cpu = collect("agents.turns.cpu", "us/turn", "lower");
  await takeTurns(side, side.entrants, async ({ key, durable, checkout }, round) => {
    const url = await side.place.fresh();
    const params = { url, work: "load", durable, ...size } as const;
    const { turns, wallMs, cpuMs } = (await host(side, params, checkout)) as Loaded;
    await side.place.drop(url);
    if (turns === 0) throw new Error(`${key} ended no turn`);
    rate.add(key, { value: (turns / wallMs) * 1_000 });
    cpu.add(key, { value: (cpuMs * 1_000) / turns });
    side.options.progress(
      `agents.turns, round ${round} of ${side.rounds}: ${key} ${((turns / wallMs) * 1_000).toFixed(1)}/s ` +
        `at ${size.atOnce} at once; CPU per turn ${(cpuMs / turns).toFixed(1)} ms`,
    );
  });
  return [rate.work, cpu.work];
}

/** How often what was said fits into what its journal takes. */
async function measureBytes(
  side: AgentSide,
  size: { readonly calls: number; readonly promptTokens: number },
): Promise<Work[]> {
  const stored = collect("agents.bytes", "times what was said", "lower");
  await takeTurns(side, side.builds, async ({ key, checkout }, round) => {
    const url = await side.place.fresh();
    const found = (await host(side, { url, work: "bytes", ...size }, checkout)) as Stored;
    const { storedBytes, saidBytes } = found;
    await side.place.drop(url);
    stored.add(key, { value: storedBytes / saidBytes });
    side.options.progress(
      `agents.bytes, round ${round} of ${side.rounds}: ${key} ${storedBytes} bytes for ${size.calls} calls ` +
        `under a prompt of ${size.promptTokens} tokens, in which ${saidBytes} bytes were said`,
    );
  });
  return [stored.work];
}

async function host(
  { options }: AgentSide,
  params: HostParams,
  checkout: string | undefined,
): Promise<unknown> {
  const role = startRole(new URL("./agents/host.ts", import.meta.url), params, {
    profile: checkout === undefined ? options.profile : undefined,
    checkout,
  });
  const result: unknown = await role.result;
  await role.gone;
  return result;
}
