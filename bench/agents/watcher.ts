import { silentLogger } from "../../src/base/log.ts";
import { type Chat, startPod } from "../../src/index.ts";
import { playRole, sharedMs } from "../roles.ts";
import { mostRepeated, noteCall } from "./calls.ts";
import { clerk, numberOf, numbersOfWords } from "./clerk.ts";
import type { RunnerParams } from "./runner.ts";

/** The process that goes on with the agents of the one that is killed, and reads all of their words. */
export type WatcherParams = RunnerParams & {
  /** It tells when every agent has said a word of this call. */
  readonly untilCall: number;
};

export type Watched = {
  /** When each session had a word that it hadn't had before the kill, on the shared clock. */
  readonly wentOnMs: readonly number[];
  readonly mostRepeated: number;
};

playRole(
  async (params: WatcherParams, bench): Promise<Watched> => {
    const { url, durable, sessions, wordMs, ledger, untilCall } = params;
    const onCall = (sessionId: string, nth: number) => noteCall(ledger, sessionId, nth);
    const use = [clerk({ name: "clerk", durable, wordMs, onCall })];
    await using pod = await startPod({ store: url, use, log: silentLogger, dataDir: false });
    const watching = sessions.map((id) => watch(pod.sessions.open(id), numberOf(untilCall, 2)));
    const all = Promise.all(watching.map(({ wentOn }) => wentOn));
    // What fails meanwhile ends the wait.
    await Promise.race([Promise.all(watching.map(({ joined }) => joined)), all]);
    bench.tell("watching");
    await Promise.race([Promise.all(watching.map(({ isThere }) => isThere)), all]);
    bench.tell("there");
    return { wentOnMs: await all, mostRepeated: mostRepeated(ledger) };
  },
  { ends: "at once" },
);

/** Follows one answer to its end. */
function watch(chat: Chat, place: number) {
  const joined = Promise.withResolvers<void>();
  const isThere = Promise.withResolvers<void>();
  const follow = async (): Promise<number> => {
    let last = 0;
    let firstAttempt: number | undefined;
    let wentOnMs: number | undefined;
    for await (const event of chat.events()) {
      // The message that asks is the first event of all.
      joined.resolve();
      if (event.type === "entry" && event.entry.role === "assistant") {
        const { outcome } = event.entry;
        if (outcome !== "completed") throw new Error(`an answer has ended as ${outcome}`);
        break;
      }
      if (event.type !== "chunk" || event.chunk.type !== "text-delta") continue;
      firstAttempt ??= event.attempt;
      for (const number of numbersOfWords(String(event.chunk["delta"]))) {
        // What a later attempt says again is nothing new.
        if (number <= last) continue;
        last = number;
        if (event.attempt > firstAttempt) wentOnMs ??= sharedMs();
      }
      if (last >= place) isThere.resolve();
    }
    if (wentOnMs === undefined) throw new Error("an answer had ended before the kill");
    return wentOnMs;
  };
  return { joined: joined.promise, isThere: isThere.promise, wentOn: follow() };
}
