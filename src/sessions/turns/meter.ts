import type { Clock } from "../../base/clock.ts";
import {
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
  };
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
