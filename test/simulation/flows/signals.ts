/** Signals: what was acknowledged is there, each is used once, by what waited for it, the oldest first. */
import type { HistoryEvent } from "../../../src/flows/decide/run.ts";
import type { Row } from "../../../src/store/database.ts";
import { sql, table } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";
import { signalNames } from "./machines.ts";

export function createSignals(world: World) {
  const { violate } = world;
  const taken = new Map<string, Set<string>>();
  /** Those whose sender knows that they are stored, as `run/id`. */
  const acked = new Set<string>();

  const allOf = (runId: string) =>
    [...world.store.rows("task_signal")]
      .filter((each) => each["task_id"] === runId)
      .toSorted((one, other) => one["seq"] - other["seq"]);

  return {
    acked,
    /** Holds what a write took to what it noted. */
    judge(row: Row, events: readonly HistoryEvent[]): void {
      if (row["name"] !== "ask" && row["name"] !== "order") return;
      const runId = row["task_id"] as string;
      const what = `${row["name"]} ${runId.slice(-6)}`;
      const before = taken.get(runId) ?? new Set();
      const all = allOf(runId);
      const now = new Set(all.filter((each) => Number(each["taken"]) === 1).map(idOf));
      taken.set(runId, now);
      for (const id of before) if (!now.has(id)) violate("signals", `${what}: ${id} is untaken`);
      const fresh = all.filter((each) => now.has(idOf(each)) && !before.has(idOf(each)));
      const uses = events.flatMap(usesOf);
      if (fresh.length !== uses.length) {
        violate("signals", `${what}: ${fresh.length} were taken, ${uses.length} were used`);
      }
      for (const [at, signal] of fresh.entries()) {
        const use = uses[at];
        if (use && use.name !== signal["name"]) violate("signals", `${what}: took another's`);
        if (use && use.payload !== undefined && use.payload !== signal["payload"]) {
          violate("signals", `${what}: used ${use.payload} and took ${signal["payload"]}`);
        }
        const isOlder = (each: Row) =>
          each["name"] === signal["name"] && each["seq"] < signal["seq"] && !now.has(idOf(each));
        if (all.some(isOlder)) violate("signals", `${what}: took ${idOf(signal)} before an older`);
        world.count(use?.payload === undefined ? "signal: refused" : "signal: used");
      }
    },
    async judgeEnd(): Promise<void> {
      const rows = await world.store.database.read(sql`select * from ${table("task_signal")}`);
      const there = new Set(rows.map((row) => `${row["task_id"]}/${row["signal_id"]}`));
      for (const each of acked) {
        if (!there.has(each)) violate("signals", `${each} was stored for certain and isn't there`);
      }
    },
  };
}

const idOf = (row: Row) => row["signal_id"] as string;

/** What an event says was used: a signal that came, or one that was refused. */
function usesOf(event: HistoryEvent): { name: string; payload: string | undefined }[] {
  if (
    event.type === "park" &&
    event.message !== undefined &&
    signalNames.includes(event.transition)
  ) {
    return [{ name: event.transition, payload: undefined }];
  }
  if (event.type !== "complete" || !signalNames.includes(event.transition)) return [];
  const value = event.set?.[event.transition];
  // What stands there when none came.
  if (value === null || value === "none") return [];
  return [{ name: event.transition, payload: JSON.stringify(value) }];
}
