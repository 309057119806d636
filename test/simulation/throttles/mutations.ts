/**
 * The fences of shares between pods, and how each is taken out. Two more are met so seldom by chance that
 * a test provokes them: `shares.contract.ts`, "that were given back by a write that comes late".
 */
import type { Edit, Mutation } from "../mutation-list.ts";

const share =
  (file: string) =>
  (find: string, put = ""): Edit => ({ file: `src/throttle/share/${file}.ts`, find, put });
const statements = share("statements");
const decide = share("decide");
const holder = share("holder");
const lease = share("lease");
const learned = share("learned");
const watch = share("watch");

export const throttleMutations: readonly Mutation[] = [
  {
    name: "share: without the revision that was read",
    edits: [statements(" and rev = ${rev}`;", "`;")],
  },
  {
    name: "share: raised without looking at what is free",
    edits: [decide("Math.min(target - me.share, free)", "target - me.share")],
  },
  {
    name: "share: lowered below what is in flight",
    edits: [decide("Math.max(target, me.inFlight)", "target")],
  },
  {
    name: "share: lowered before granting stops",
    edits: [holder("    apply();\n    const nowMs", "    const nowMs")],
  },
  {
    name: "share: lease counted from after the answer",
    edits: [
      holder(
        "    lease = look(lease, next.rev, next.shares[podId]);\n",
        `    lease = look(lease, next.rev, next.shares[podId]);
    if (lease.known) lease = { ...lease, known: { ...lease.known, sentMs: seen.answeredMs } };\n`,
      ),
    ],
  },
  {
    name: "share: lease that isn't looked at when a call begins",
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
    edits: [watch("(leaseMs + longestMs) * drift", "longestMs * drift")],
  },
  {
    name: "share: taken over before the longest call is over",
    edits: [watch("(leaseMs + longestMs) * drift", "leaseMs * drift")],
  },
  {
    name: "share: taken over by a count from before the answer",
    edits: [watch("{ mark, sinceMs: answeredMs", "{ mark, sinceMs: askedMs")],
  },
  {
    name: "share: not knowing taken for stored",
    edits: [lease("Math.min(least, share)", "share")],
  },
  {
    name: "share: any renewal taken for the one that was sent last",
    edits: [
      lease("lease.doubtful.find((each) => each.renewal === renewal)", "lease.doubtful.at(-1)"),
    ],
  },
  {
    name: "learning: all of a report counted where part of it was",
    edits: [
      learned(
        "if (!before) continue;\n    const since = sampleBetween(before, totals);",
        "const since = sampleBetween(before ?? noTotals, totals);",
      ),
    ],
  },
].map((mutation) => ({ ...mutation, scenario: "throttles" as const }));
