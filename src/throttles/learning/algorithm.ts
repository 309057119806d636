import {
  brakedMemory,
  type CeilingMemory,
  ceilingMove,
  ceilingOf,
  firstCeilingMemory,
} from "./ceiling.ts";
import { firstGradientMemory, type GradientMemory, gradientMove } from "./gradient.ts";
import type { Evidence, Move } from "./evidence.ts";
import { firstSeedMemory, type SeedMemory, seedMove } from "./aimd.ts";
import type { Algorithm } from "../settings.ts";

export type Memory = CeilingMemory | SeedMemory | GradientMemory;

export function firstMemory(algorithm: Algorithm): Memory {
  switch (algorithm) {
    case "ceiling":
      return firstCeilingMemory;
    case "seed":
      return firstSeedMemory;
    case "gradient":
      return firstGradientMemory;
  }
}

export function moveOf(memory: Memory, evidence: Evidence): Move<Memory> {
  switch (memory.algorithm) {
    case "ceiling":
      return ceilingMove(memory, evidence);
    case "seed":
      return seedMove(memory, evidence);
    case "gradient":
      return gradientMove(memory, evidence);
  }
}

/** After an outage: as after a brake, with the way back to what was good before it. */
export function afterOutage(memory: Memory, limit: number): Memory {
  switch (memory.algorithm) {
    case "ceiling":
      return brakedMemory(ceilingOf(memory, limit), 1);
    case "seed":
      return memory;
    case "gradient":
      return { ...memory, ceiling: brakedMemory(ceilingOf(memory.ceiling, limit), 1) };
  }
}
