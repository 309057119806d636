import { inCheckout } from "../beside.ts";

/**
 * A queue as the bench drives it. Every system is one file beside this one that exports `system`, so
 * that the work is the same for all, and what is particular to each can be read at a glance.
 */
export type System = {
  /** Makes what the system needs in an empty place: tables, a queue. */
  prepare(url: string, settings: Settings): Promise<void>;
  producer(url: string, settings?: Settings): Promise<Producer>;
  /** Starts to work, in this process. Never stopped: the process is ended instead. */
  work(url: string, settings: Settings, run: Run): Promise<void>;
  /** Looks from outside at what isn't stored as finished. */
  watch(url: string): Promise<Watch>;
  /** Puts so many finished tasks there, where a system keeps them. */
  addFinished?(url: string, tasks: number): Promise<void>;
};

export type Producer = {
  one(payload: Payload): Promise<unknown>;
  bulk(payloads: Payload[]): Promise<unknown>;
  close(): Promise<unknown>;
};

/** What a task does. It returns nothing where there is nothing to wait for. */
export type Run = (payload: Payload) => Promise<void> | undefined;

export type Watch = { unfinished(): Promise<number>; close(): Promise<unknown> };

/** About 100 bytes of JSON. */
export type Payload = {
  readonly number: number;
  readonly text: string;
  /** When it was sent, where that is measured. */
  readonly sentMs?: number;
};

/** What the bench tells a system beside the URL; each reads its own. */
export type Settings = Readonly<Record<string, unknown>>;

export const systemNames = ["flotilla", "limit", "graphile-worker", "pg-boss", "bullmq"] as const;

export type SystemName = (typeof systemNames)[number];

export async function loadSystem(name: SystemName, checkout?: string): Promise<System> {
  const file = inCheckout(new URL(`./${name}.ts`, import.meta.url), checkout);
  const { system } = (await import(file.href)) as { system: System };
  return system;
}
