import type { Clock } from "../../base/clock.ts";
import {
  type Budget,
  costMillionths,
  createUsageLedger,
  type ModelTotal,
  type Prices,
  type UsageLedger,
} from "../../base/usage.ts";
import type { Usage } from "../../protocol/message.ts";
import type { Measured } from "../conversation/command.ts";
import type { Turn } from "../conversation/header.ts";

/** Measures an attempt, for its row. */
export type AttemptMeter = {
  readonly ledger: UsageLedger;
  /** There is content. The first call counts. */
  begun(): void;
  measured(): Measured;
  /** A try begins, which gets what is stored again. */
  restart(): void;
  /** A durable call was made, or was answered from the journal. */
  called(used: { readonly calls: number; readonly ms: number }): void;
  /** What the answer's metadata tells. */
  used(): Usage | undefined;
};

/** A turn calls a few models, and their names are short. */
const maxModelChars = 500;

export function createAttemptMeter(
  { clock, prices }: { readonly clock: Clock; readonly prices?: Prices | undefined },
  { attempt }: Turn,
  receivedMs: number,
): AttemptMeter {
  const ledger = createUsageLedger();
  let firstChunkMs: number | undefined;
  let calls = 0;
  let callsMs = 0;
  return {
    ledger,
    begun() {
      firstChunkMs ??= clock.monotonic() - receivedMs;
    },
    measured() {
      const usage = usageOf(ledger.totals(), prices);
      return {
        attempt,
        ...(firstChunkMs !== undefined && { firstChunkMs }),
        ...(usage && { usage }),
        ...(ledger.hasStored && { isStored: true }),
      };
    },
    restart() {
      calls = 0;
      callsMs = 0;
    },
    called(used) {
      calls += used.calls;
      callsMs += used.ms;
    },
    used() {
      const usage = usageOf(ledger.totals(), prices);
      return usage && calls > 0 ? { ...usage, calls, ms: Math.round(callsMs) } : usage;
    },
  };
}

/** What an answer has used of a budget, by its metadata. A model without a price may have cost anything. */
export function budgetUsed({ input, output, cost, calls = 0, ms = 0 }: Usage): Required<Budget> {
  return { calls, tokens: input + output, cost: cost ?? Infinity, ms };
}

function usageOf(totals: readonly ModelTotal[], prices: Prices | undefined): Usage | undefined {
  if (totals.length === 0) return undefined;
  const sum = (pick: (total: ModelTotal) => number) =>
    totals.reduce((all, each) => all + pick(each), 0);
  const models = totals.map(({ model }) => model).filter((model) => model !== "");
  const millionths = costMillionths(totals, prices);
  return {
    input: sum(({ input }) => input),
    output: sum(({ output }) => output),
    cached: sum(({ cached }) => cached),
    model: models.length > 0 ? models.join(",").slice(0, maxModelChars) : null,
    cost: millionths === undefined ? null : millionths / 1e6,
  };
}
