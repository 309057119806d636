import { collect, type Work } from "../side-by-side/figures.ts";
import { pause } from "./appender.ts";
import { startCallers } from "./callers.ts";
import { sayErrors } from "./failover.ts";
import { allOwned, type BenchPod, makeSessions, openPods, post, sessionPerLog } from "./pods.ts";
import type { ClusterSite } from "./works.ts";

export type DeployWork = {
  readonly rounds: number;
  /** How long a turn takes. */
  readonly turnMs: number;
  readonly settleMs: number;
};

const answeredLimitMs = 90_000;
const lookEveryMs = 100;

/**
 * Three pods are replaced one after the other, as a deploy does it: the new one is ready, a balancer leaves
 * out the old one, and that is told to leave. Meanwhile a turn is under way in each log, and callers write.
 */
export async function measureDeploy(site: ClusterSite, work: DeployWork): Promise<Work[]> {
  const failed = collect("cluster.deploy.failed", "calls and turns", "lower");
  const restarted = collect("cluster.deploy.restarted_turns", "turns", "lower");
  const gap = collect("cluster.deploy.gap_ms", "ms", "lower");
  await using opened = new AsyncDisposableStack();
  const pods = await openPods(site, { turnMs: work.turnMs });
  opened.defer(() => pods.close());
  const called = sessionPerLog("called", pods.logs);
  const talked = sessionPerLog("talked", pods.logs);
  await makeSessions(pods.running[0]!.url, called);
  await makeSessions(pods.running[0]!.url, talked, ["slow"]);
  let leaving: BenchPod | undefined;
  const reachable = () => pods.running.filter((pod) => pod !== leaving);
  const callers = startCallers(called, reachable);
  opened.defer(() => callers.end());
  for (let round = 1; round <= work.rounds; round++) {
    const talks = talked.map((session) => startTalk(session, `round-${round}`, reachable));
    const errorsBefore = callers.errors.length;
    const callsBefore = pods.called().length;
    await pause(work.settleMs);
    callers.begin();
    for (const old of pods.running.slice(0, 3)) {
      await pods.start();
      leaving = old;
      old.signal("SIGTERM");
      const code = await old.ended;
      if (code !== 0) throw new Error(`a pod that was told to leave ended with ${code}`);
      leaving = undefined;
      await allOwned(pods.running, pods.owners);
    }
    const gapMs = Math.max(...callers.gapsMs());
    const outcomes = await Promise.all(talks.map((talk) => talk.end()));
    const turns = outcomes.reduce((sum, { answered }) => sum + answered, 0);
    const unanswered = outcomes.flatMap(({ failures }) => failures);
    const calls = pods.called().slice(callsBefore);
    const again = calls.length - new Set(calls).size;
    const errors = callers.errors.length - errorsBefore;
    failed.add("flotilla", { value: errors + unanswered.length });
    restarted.add("flotilla", { value: again });
    gap.add("flotilla", { value: gapMs });
    for (const each of unanswered.slice(0, 5)) site.options.progress(`a turn failed: ${each}`);
    site.options.progress(
      `cluster.deploy, round ${round} of ${work.rounds}: ${turns} turns of ${work.turnMs} ms, ${callers.acked} calls; ` +
        `${errors + unanswered.length} failed, ${again} turns restarted, no ack for ${gapMs.toFixed(0)} ms at most`,
    );
  }
  sayErrors(callers, site.options.progress);
  return [failed.work, restarted.work, gap.work];
}

/** Asks an agent one thing after the other, each once the last is answered. */
function startTalk(session: string, prefix: string, reachable: () => readonly BenchPod[]) {
  let ended = false;
  let answered = 0;
  const failures: string[] = [];
  const ask = async (text: string): Promise<void> => {
    const at = () => `${reachable()[0]!.url}/v1/sessions/${session}/messages`;
    const sent = await post(at(), { author: "ada", id: text, parts: [{ type: "text", text }] });
    if (sent.status >= 300) throw new Error(await sent.text());
    const { seq } = (await sent.json()) as { seq: number };
    const endMs = performance.now() + answeredLimitMs;
    for (;;) {
      const page = await fetch(`${at()}?after=${seq}`);
      if (!page.ok) throw new Error(await page.text());
      const { entries } = (await page.json()) as { entries: readonly Answer[] };
      const answer = entries.find(({ role }) => role === "assistant");
      if (answer?.outcome !== undefined && answer.outcome !== "completed") {
        throw new Error(`it was answered, ${answer.outcome}`);
      }
      if (answer) return;
      if (performance.now() > endMs) throw new Error(`no answer within ${answeredLimitMs} ms`);
      await pause(lookEveryMs);
    }
  };
  const talking = (async () => {
    for (let nth = 1; !ended; nth++) {
      const text = `${session}-${prefix}-${nth}`;
      try {
        await ask(text);
        answered++;
      } catch (error) {
        failures.push(`${text}: ${String(error)}`);
        await pause(lookEveryMs);
      }
    }
  })();
  return {
    /** Waits for the answer to what was asked last. */
    async end() {
      ended = true;
      await talking;
      return { answered, failures };
    },
  };
}

type Answer = { readonly role: string; readonly outcome?: string };
