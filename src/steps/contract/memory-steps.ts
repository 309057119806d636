import { movableClock } from "../../base/contract/movable-clock.ts";
import { silentLogger } from "../../base/log.ts";
import type { StepJournal, Steps, StepsParts, StoredStep } from "../model.ts";
import { createSteps } from "../steps.ts";

/** Rows that outlive attempts. */
export type MemoryRows = Map<string, StoredStep>;

export function memoryJournal(rows: MemoryRows): StepJournal {
  return {
    read: rows.size > 0 ? async () => [...rows.values()] : undefined,
    readValue: async (key) => rows.get(key)!.value!,
    async store({ key, seq, kind, inputHash, value, forgets }) {
      rows.set(key, { key, seq, kind, inputHash, value, bytes: value.length, ageMs: 0 });
      if (!forgets) return;
      for (const inner of rows.keys()) if (inner.startsWith(`${key}/`)) rows.delete(inner);
    },
    storeWithin: async () => {},
    isStored: async () => true,
  };
}

/** The steps of an attempt over these rows, that nothing stops. */
export function memorySteps(rows: MemoryRows, parts: Partial<StepsParts> = {}): Steps {
  return createSteps({
    ownerId: "owner",
    journal: memoryJournal(rows),
    limits: { maxSteps: 1_000, maxBytes: 4 * 1024 * 1024, maxValueBytes: 256 * 1024 },
    clock: movableClock(),
    log: () => silentLogger,
    signal: () => new AbortController().signal,
    refusal: () => undefined,
    graceMs: 1_000,
    ...parts,
  });
}
