import { sessionViolations } from "../crash/sessions/checkers.ts";
import { eventsOf } from "../crash/sessions/evidence.ts";
import type { ClusterCheck, ClusterEvidence, Look } from "./evidence.ts";

/** Everything that speaks against the promises about sessions on a cluster. */
export function clusterViolations(evidence: ClusterEvidence): string[] {
  return [...sessionViolations(evidence), ...checks.flatMap((check) => check(evidence))];
}

/** S4: what was acked before a read began is there for it, whichever pod answers. */
const unread: ClusterCheck = (evidence) => {
  const acks = Map.groupBy(eventsOf(evidence, "ok"), ({ session }) => session);
  return evidence.looks.flatMap(({ reader, session, pod, askedMs, lastSeq }) => {
    const before = (acks.get(session) ?? []).filter(({ atMs }) => atMs < askedMs);
    const missing = before.find(({ seq }) => seq > lastSeq);
    if (!missing) return [];
    const told = `${reader} was told by ${pod} that ${session} ends at ${lastSeq}`;
    return [`S4: ${told}, after ${missing.id} was acked at ${missing.seq}`];
  });
};

/** S7: the tail that a reader is told of never falls, whichever pods it asks. */
const fallen: ClusterCheck = ({ looks }) => {
  const byReader = Map.groupBy(looks, ({ reader, session }) => `${reader} ${session}`);
  return [...byReader.values()].flatMap((all) => {
    const inOrder = all.toSorted((a, b) => a.askedMs - b.askedMs);
    return inOrder.flatMap((look, at) => {
      // Only what was answered before this one was asked for.
      const earlier = inOrder.slice(0, at).filter(({ atMs }) => atMs <= look.askedMs);
      const highest = earlier.reduce<Look | undefined>(
        (most, each) => (most && most.lastSeq >= each.lastSeq ? most : each),
        undefined,
      );
      if (!highest || highest.lastSeq <= look.lastSeq) return [];
      const { reader, session, pod, lastSeq } = look;
      const before = `${highest.lastSeq} by ${highest.pod}`;
      return [`S7: ${reader} was told ${before}, then ${lastSeq} by ${pod}, of ${session}`];
    });
  });
};

/**
 * O1: neither the term nor the end of a log ever falls below what was acked. A row of the database is committed
 * once it is seen. On servers the last message may be one that was never acked, and is lost with a server. One
 * message of a log is sent at a time, so that whatever is before the last one was acked, or read by the pod that
 * sent the last one.
 */
const setBack: ClusterCheck = ({ heads, owned, archives }) => {
  const mayLoseLast = archives !== undefined;
  const byLog = Map.groupBy(heads, ({ log, incarnation }) => `${log} (${incarnation})`);
  return [...byLog].flatMap(([log, all]) => {
    let end = -Infinity;
    let top = -Infinity;
    /** At which offsets the highest term was seen. */
    let seenAt = new Set<number>();
    return all.flatMap((head, at) => {
      const { term, offset } = head;
      // A term that was lost before it was acked is the next one again.
      const isOver = all.slice(at).every((each) => each.term !== top);
      const isOwned = owned.some((each) => each.log === head.log && each.term === top) && isOver;
      const isTopAcked = !mayLoseLast || seenAt.size > 1 || isOwned;
      const falls = offset < (mayLoseLast ? end - 1 : end) || term < (isTopAcked ? top : top - 1);
      const before = all[at - 1];
      if (term > top) seenAt = new Set();
      if (term >= top) seenAt.add(offset);
      end = Math.max(end, offset);
      top = Math.max(top, term);
      if (!before || !falls) return [];
      const from = `term ${before.term} at ${before.offset}`;
      return [`O1: log ${log} went from ${from} to term ${term} at ${offset}`];
    });
  });
};

/** O1: a term has one owner. */
const sharedTerms: ClusterCheck = ({ owned }) => {
  const byTerm = Map.groupBy(owned, ({ log, term }) => `term ${term} of log ${log}`);
  return [...byTerm].flatMap(([term, all]) => {
    const pods = new Set(all.map(({ pod }) => pod));
    return pods.size > 1 ? [`O1: ${term} was owned by ${[...pods].join(" and ")}`] : [];
  });
};

/** H1: no more answers of the agent are wanted at once than its throttle allows to all pods together. */
const overfull: ClusterCheck = (evidence) => {
  const { callsMax } = evidence;
  const most = mostAtOnce(evidence);
  return most > callsMax ? [`H1: ${most} answers were wanted at once, and ${callsMax} may be`] : [];
};

