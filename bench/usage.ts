import process from "node:process";

/** What this process, with all its threads, has used. */
export type Usage = { readonly cpuMs: number; readonly wallMs: number; readonly rssMib: number };

/** Starts counting; call what it gives to know what was used since. */
export function countUsage(): () => Usage {
  const before = process.cpuUsage();
  const startedMs = performance.now();
  return () => {
    const { user, system } = process.cpuUsage(before);
    return {
      cpuMs: (user + system) / 1_000,
      wallMs: performance.now() - startedMs,
      rssMib: rssMib(),
    };
  };
}

export function rssMib(): number {
  return process.memoryUsage.rss() / 2 ** 20;
}
