import type { Payload, Settings } from "../../systems/system.ts";

/**
 * Durable execution as the bench drives it. Every system is one file beside this one that exports
 * `system`, so that the work is the same for all, and what is particular to each can be read at a
 * glance. A run has ten steps that do nothing, each stored before the next one begins.
 */
export type FlowSystem = {
  /**
   * From here on this process executes steps, also of runs that another process left open. Never
   * closed: the process is ended instead.
   */
  open(url: string, settings: Settings, entered: Entered): Promise<Runs>;
  /** Where runs are usually started from another process than the one with the steps. */
  client?(url: string, settings: Settings): Promise<Runs>;
};

export type Runs = {
  /** Resolves when it is stored that the run has to be done. */
  start(payload: Payload): Promise<unknown>;
  /** Resolves when the run has finished. */
  finish(payload: Payload): Promise<unknown>;
};

/** The whole of what a step does. It returns nothing where there is nothing to wait for. */
export type Entered = (run: number, step: number) => Promise<void> | undefined;

export const steps = 10;

export const flowSystemNames = [
  "flotilla",
  "steps",
  "limit",
  "limit-sqlite",
  "dbos",
  "restate",
  "absurd",
] as const;

export type FlowSystemName = (typeof flowSystemNames)[number];

export async function loadFlowSystem(name: FlowSystemName): Promise<FlowSystem> {
  const { system } = (await import(`./${name}.ts`)) as { system: FlowSystem };
  return system;
}