/** S8: every replica of a log has the same messages, and none lacks what another had before it was read. */
export const differing = ({ replicas }: Pick<ClusterEvidence, "replicas">): string[] =>
  [...Map.groupBy(replicas, ({ log }) => log)].flatMap(([log, all]) => {
    const holes = all.flatMap(({ server, messages }) => {
      const hole = messages.find(
        ({ sequence }, at) => at > 0 && sequence !== messages[at - 1]!.sequence + 1,
      );
      return hole ? [`S8: ${server} has nothing before ${hole.sequence} of log ${log}`] : [];
    });
    if (holes.length > 0) return holes;
    const [first, ...others] = all;
    const known = new Map(first!.messages.map(({ sequence, digest }) => [sequence, digest]));
    return others.flatMap(({ server, messages }) => {
      const other = messages.find(
        ({ sequence, digest }) => (known.get(sequence) ?? digest) !== digest,
      );
      if (other)
        return [`S8: ${server} has another ${other.sequence} of log ${log} than ${first!.server}`];
      // A log may grow while its replicas are read one after the other.
      const [end = 0, own = 0] = [first!.messages.at(-1)?.sequence, messages.at(-1)?.sequence];
      if (own >= end) return [];
      return [`S8: log ${log} ends at ${own} on ${server}, and at ${end} on ${first!.server}`];
    });
  });

/** S8: the archive is what its logs make up to its watermarks, and lacks nothing of them in the end. */
export const misarchived = ({ archives }: Pick<ClusterEvidence, "archives">): string[] => {
  if (!archives) return [];
  const { live, rebuilt, trimmed, behind } = archives;
  const late = behind.map((log) => `S8: log ${log} has records that the archive lacks`);
  if (trimmed.length > 0) return late;
  const names = [...new Set([...Object.keys(live), ...Object.keys(rebuilt)])];
  const wrong = names.flatMap((table) => {
    const [has, wants] = [live[table] ?? {}, rebuilt[table] ?? {}];
    const keys = [...new Set([...Object.keys(has), ...Object.keys(wants)])];
    const rows = keys.filter((key) => has[key] !== wants[key]);
    const told = rows.slice(0, toldRows).map((key) => {
      const facts = `${has[key] ?? "nothing"}, and its log makes ${wants[key] ?? "nothing"} of it`;
      return `S8: ${table} ${key} is archived as ${facts}`;
    });
    const rest = rows.length - told.length;
    return rest > 0 ? [...told, `S8: ${rest} more rows of ${table} differ from their logs`] : told;
  });
  return [...late, ...wrong];
};

/** Rows of a table that are shown where many are wrong. */
const toldRows = 3;

const checks = [unread, fallen, setBack, sharedTerms, overfull, differing, misarchived];

/**
 * How many answers the agent gave at once. An answer that was cut off isn't counted: its pod was killed or
 * gave it up, and what that held was another's at once. The same attempt may ask again after that.
 */
export function mostAtOnce({ calls }: Pick<ClusterEvidence, "calls">): number {
  const begunMs = new Map<string, number>();
  const changes = calls.flatMap(({ event, atMs, session, epoch, attempt, agent }) => {
    const name = `${session} ${epoch} ${attempt} ${agent}`;
    if (event === "called") begunMs.set(name, atMs);
    const begun = begunMs.get(name);
    if (event !== "ended" || begun === undefined) return [];
    return [
      { atMs: begun, by: 1 },
      { atMs, by: -1 },
    ];
  });
  let now = 0;
  let most = 0;
  for (const { by } of changes.toSorted((a, b) => a.atMs - b.atMs || a.by - b.by)) {
    now += by;
    most = Math.max(most, now);
  }
  return most;
}

/** What was wanted of a storm. What didn't happen makes it show less than it should. */
export type Wanted = {
  readonly faults: readonly string[];
  /** By the words that pods log when they are refused. */
  readonly fences: readonly string[];
};

export type Happened = {
  readonly fired: readonly string[];
  readonly refused: Readonly<Record<string, number>>;
  readonly looks: number;
  readonly invoked: number;
  readonly acked: number;
  readonly mostAtOnce: number;
  readonly callsMax: number;
  /** Logs of which no archive could be rebuilt. */
  readonly trimmed: readonly number[];
};

/** What a storm lacked; nothing if it shows all that it is meant to show. */
export function vacuity(wanted: Wanted, happened: Happened): string[] {
  const { fired, refused, invoked, acked, looks } = happened;
  const unfired = wanted.faults.filter((fault) => !fired.includes(fault));
  const idle = wanted.fences.filter((fence) => !(refused[fence]! > 0));
  return [
    ...unfired.map((fault) => `the fault "${fault}"`),
    ...idle.map((fence) => `a refusal by the fence "${fence}"`),
    ...(acked * 2 >= invoked ? [] : [`success of most operations: ${acked} of ${invoked}`]),
    ...(acked >= 100 ? [] : ["a hundred messages"]),
    ...(looks >= 50 ? [] : ["fifty reads"]),
    ...happened.trimmed.map((log) => `all messages of log ${log}, to rebuild the archive of them`),
    ...(happened.mostAtOnce >= happened.callsMax ? [] : ["as many answers at once as may be"]),
  ];
}
