import { appendFileSync, readFileSync } from "node:fs";

/** Notes that a model was asked, in a file that outlives the process. */
export function noteCall(path: string, sessionId: string, nth: number): void {
  appendFileSync(path, `${sessionId} ${nth}\n`);
}

/** How many calls were made again, in the session with the most of them. */
export function mostRepeated(path: string): number {
  const bySession = new Map<string, string[]>();
  for (const line of readFileSync(path, "utf8").split("\n").slice(0, -1)) {
    const [sessionId, nth] = line.split(" ") as [string, string];
    bySession.set(sessionId, [...(bySession.get(sessionId) ?? []), nth]);
  }
  const repeated = [...bySession.values()].map((calls) => calls.length - new Set(calls).size);
  return Math.max(...repeated);
}
