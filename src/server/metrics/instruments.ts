import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { DoingCounts } from "../../flows/counts.ts";
import type { Depth } from "../../tasks/inspect/depth.ts";
import type { ThrottleView } from "../../throttles/shares/admin.ts";

/** What a scrape reads. */
export type ScrapeParts = {
  depth: () => Promise<Depth>;
  /** What the fleet knows of its throttles. */
  throttles?: () => Promise<readonly ThrottleView[]>;
  /** What the open runs of these flows do. */
  doing?: (flows: readonly string[]) => Promise<DoingCounts>;
  /** Whether NATS can be used; null where it isn't configured. */
  nats?: () => "connected" | "away" | null;
  clock: Clock;
  log: Logger;
};

/** Makes and registers instruments. */
export type Instruments = ReturnType<typeof instrumentsOf>;

export function instrumentsOf(registry: Registry) {
  const registers = [registry];
  return {
    counter: (name: string, help: string, labelNames: string[] = []) =>
      new Counter({ name, help, labelNames, registers }),
    gauge: (name: string, help: string, labelNames: string[] = []) =>
      new Gauge({ name, help, labelNames, registers }),
    histogram: (name: string, help: string, buckets: number[], labelNames: string[] = []) =>
      new Histogram({ name, help, buckets, labelNames, registers }),
  };
}
