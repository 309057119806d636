/** A pod in a process of its own, whose program traces. Its spans go to the test by IPC. */
import process from "node:process";
import { trace } from "@opentelemetry/api";
import { startPod, task } from "flotilla";
import { registerSdk, type Told } from "./sdk.ts";

export type FromPod = { readonly span: Told } | { readonly running: string };

const tell = (message: FromPod) => void process.send!(message);
registerSdk((span) => tell({ span }));
const silent = { debug() {}, info() {}, warn() {}, error() {} };

await startPod({
  store: process.argv[2]!,
  heartbeatMs: 50,
  deadAfterMs: 500,
  log: silent,
  use: [
    task("mail").handle(async () => {
      await trace.getTracer("the program").startActiveSpan("look up", async (span) => span.end());
    }),
    task("flaky").handle({ attempts: 2, backoff: { baseMs: 1 } }, async ({ attempt }) => {
      if (attempt === 1) throw new Error("not yet");
    }),
    // The first pod that runs it never comes back from it.
    task("deadly").handle(async ({ token }) => {
      tell({ running: "deadly" });
      if (token === 1) await new Promise(() => {});
    }),
  ],
});
tell({ running: "pod" });
