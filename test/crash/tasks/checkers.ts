import type { Fleet } from "../fleet.ts";
import type { Fault } from "../pod-handle.ts";
import { type Entry, startsIn } from "../ledger.ts";
import { pauseFor } from "../until.ts";
import type { Transition } from "../witness.ts";

/** All that is known about a run once it is over. */
export type Evidence = {
  readonly rows: readonly TaskRow[];
  readonly transitions: readonly Transition[];
  readonly ledger: readonly Entry[];
  readonly faults: readonly Fault[];
  readonly deadAfterMs: number;
};

export type TaskRow = {
  readonly task: string;
  readonly name: string;
  readonly key: string | null;
  readonly status: string;
  readonly token: number;
  readonly failures: number;
  readonly deaths: number;
  readonly maxAttempts: number | null;
  readonly error: string | null;
  /** What it waits for. */
  readonly after?: readonly string[];
};

export type Checker = (evidence: Evidence) => string[];

const usual = { deadAfterMs: 500 };
const deathLimit = 4;
const attemptsByDefault = 3;
// How far apart two processes may note what happened at the same moment.
const slackMs = 500;

/** Each promise, and what speaks against it having been kept. Nothing does, if it was. */
export const promises: Readonly<Record<string, Checker>> = {
  "T2: tokens strictly rise, and each belongs to one run on one pod": tokensRise,
  "T3: only the holder of the current token finishes a task": onlyHoldersFinish,
  "T4: what has ended stays as it ended": endingsStay,
  "T5: a claim is recovered at most once, and only while it is claimed": recoveredOnce,
  "T6: no task has more attempts or deaths than it may have": attemptsBounded,
  "T7 and T12: every task has ended, and no pod holds one": allEnded,
  "T8: no task is taken from a pod that was beating": takenOnlyFromTheSilent,
  "T9: every start of a process has an id of its own": podIdsUnique,
  "T14: no pod runs a task that it doesn't know": onlyKnownNames,
  "T15: no task is started before all that it waits for have ended": awaitedFirst,
};

/** What speaks against the promises, in a fleet whose work is done. */
export async function judge(fleet: Fleet, limits?: { deadAfterMs: number }): Promise<string[]> {
  return violations(await gather(fleet, limits));
}

export async function gather(
  fleet: Fleet,
  { deadAfterMs }: { deadAfterMs: number } = usual,
): Promise<Evidence> {
  const look = async (): Promise<Evidence> => {
    const rows = await fleet.sql("select * from flotilla_task");
    return {
      rows: rows.map(toTaskRow),
      transitions: await fleet.transitions(),
      ledger: fleet.ledger(),
      faults: fleet.faults,
      deadAfterMs,
    };
  };
  let evidence = await look();
  // A beat that ends a gap is seen in the store before its pod has said that there was one.
  for (let looks = 1; looks < 100 && takenOnlyFromTheSilent(evidence).length > 0; looks++) {
    await pauseFor(100);
    evidence = await look();
  }
  return evidence;
}

export function violations(evidence: Evidence): string[] {
  return Object.entries(promises).flatMap(([promise, check]) =>
    check(evidence)
      .slice(0, 5)
      .map((violation) => `${promise}: ${violation}`),
  );
}

function toTaskRow(row: Record<string, any>): TaskRow {
  return {
    task: row["task_id"],
    name: row["name"],
    key: row["unique_key"],
    status: row["status"],
    token: row["claim_token"],
    failures: row["retry_count"],
    deaths: row["deaths"],
    maxAttempts: row["max_attempts"],
    error: row["error"],
    after: (JSON.parse(row["payload"]) as { after?: string[] } | null)?.after ?? [],
  };
}

function tokensRise({ transitions, ledger }: Evidence): string[] {
  const wrong: string[] = [];
  const claims = new Map<string, string | null>();
  for (const { task, from, to, fromToken, toToken, toPod } of transitions) {
    if (toToken < fromToken) wrong.push(`${task} went from token ${fromToken} to ${toToken}`);
    if (to !== "claimed") continue;
    if (from === "claimed" && toToken === fromToken) continue;
    if (from !== "pending") wrong.push(`${task} was claimed while it was ${from}`);
    if (toToken <= fromToken) wrong.push(`${task} was claimed without a new token`);
    claims.set(`${task} ${toToken}`, toPod);
  }
  const begun = new Set<string>();
  for (const { task, token, pod } of startsIn(ledger)) {
    const run = `${task} ${token}`;
    if (begun.has(run)) wrong.push(`${run} was started twice`);
    if (claims.get(run) !== pod) wrong.push(`${run} ran on ${pod}, which hadn't claimed it`);
    begun.add(run);
  }
  return wrong;
}

function onlyHoldersFinish({ transitions, ledger }: Evidence): string[] {
  const returned = new Set(
    ledger.flatMap((entry) =>
      entry.event === "end" && entry.ok ? [`${entry.task} ${entry.token} ${entry.pod}`] : [],
    ),
  );
  return transitions.flatMap(({ task, to, toToken, result }) => {
    if (to !== "completed") return [];
    if (result?.token !== toToken) {
      return [`${task} holds token ${toToken} and was finished with ${result?.token}`];
    }
    if (returned.has(`${task} ${result.token} ${result.pod}`)) return [];
    return [`${task} has a result of ${result.pod} that was never returned there`];
  });
}

