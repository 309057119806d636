/** How hard a pod's process has it. */
export type Pressure = {
  /** How late the event loop is, for what happens at any moment of the last second. */
  readonly lateMs: number;
  /** The share of the memory that it may have which is in use, 0 to 1. */
  readonly memory: number;
};

/** Above which a pod takes on less. */
export type PressureLimits = {
  /** How late its event loop may be. Default 200. */
  readonly eventLoopMs: number;
  /** The share of its memory that may be in use. Default 0.9. */
  readonly memory: number;
};

/** What has lowered a pod's capacity, as it was seen last, and whether that is over. */
export type Strain = { readonly seen: Pressure; readonly over: boolean };

// It must be well below the limit before more is taken on again, or it would go up and down with it.
const calmLoop = 0.5;
const calmMemory = 0.05;
// Down by half at the most with every look, and up in twenty: too much is worse than too little.
const steepest = 0.5;
const step = 0.05;
const least = 0.01;

/**
 * Decides; never does. Which share of its usual target a pod goes by, given the share so far: less
 * while something is above its limit, the more so the further above; more once all is well below.
 */
export function nextShare(share: number, seen: Pressure, limits: PressureLimits): number {
  const strain = Math.max(
    seen.lateMs / limits.eventLoopMs,
    // What counts is how much of the room above the limit is gone.
    1 + (seen.memory - limits.memory) / (1 - limits.memory),
  );
  if (strain > 1) return Math.max(least, share * Math.max(steepest, 1 / strain));
  const calm =
    seen.lateMs <= limits.eventLoopMs * calmLoop && seen.memory <= limits.memory - calmMemory;
  return calm ? Math.min(1, share + step) : share;
}
