import process from "node:process";
import { throttle } from "../../src/throttles/throttle.ts";
import { type Measure, spreadOf } from "../report.ts";

type CostOptions = { readonly rounds: number; readonly calls: number };

/** What a limit costs where it doesn't limit: CPU of `run` around nothing, for real. */
export async function measureCost({ rounds, calls }: CostOptions): Promise<Measure> {
  const api = throttle("cost", { mode: "local", initial: 100 });
  const nothing = () => {};
  const costs: number[] = [];
  // The first round is for the compiler.
  for (let round = 0; round <= rounds; round++) {
    const before = process.cpuUsage();
    for (let call = 0; call < calls; call++) await api.run(nothing);
    const { user, system } = process.cpuUsage(before);
    if (round > 0) costs.push((user + system) / calls);
  }
  return { metric: "throttle.cost_us", unit: "us", ...spreadOf(costs), versus: {} };
}