const open = ["pending", "claimed"];

function endingsStay(evidence: Evidence): string[] {
  const { transitions, ledger } = evidence;
  const changed = transitions
    .filter(({ from }) => !open.includes(from))
    .map(({ task, from, to }) => `${task} went from ${from} to ${to}`);
  const endedMs = new Map(
    transitions.filter(({ to }) => !open.includes(to)).map(({ task, atMs }) => [task, atMs]),
  );
  const late = startsIn(ledger)
    .filter(({ task, pod, atMs }) => {
      const sinceMs = endedMs.get(task) ?? Infinity;
      // A pod that fell asleep over the answer to its claim begins when it wakes, and can't finish.
      return atMs > sinceMs + slackMs && !wasSilent(evidence, pod, sinceMs);
    })
    .map(({ task, token }) => `${task} was started with token ${token} after it had ended`);
  return [...changed, ...late];
}

export function recoveriesIn(transitions: readonly Transition[]): Transition[] {
  const deaths = new Map<string, number>();
  return transitions.filter(({ task, deaths: now }) => {
    const before = deaths.get(task) ?? 0;
    deaths.set(task, now);
    return now > before;
  });
}

function recoveredOnce({ transitions }: Evidence): string[] {
  const wrong: string[] = [];
  const seen = new Set<string>();
  for (const { task, from, fromToken } of recoveriesIn(transitions)) {
    const claim = `${task} ${fromToken}`;
    if (seen.has(claim)) wrong.push(`${claim} was recovered twice`);
    if (from !== "claimed") wrong.push(`${claim} was recovered while it was ${from}`);
    seen.add(claim);
  }
  return wrong;
}

function attemptsBounded({ rows }: Evidence): string[] {
  return rows.flatMap(({ task, status, failures, deaths, maxAttempts, error }) => {
    const limit = maxAttempts ?? attemptsByDefault;
    if (failures > limit) return [`${task} failed ${failures} times of ${limit}`];
    if (deaths > deathLimit) return [`${task} has seen ${deaths} pods die`];
    if (deaths === deathLimit && status === "completed")
      return [`${task} ran after ${deaths} deaths`];
    const poison = status === "failed" && JSON.parse(error ?? "{}").code === "pod_died";
    if (poison && deaths !== deathLimit) return [`${task} was failed after ${deaths} deaths`];
    return [];
  });
}

function allEnded({ rows }: Evidence): string[] {
  return rows
    .filter(({ status }) => open.includes(status))
    .map(({ task, name, status }) => `${task} (${name}) is still ${status}`);
}

function takenOnlyFromTheSilent(evidence: Evidence): string[] {
  return recoveriesIn(evidence.transitions)
    .filter(({ fromPod, atMs }) => !wasSilent(evidence, fromPod!, atMs))
    .map(({ task, fromPod }) => `${task} was taken from ${fromPod}, which was beating`);
}

/** Whether a pod was dead, paused or without a beat at that moment, for long enough to be given up. */
function wasSilent({ ledger, faults, deadAfterMs }: Evidence, pod: string, atMs: number): boolean {
  const faulty = faults.some(
    ({ podId, fromMs, toMs }) =>
      podId === pod && fromMs <= atMs + slackMs && atMs <= toMs + slackMs,
  );
  const gap = () =>
    ledger.some(
      (entry) =>
        entry.event === "gap" &&
        entry.pod === pod &&
        entry.gapMs > deadAfterMs * 0.8 &&
        entry.atMs - entry.lateMs - entry.gapMs - slackMs <= atMs &&
        atMs <= entry.atMs + slackMs,
    );
  return faulty || gap();
}

function podIdsUnique({ ledger }: Evidence): string[] {
  const pids = new Map<string, number>();
  return ledger.flatMap((entry) => {
    if (entry.event !== "hello") return [];
    const known = pids.has(entry.pod);
    pids.set(entry.pod, entry.pid);
    return known ? [`${entry.pod} was given twice`] : [];
  });
}

function onlyKnownNames({ ledger }: Evidence): string[] {
  const known = new Map(
    ledger.flatMap((entry) => (entry.event === "hello" ? [[entry.pod, entry.names]] : [])),
  );
  return startsIn(ledger)
    .filter(({ pod, name }) => !known.get(pod)?.includes(name))
    .map(({ pod, name, task }) => `${pod} ran ${task}, a ${name}`);
}

function awaitedFirst({ rows, transitions, ledger }: Evidence): string[] {
  const endedAt = new Map<string, number>();
  const claimedAt = new Map<string, number>();
  transitions.forEach(({ task, to, toToken }, at) => {
    if (!open.includes(to)) endedAt.set(task, endedAt.get(task) ?? at);
    if (to === "claimed") claimedAt.set(`${task} ${toToken}`, at);
  });
  const waiters = new Map(rows.map(({ task, after = [] }) => [task, after]));
  return startsIn(ledger).flatMap(({ task, token }) => {
    const at = claimedAt.get(`${task} ${token}`) ?? -1;
    const early = (waiters.get(task) ?? []).filter((each) => (endedAt.get(each) ?? Infinity) > at);
    return early.map((each) => `${task} was started while ${each} was open`);
  });
}
