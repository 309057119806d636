/**
 * The fences of shares between pods and of the belief in headers, and how each is taken out. Two more are met so seldom by chance that
 * a test provokes them: `throttles/contract/shares.ts`, "that were given back by a write that comes late".
 */
import { type Mutation, of } from "../mutation.ts";

const shares = of("throttles/shares");
const limiter = of("throttles/limiter");

export const throttleMutations: readonly Mutation[] = [
  {
    name: "share: without the revision that was read",
    edits: [shares(" and rev = ${rev}`;", "`;")],
  },
  {
    name: "share: raised without reading what is free",
    edits: [shares("Math.min(target - me.share, free)", "target - me.share")],
  },
  {
    name: "share: lowered below what is in flight",
    edits: [shares("Math.max(target, me.inFlight)", "target")],
  },
  {
    name: "share: lowered before granting stops",
    edits: [shares("    apply();\n    const nowMs", "    const nowMs")],
  },
  {
    name: "share: lease counted from after the answer",
    edits: [
      shares(
        "    lease = leaseAfterRead(lease, next.rev, next.shares[podId]);\n",
        `    lease = leaseAfterRead(lease, next.rev, next.shares[podId]);
    if (lease.confirmed) {
      lease = { ...lease, confirmed: { ...lease.confirmed, sentMs: roundTrip.answeredMs } };
    }\n`,
      ),
    ],
  },
  {
    name: "share: lease that isn't checked when a call begins",
    edits: [
      {
        file: "src/throttles/limiter/admission.ts",
        find: "nowMs >= allowance.untilMs",
        put: "nowMs === Infinity",
      },
    ],
  },
  {
    name: "share: taken over before the lease is over",
    edits: [shares("(leaseMs + longestMs) * drift", "longestMs * drift")],
  },
  {
    name: "share: taken over before the longest call is over",
    edits: [shares("(leaseMs + longestMs) * drift", "leaseMs * drift")],
  },
  {
    name: "share: taken over by a count from before the answer",
    edits: [shares("{ mark, sinceMs: answeredMs", "{ mark, sinceMs: sentMs")],
  },
  {
    name: "share: an unknown outcome taken for stored",
    edits: [shares("Math.min(least, share)", "share")],
  },
  {
    name: "share: any renewal taken for the one that was sent last",
    edits: [
      shares(
        "lease.unconfirmed.find((each) => each.renewal === renewal)",
        "lease.unconfirmed.at(-1)",
      ),
    ],
  },
  {
    name: "silence: made up for pods that report",
    edits: [shares("silentMs(podId) >= silentAfterMs + entry.longestMs", "true")],
  },
  {
    name: "silence: made up for a pod that has renewed its entry",
    edits: [shares("silent[podId] !== entry.renewal", "silent[podId] === undefined")],
  },
  {
    name: "belief: nothing is tried where nothing remains",
    edits: [limiter("Math.min(backMs, each.tryAtMs - nowMs)", "backMs")],
  },
  {
    name: "belief: what succeeds against a header isn't held against it",
    edits: [limiter("          each.contradictions++;\n", "")],
  },
  {
    name: "belief: a header that is ignored explains refusals",
    edits: [
      limiter(
        "> nowMs) continue;\n        disbelievedUntilMs.delete",
        "> nowMs) {\n          nothingLeft = true;\n          continue;\n        }\n        disbelievedUntilMs.delete",
      ),
    ],
  },
  {
    name: "learning: all of a report counted where part of it was",
    edits: [
      shares(
        "if (!before) continue;\n    const since = sampleBetween(before, totals);",
        "const since = sampleBetween(before ?? noTotals, totals);",
      ),
    ],
  },
].map((mutation) => ({ ...mutation, scenario: "throttles" as const }));
