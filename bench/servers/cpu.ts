import { readdirSync, readFileSync } from "node:fs";

// What Linux counts CPU time in, on every machine we know of.
const ticksPerSecond = 100;

/** CPU time of a process and of all that it started, gone or not. Only Linux tells. */
export function cpuMsOf(pid: number): number | undefined {
  try {
    const all = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
    const stats = new Map(all.map((name) => [Number(name), statOf(Number(name))]));
    let ticks = 0;
    for (const [each, stat] of stats) {
      if (stat === undefined) continue;
      if (each === pid) ticks += stat.own + stat.gone;
      else if (stat.parent === pid) ticks += stat.own + stat.gone;
    }
    return (ticks * 1_000) / ticksPerSecond;
  } catch {
    return undefined;
  }
}

function statOf(pid: number): { parent: number; own: number; gone: number } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name of the program is in brackets, and may hold anything.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const ticks = (at: number) => Number(fields[at]);
    return { parent: ticks(1), own: ticks(11) + ticks(12), gone: ticks(13) + ticks(14) };
  } catch {
    // It ended while we looked.
    return undefined;
  }
}
