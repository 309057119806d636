import { silentLogger } from "../../src/base/log.ts";
import { startPod } from "../../src/index.ts";
import { playRole } from "../roles.ts";
import { clerk } from "./clerk.ts";
import { noteCall } from "./calls.ts";

/** The process that is killed: all agents answer here, and wait in their first tool until they may go on. */
export type RunnerParams = {
  readonly url: string;
  readonly durable: boolean;
  readonly sessions: readonly string[];
  readonly wordMs: number;
  /** The file in which each call is noted, which outlives this process. */
  readonly ledger: string;
};

playRole(async (params: RunnerParams, bench) => {
  const { url, durable, sessions, wordMs, ledger } = params;
  const gate = Promise.withResolvers<void>();
  const begun = new Set<string>();
  const all = Promise.withResolvers<void>();
  const onCall = (sessionId: string, nth: number) => {
    noteCall(ledger, sessionId, nth);
    if (begun.add(sessionId).size === sessions.length) all.resolve();
  };
  const use = [clerk({ name: "clerk", durable, wordMs, onCall, toolsWait: gate.promise })];
  const pod = await startPod({ store: url, use, log: silentLogger, dataDir: false });
  for (const sessionId of sessions) {
    const chat = await pod.sessions.create("clerk", { sessionId, user: "ada" });
    await chat.send("go");
  }
  await all.promise;
  bench.tell("begun");
  await bench.heard("go");
  gate.resolve();
  await new Promise(() => {});
});
