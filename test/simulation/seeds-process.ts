/** Runs the seeds that its parent names, one after the other, and tells what came of each. */
import process from "node:process";
import { outcomeOf, type Scenario } from "./scenarios.ts";

process.on("message", ({ scenario, seed }: { scenario: Scenario; seed: number }) => {
  void outcomeOf(scenario, seed).then((outcome) => process.send!(outcome));
});
process.on("disconnect", () => process.exit());
