import pg from "pg";
import { collect, type Work } from "../side-by-side/figures.ts";
import { pause } from "./appender.ts";
import { startCallers } from "./callers.ts";
import { sayErrors } from "./failover.ts";
import { makeSessions, openPods, sessionPerLog } from "./pods.ts";
import type { ClusterSite } from "./works.ts";

export type AwayWork = {
  readonly rounds: number;
  readonly settleMs: number;
  /** How long Postgres is away. */
  readonly awayMs: number;
};

const acksLimitMs = 60_000;
const caughtUpLimitMs = 120_000;
const lookEveryMs = 20;

/**
 * Postgres is killed under callers of each log, and started again. Calls that fail meanwhile, and how long it
 * takes from its return until it has all that was acknowledged by then, while callers write on.
 */
export async function measureAway(site: ClusterSite, work: AwayWork): Promise<Work[]> {
  const failed = collect("cluster.away.failed", "calls", "lower");
  const caughtUp = collect("cluster.away.catchup_s", "s", "lower");
  await using opened = new AsyncDisposableStack();
  const pods = await openPods(site);
  opened.defer(() => pods.close());
  const sessions = sessionPerLog("called", pods.logs);
  await makeSessions(pods.running[0]!.url, sessions);
  const callers = startCallers(sessions, () => pods.running);
  opened.defer(() => callers.end());
  await callers.allAcked(acksLimitMs);
  for (let round = 1; round <= work.rounds; round++) {
    await pause(work.settleMs);
    const [errorsBefore, ackedBefore] = [callers.errors.length, callers.acked];
    callers.begin();
    await pods.takePostgresAway(work.awayMs);
    const backMs = performance.now();
    const acked = callers.acked - ackedBefore;
    const { url } = pods.running[0]!;
    const wanted = await Promise.all(sessions.map((session) => lastSeq(url, session)));
    await hasAll(pods.store, sessions, wanted);
    const seconds = (performance.now() - backMs) / 1_000;
    const gapMs = Math.max(...callers.gapsMs());
    const errors = callers.errors.length - errorsBefore;
    failed.add("flotilla", { value: errors });
    caughtUp.add("flotilla", { value: seconds });
    site.options.progress(
      `cluster.away, round ${round} of ${work.rounds}: ${acked} calls in ${work.awayMs / 1_000} s without Postgres, ${errors} failed, no ack for ${gapMs.toFixed(0)} ms at most; it had all of them ${seconds.toFixed(1)} s after its return`,
    );
  }
  sayErrors(callers, site.options.progress);
  return [failed.work, caughtUp.work];
}

/** The last entry of a session, as the owner of its log has it. */
async function lastSeq(url: string, session: string): Promise<number> {
  const answer = await fetch(`${url}/v1/sessions/${session}`);
  if (!answer.ok) throw new Error(`no session ${session}: ${await answer.text()}`);
  return ((await answer.json()) as { lastSeq: number }).lastSeq;
}

/** Waits until the database has so many entries of each session. */
async function hasAll(
  store: string,
  sessions: readonly string[],
  wanted: readonly number[],
): Promise<void> {
  const client = new pg.Client(store);
  await client.connect();
  try {
    const endMs = performance.now() + caughtUpLimitMs;
    for (;;) {
      const { rows } = await client.query<{ session_id: string; last_seq: string }>(
        "select session_id, last_seq from flotilla.session where session_id = any($1)",
        [sessions],
      );
      const stored = new Map(rows.map((row) => [row.session_id, Number(row.last_seq)]));
      if (sessions.every((session, at) => (stored.get(session) ?? 0) >= wanted[at]!)) return;
      if (performance.now() > endMs) throw new Error("the database doesn't catch up");
      await pause(lookEveryMs);
    }
  } finally {
    await client.end();
  }
}
