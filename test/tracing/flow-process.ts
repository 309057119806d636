/** A pod in a process of its own that traces and runs a flow, to be killed at its second transition. */
import process from "node:process";
import { trace } from "@opentelemetry/api";
import { flow, startPod } from "flotilla";
import type { FromPod } from "./pod-process.ts";
import { registerSdk } from "./sdk.ts";

const tell = (message: FromPod) => void process.send!(message);
registerSdk((span) => tell({ span }));
const silent = { debug() {}, info() {}, warn() {}, error() {} };

/** Never returns where its claim is the one that was asked for. */
const hang = async (token: number, deadly: number) => {
  tell({ running: `token ${token}` });
  if (token === deadly) await new Promise(() => {});
};

await startPod({
  store: process.argv[2]!,
  heartbeatMs: 50,
  deadAfterMs: 500,
  log: silent,
  use: [
    flow("voyage", { version: 1 })
      .to("leave", () => {})
      .to("sail", async ({ token }) => {
        trace.getTracer("the program").startActiveSpan("setting sails", (span) => span.end());
        await hang(token, 1);
      })
      .to("land", () => {})
      .end(),
    flow("wreck", { version: 1 })
      .to("leave", ({ token }) => hang(token, 1))
      .end(),
  ],
});
tell({ running: "pod" });
