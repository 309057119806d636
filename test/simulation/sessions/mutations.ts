/**
 * The fences of sessions, and how each is taken out. Where several cover each other, all of them are. Some
 * are met so seldom by chance that tests provoke them; docs/invariants.md names both.
 */
import { type Mutation, of } from "../mutation.ts";

const heads = of("sessions/log/sql");
const journal = of("sessions/log/sql", "sessions/log/sql-journal");
const counts = of("quotas/sql");
const codec = of("sessions/log/record-codec");
const owner = of("sessions/log/owner", "sessions/log/record");
const owners = of("sessions/log/ownership");
const monitor = of("sessions/log/turn-monitor");
const router = of("sessions/log/command-router");
const pod = of("sessions/pod");
const conversation = of("sessions/conversation");
const runner = of("sessions/turns/runner", "sessions/turns/turn", "sessions/turns/report");
const taking = of("steps/taking");
const steps = of("sessions/turns/steps");
const hub = of("sessions/delivery");
const logHeads = of("sessions/log/heads");

const place = "((log_offset = from_offset and record_id = from_record)";
const term = "incarnation = in_incarnation and term = in_term";
const anyTerm = heads(
  "on wanted.log_id = head.log_id and wanted.term = head.term",
  "on wanted.log_id = head.log_id",
);
const recover = "const recovered = await journal.recover(head);";
const beforeCommit = "    const startedMs = clock.monotonic();\n    let committed: CommitResult;";
const sendOnce = "journal.commit(head, draft.record)";
const sendAndCatch = (unknown: string) =>
  `${sendOnce}.catch((error: unknown) => {
    if (!hasCode(error, "unknown_outcome")) throw error;
    ${unknown}
  })`;

const list: readonly Mutation[] = [
  { name: "record: anywhere in its term", edits: [heads(place, "(1 = 1")] },
  {
    name: "record: anywhere in any term",
    edits: [heads(place, "(1 = 1"), heads(term, "incarnation = in_incarnation"), anyTerm],
  },
  {
    name: "record: entries, whether it is stored or not",
    edits: [
      journal(
        "select ${all} from ${fresh} fresh\n    where ${when(sql`fresh.log_id`)}`",
        "select ${all} from ${fresh} fresh`",
      ),
    ],
  },
  {
    name: "record: headers, whether it is stored or not",
    edits: [
      journal(
        "sql``}\n    from ${fresh} fresh where ${when(sql`fresh.log_id`)}",
        "sql``}\n    from ${fresh} fresh where true",
      ),
    ],
  },
  {
    name: "record: counts of tenants, whether it is stored or not",
    edits: [counts("from ${fresh} fresh where ${when(sql`fresh.log_id`)}", "from ${fresh} fresh")],
    by: "Q1",
  },
  {
    name: "record: stored again by its resend",
    edits: [journal("changes.headers[0]?.sessionId ?? null,", "null,")],
  },
  {
    name: "record: the head of another log answers for it",
    edits: [
      journal("const head = heads.get(at.logId);", "const head = [...heads.values()][0] && at;"),
    ],
  },
  {
    name: "record: one that is refused takes those of other logs with it",
    edits: [journal("await Promise.all(records.map((record) => send([record])));")],
  },
  {
    name: "record: its bytes lack steps",
    edits: [
      codec(
        "for (const name of memberNames) body[name] = record[name];",
        'for (const name of memberNames) body[name] = name === "steps" ? [] : record[name];',
      ),
    ],
    by: "steps",
  },
  {
    name: "journal: client ids aren't stored",
    edits: [
      journal(
        "messageId, clientId, entryBody(entry), atMs];",
        "messageId, null, entryBody(entry), atMs];",
      ),
    ],
  },
  {
    name: "take: without a higher term",
    edits: [heads("const term = seen.term + 1;", "const { term } = seen;")],
  },
  {
    name: "take: of a log that has moved on",
    edits: [
      heads(
        "((term = ${seen.term} and log_offset = ${seen.offset} and record_id = ${seen.recordId})",
        "(1 = 1",
      ),
    ],
  },
  {
    name: "release: of any owner's log",
    edits: [
      heads(
        "from ${ownRows(logs)} own\n    where ${heads}.log_id = own.log_id and ${heads}.term = own.term and owner = ${podId}\n",
        "from ${ownRows(logs)} own\n    where ${heads}.log_id = own.log_id and ${podId} <> ''\n",
      ),
      anyTerm,
    ],
  },
  {
    name: "owner: acknowledges before the commit",
    edits: [owner(beforeCommit, `settle(draft);\n${beforeCommit}`)],
  },
  {
    name: "owner: delivers before the commit",
    edits: [
      owner(
        beforeCommit,
        `parts.onCommitted({ ...draft, head, durationMs: 0 } as never);\n${beforeCommit}`,
      ),
    ],
  },
  {
    name: "owner: what was fenced counts as stored",
    edits: [
      owner(
        'if (committed.type === "fenced") return fenced(items);',
        'if (committed.type === "fenced") return settle(draft);',
      ),
    ],
  },
  {
    name: "owner: what is unknown counts as stored",
    edits: [
      owner(
        sendOnce,
        sendAndCatch(
          'return { type: "committed", head: { ...head, offset: head.offset + 1, recordId: draft.record.recordId } };',
        ),
      ),
    ],
  },
  {
    name: "owner: what is unknown counts as failed",
    edits: [owner(sendOnce, sendAndCatch('throw new FlotillaError("conflict", "lost");'))],
  },
  {
    name: "owner: duplicates aren't searched for",
    edits: [owner("if (seq !== undefined) {", "if (seq !== undefined && seq < 0) {")],
  },
  {
    name: "router: a failure after a try that may have been stored is one",
    edits: [
      router(
        "throw mayBeStored && !isDecided(command, error) ? outcomeUnknown(error) : error;",
        "throw error;",
      ),
    ],
  },
  {
    name: "router: the answer to any copy counts",
    edits: [router("if (isDoneOnce(request.command)) answer.then", "answer.then")],
  },
  {
    name: "router: envelopes for any term",
    edits: [router("(term && !isSameTerm(term, owner.head))", "(term && !isSameTerm(term, term))")],
  },
  {
    name: "heads: a read from before there were any is believed",
    edits: [logHeads("await reading;\n      if (isKnown()) return last;", "return reading;")],
  },
  {
    name: "pod: an agent in its code counts as stored while it leaves",
    edits: [
      pod("const isStored = hasAgent && !registry.isInCode(name);", "const isStored = hasAgent;"),
    ],
  },
  {
    name: "owners: headers that are busy aren't loaded",
    edits: [owners(recover, "const recovered: Recovered = { busy: [] };")],
  },
  {
    name: "owners: what is remembered counts as fresh for ever",
    edits: [owners("want(each);\n      return isProven(each);", "return true;")],
  },
  {
    name: "turn monitor: busy sessions of a taken log aren't seen",
    edits: [pod("for (const header of busy) monitor.watch(header);")],
  },
  {
    name: "turn monitor: starts aren't repeated",
    edits: [
      monitor(
        "!each.isConfirmed && nowMs - each.sentMs >= repeatMs",
        "!each.isConfirmed && each.sentMs < 0",
      ),
    ],
  },
  {
    name: "turn monitor: no runner is given up",
    edits: [monitor("nowMs - each.heardMs >= lostMs", "nowMs - each.heardMs >= lostMs * 1_000")],
  },
  {
    name: "turn monitor: a debounce is lost with its owner",
    edits: [
      monitor(
        'if (work.type === "turn" && work.attempt === 0) {\n        debounce(',
        'if (work.type === "turn" && work.attempt < 0) {\n        debounce(',
      ),
    ],
  },
  {
    name: "turn: answers of any epoch",
    edits: [
      conversation(
        "if (command.epoch !== undefined && command.epoch !== work.epoch) return false;",
      ),
    ],
  },
  {
    name: "turn: answers of any attempt",
    edits: [
      conversation(
        'return !("attempt" in command) || command.attempt === work.attempt;',
        "return true;",
      ),
    ],
  },
  {
    name: "turn: one that interrupts has the epoch of the one before",
    edits: [
      conversation(
        "    epoch: header.epoch + 1,\n    attempt: 0,",
        "    epoch: header.work ? header.epoch : header.epoch + 1,\n    attempt: 0,",
      ),
    ],
  },
  {
    name: "turn: what waits is forgotten at its end",
    edits: [
      conversation(
        "const open = dropUnanswerable(markCompactionDue(draft, agent, facts), facts);",
        "const open = withHeader(markCompactionDue(draft, agent, facts), { pending: [] });",
      ),
    ],
  },
  {
    name: "turn: a read that fails fails it",
    edits: [runner("readWhileAway(parts, { signal })(read)", "read()")],
  },
  {
    name: "runner: remembers nothing of what has ended",
    edits: [runner("      .finally(() => {\n        remember(name);", "      .finally(() => {")],
  },
  {
    name: "turn steps: of any epoch",
    edits: [
      conversation(
        "if (!work || !isAbout(work, command)) return undefined;",
        'if (!work || (command.type !== "turn_steps" && !isAbout(work, command))) return undefined;',
      ),
    ],
    by: "steps",
  },
  {
    name: "turn steps: of any attempt",
    edits: [
      conversation(
        'return !("attempt" in command) || command.attempt === work.attempt;',
        'return !("attempt" in command) || command.type === "turn_steps" || command.attempt === work.attempt;',
      ),
    ],
    by: "steps",
  },
  {
    name: "steering: a message heard by two attempts",
    edits: [
      conversation(
        'return !("attempt" in command) || command.attempt === work.attempt;',
        'return !("attempt" in command) || command.type === "turn_hearing" || command.attempt === work.attempt;',
      ),
    ],
  },
  {
    name: "steering: what was heard waits for the next turn as well",
    edits: [
      conversation(
        "const left = isAll ? withoutSubmitsTo(header.pending, turn.agent) : header.pending;",
        "const left = isAll ? header.pending : header.pending;",
      ),
    ],
  },
  {
    name: "steering: what was heard is forgotten where it waits for the next turn",
    edits: [
      conversation(
        "const isAll = pending?.upToSeq === newest;",
        "const isAll = pending !== undefined;",
      ),
    ],
  },
  {
    name: "steering: heard anew by each attempt, whichever steps are stored",
    edits: [taking("if (rows.isBehind(seq ?? Infinity)) return undefined;")],
  },
  {
    name: "steering: heard, and no row stored",
    edits: [conversation("    steps: { epoch, attempt, rows: [row] },\n")],
  },
  {
    name: "turn steps: stored, whether the record is or not",
    edits: [
      journal(
        "from ${fresh} fresh where ${when(sql`fresh.log_id`)}\n    on conflict (owner_id",
        "from ${fresh} fresh where true\n    on conflict (owner_id",
      ),
    ],
  },
  {
    name: "turn steps: not deleted with the answer",
    edits: [journal("if (has(({ stepsOver }) => stepsOver)) all.push(dropSteps(records, when));")],
    by: "steps",
  },
  {
    name: "turn steps: a turn that has some is dropped by a message",
    edits: [conversation("if (work.hasSteps) {", 'if (work.hasSteps && during === "queue") {')],
    by: "steps",
  },
  {
    name: "turn steps: what the owner refuses counts as stored",
    edits: [steps("if (done !== false) return;", "if (done !== null) return;")],
    by: "steps",
  },
  {
    name: "turn steps: a later attempt reads none",
    edits: [steps("let hasRows = attempt > 1;", "let hasRows = attempt > 1_000;")],
    by: "steps",
  },
  {
    name: "turn steps: of a turn that has ended, run again",
    edits: [
      steps(
        "rows.length === 0 && (await read(hasEnded))",
        "rows.length < 0 && (await read(hasEnded))",
      ),
    ],
    by: "steps",
  },
  {
    name: "turn steps: a late copy takes the place of a later row",
    edits: [journal("\n    where stored.seq < excluded.seq`;", "`;")],
    by: "steps",
  },
  {
    name: "compaction: stands for all that there is when it ends",
    edits: [
      conversation("throughSeq: work.toSeq,", "throughSeq: header.lastSeq,"),
      conversation("compactedSeq: work.toSeq,", "compactedSeq: header.lastSeq,"),
    ],
  },
  {
    name: "compaction: what waits is forgotten at its end",
    edits: [
      conversation(
        "pending: header.pending.map((each) => ({",
        "pending: header.pending.slice(9_999).map((each) => ({",
      ),
    ],
  },
  {
    name: "compaction: of what waits for its answer, too",
    edits: [
      conversation(
        "const range = summaryRangeOf(header);",
        "const range = summaryRangeOf({ ...header, pending: [] });",
      ),
    ],
  },
  {
    name: "hub: what is missing isn't fetched",
    edits: [hub("    if (this.fetching) return;\n", "    if (!this.fetching) return;\n")],
  },
  {
    name: "hub: what comes behind a gap is delivered",
    edits: [
      hub(
        "entries[to]!.seq === this.head + 1 && this.head < lastSeq) {\n      this.head++;",
        "entries[to]!.seq > this.head && this.head < lastSeq) {\n      this.head = entries[to]!.seq;",
      ),
    ],
  },
];

export const sessionMutations: readonly Mutation[] = list.map((each) => ({
  ...each,
  scenario: "sessions",
}));
