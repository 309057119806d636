import fc from "fast-check";
import { expect, test } from "vitest";
import type { AgentFacts, Command, DecidedEntry, CommandDecision, Reply } from "./command.ts";
import { type Header, sessionStateOf, type Turn } from "./header.ts";
import { isLater, sameState, headerViewOf } from "../delivery/view.ts";
import {
  startConversation,
  type ConversationHarness,
  textParts,
} from "../contract/conversation-harness.ts";

const names = ["a", "b", "c"];

const anyDuring: fc.Arbitrary<Pick<AgentFacts, "during" | "steers">> = fc.constantFrom(
  { during: "queue" },
  { during: "interrupt" },
  { during: "merge" },
  { during: "queue", steers: true },
);

const anyPolicy: fc.Arbitrary<Pick<AgentFacts, "attempts" | "compaction">> = fc.record({
  attempts: fc.integer({ min: 1, max: 3 }),
  compaction: fc.option(
    fc.record({
      when: fc.constantFrom("auto", "auto", "manual"),
      tokenBudget: fc.constantFrom(20, 50, 200),
      triggerRatio: fc.constantFrom(0.5, 0.7, 1),
    }),
    { nil: null },
  ),
});

const anyAgent: fc.Arbitrary<AgentFacts> = fc
  .tuple(anyDuring, anyPolicy)
  .map(([during, policy]) => ({ ...during, ...policy }));

type Op =
  | "say"
  | "note"
  | "tool_result"
  | "regenerate"
  | "finish"
  | "stale"
  | "lose"
  | "begin"
  | "release"
  | "fail"
  | "stop"
  | "expire"
  | "debounce"
  | "checkpoint"
  | "steps"
  | "hear"
  | "permit"
  | "compact"
  | "members"
  | "archive"
  | "unarchive"
  | "delete"
  | "wake"
  | "unwake"
  | "fire"
  | "runner";

// What people do often comes often, so that most of it meets something under way.
const anyOp: fc.Arbitrary<{ op: Op; pick: number }> = fc.record({
  op: fc.oneof(
    { weight: 8, arbitrary: fc.constant<Op>("say") },
    { weight: 6, arbitrary: fc.constant<Op>("finish") },
    { weight: 3, arbitrary: fc.constantFrom<Op[]>("tool_result", "regenerate", "stop", "stale") },
    { weight: 3, arbitrary: fc.constantFrom<Op[]>("lose", "begin", "release", "fail", "debounce") },
    {
      weight: 2,
      arbitrary: fc.constantFrom<Op[]>("expire", "checkpoint", "steps", "compact", "note"),
    },
    { weight: 3, arbitrary: fc.constantFrom<Op[]>("permit", "hear") },
    { weight: 3, arbitrary: fc.constantFrom<Op[]>("wake", "fire", "fire", "unwake") },
    { weight: 1, arbitrary: fc.constantFrom<Op[]>("runner", "runner", "members") },
    { weight: 1, arbitrary: fc.constantFrom<Op[]>("archive", "unarchive", "unarchive", "delete") },
  ),
  pick: fc.nat(1_000),
});

/** What was asked of an agent, to be found answered later. */
type Question = { readonly seq: number; readonly agent: string; readonly isSubmit: boolean };

/** A talk with what an onlooker writes down, who knows nothing of how decisions are made. */
type Watched = {
  readonly talk: ConversationHarness;
  readonly questions: Question[];
  /** What each turn was seen to answer. */
  readonly turns: Map<number, Turn>;
  ask(command: Command): CommandDecision;
  play(op: Op, pick: number): void;
};

function watch(agents: Readonly<Record<string, AgentFacts>>): Watched {
  const talk = startConversation(agents);
  const questions: Question[] = [];
  const turns = new Map<number, Turn>();
  const heard = new Set<number>();
  /** How often each attempt was said to begin or end to wait for a permit. */
  const waits = new Map<string, number>();
  let asked = 0;

  function ask(command: Command): CommandDecision {
    const before = talk.header;
    const stored = talk.entries.map((entry) => entry);
    const decision = talk.ask(command);
    const { header, entries } = talk;
    expect(entries.slice(0, stored.length)).toEqual(stored);
    if (command.type === "turn_waiting" && isNow(before, command) && before.work?.runner) {
      const { epoch, attempt, count } = command;
      waits.set(`${epoch}.${attempt}`, Math.max(count, waits.get(`${epoch}.${attempt}`) ?? 0));
    }
    const { work } = header;
    const count = work ? (waits.get(`${work.epoch}.${work.attempt}`) ?? 0) : 0;
    const isWaiting = work?.type === "turn" && !work.stopping && count % 2 === 1;
    expect(sessionStateOf(header).state === "waiting").toBe(isWaiting);
    // Clients that follow tell by the numbers alone which of two states is the later one.
    const [was, is] = [headerViewOf(before, "i"), headerViewOf(header, "i")];
    if (!sameState(was, is)) expect([isLater(is, was), isLater(was, is)]).toEqual([true, false]);
    if (header.work?.type === "turn") turns.set(header.work.epoch, header.work);
    // What comes from elsewhere than the work under way has no effect at all.
    const isAboutWork = "epoch" in command && command.epoch !== undefined;
    if (before.status !== "deleted" && isAboutWork && !isNow(before, command)) {
      expect(decision).toMatchObject({ header: before, entries: [], effects: [] });
      expect(decision).toMatchObject({ answer: { done: false } });
    }
    if (before.status === "deleted") expect(header).toBe(before);
    if (decision.type === "decided") {
      for (const { epoch } of decision.entries) {
        if (epoch !== undefined) expect(epoch).toBe(before.work?.epoch);
      }
    }
    // The last summary counts as what it says, and those before it not at all.
    const counted = entries.filter(({ seq, kind }) =>
      kind === "summary" ? seq === header.summarySeq : seq > header.compactedSeq,
    );
    expect(header.tokens).toBe(counted.reduce((sum, { tokens }) => sum + tokens, 0));
    if (header.status !== "deleted") {
      const open = questions.filter((question) => !isAnswered(question, entries, turns));
      for (const { seq } of open) expect(seq).toBeGreaterThan(header.compactedSeq);
      if (open.length > 0) expect(header.work).not.toBeNull();
    }
    return decision;
  }

  function play(op: Op, pick: number): void {
    const { header, entries } = talk;
    const { epoch, attempt } = header.work ?? { epoch: header.epoch, attempt: 1 };
    const agent = header.agents[pick % (header.agents.length + 1)];
    const answers = entries.filter(({ role, kind }) => role === "assistant" && kind === "message");
    const old = answers[pick % Math.max(1, answers.length)];
    const newest = entries.findLast(({ messageId }) => messageId === old?.messageId);
    const target = newest && { ...newest, author: newest.author };
    const clientId = `client-${++asked}`;
    switch (op) {
      case "say":
      case "note": {
        const role = op === "say" ? "user" : "system";
        const decision = ask({
          type: "append",
          clientId,
          messageId: clientId,
          author: "ann",
          role,
          parts: textParts("text"),
          tokens: pick % 13,
          ...(agent !== undefined && { to: agent }),
        });
        const to = agent ?? header.agents[0];
        if (decision.type === "decided" && role === "user" && to !== undefined) {
          questions.push({ seq: decision.answer.seq!, agent: to, isSubmit: true });
        }
        return;
      }
      case "tool_result": {
        if (!target) return;
        const { messageId, author } = target;
        const said = { clientId, author: "ann", messageId, results: [], target, tokens: 2 };
        const decision = ask({ type: "tool_result", ...said });
        if (decision.type === "decided") {
          questions.push({ seq: decision.answer.seq!, agent: author, isSubmit: false });
        }
        return;
      }
      case "regenerate":
        if (target) ask({ type: "regenerate", clientId, target });
        return;
      case "finish":
        return finish(pick);
      case "stale": {
        const reply = replyOf(pick);
        const other =
          pick % 2 === 0 ? { epoch: epoch - 1, attempt } : { epoch, attempt: attempt + 1 };
        ask({ type: "turn_finished", ...other, reply });
        ask({ type: "checkpoint", ...other, body: "{}" });
        ask({ type: "turn_steps", ...other, rows: [] });
        ask({ type: "turn_hearing", ...other });
        ask({ type: "compaction_finished", ...other, parts: [], tokens: 1 });
        ask({ type: "work_lost", ...other });
        ask({ type: "work_begun", ...other });
        ask({ type: "turn_waiting", ...other, count: 1 + (pick % 5) });
        return;
      }
      case "lose": {
        const checkpoint = pick % 3 === 0 ? replyOf(pick) : undefined;
        ask({ type: "work_lost", epoch, attempt, ...(checkpoint && { checkpoint }) });
        return;
      }
      case "begin":
        return void ask({ type: "work_begun", epoch, attempt });
      case "release":
        return void ask({ type: "turn_released", epoch, attempt });
      case "fail": {
        const error = { code: "broken", message: "the compactor is broken" };
        ask({ type: "compaction_failed", epoch, attempt, error });
        return;
      }
      case "stop":
        return void ask({ type: "stop", ...(pick % 2 === 0 && { epoch }) });
      case "expire":
        return void ask({ type: "stop_expired", epoch });
      case "debounce":
        return void ask({ type: "debounced", epoch, upToSeq: header.lastSeq - (pick % 2) });
      case "checkpoint":
        return void ask({ type: "checkpoint", epoch, attempt, body: "{}" });
      case "steps":
        return void ask({ type: "turn_steps", epoch, attempt, rows: [] });
      case "hear":
        return hear(pick);
      case "permit":
        return void ask({ type: "turn_waiting", epoch, attempt, count: 1 + (pick % 5) });
      case "wake": {
        const key = `key-${pick % 3}`;
        const taskId = `task-${asked}`;
        const cron = pick % 2 === 0 ? { cron: "0 * * * *" } : {};
        const to = agent === undefined ? {} : { agent };
        const wake = { clientId, author: "ann", key, atMs: asked, taskId, ...cron, ...to };
        return void ask({ type: "wake_set", ...wake });
      }
      case "unwake": {
        const wake = header.wakes?.[pick % 2];
        const { key = "key-0", setSeq = 1 } = wake ?? {};
        return void ask({ type: "wake_cancel", key, setSeq, author: "ann" });
      }
      case "fire":
        return fire(pick);
      case "compact":
        return void ask({ type: "compact", ...(agent !== undefined && { agent }) });
      case "members":
        return void ask({ type: "members", agents: names.slice(0, 1 + (pick % 3)) });
      case "runner":
        talk.runner = pick % 3 === 0 ? null : `pod-${pick % 3}`;
        return;
      case "archive":
      case "unarchive":
      case "delete":
        return void ask({ type: op });
    }
  }

  /** As the task of a wake does, which may run again after it was done. */
  function fire(pick: number): void {
    const wake = talk.header.wakes?.[pick % 2];
    if (!wake) return;
    const { key, taskId, cron } = wake;
    const next = { taskId: `task-${++asked}`, atMs: asked };
    const command = { type: "wake_fired", key, taskId, ...(cron && { next }) } as const;
    const before = asksOf(talk.header, key);
    const isMember = talk.header.agents.includes(wake.agent);
    const decision = ask(command);
    if (decision.type === "refused" || talk.header.status !== "active") return;
    // Asked now or next, or seen to have failed; and then not a second time.
    if (isMember) expect(asksOf(talk.header, key)).toBe(Math.max(before, 1));
    else expect(talk.entries.at(-1)).toMatchObject({ outcome: "failed" });
    expect(ask(command)).toMatchObject({ entries: [], effects: [], answer: { done: false } });
  }

  function hear(pick: number): void {
    const { epoch, attempt } = talk.header.work ?? { epoch: talk.header.epoch, attempt: 1 };
    const looked = ask({ type: "turn_hearing", epoch, attempt });
    const waiting = (looked.type === "decided" && looked.answer.steering) || [];
    if (waiting.length === 0) return;
    const { agent } = talk.header.work!;
    expect(waiting.filter((seq) => heard.has(seq))).toEqual([]);
    for (const seq of waiting) {
      expect(questions).toContainEqual({ seq, agent, isSubmit: true });
    }
    const seqs = waiting.slice(0, 1 + (pick % waiting.length));
    for (const seq of seqs) heard.add(seq);
    const key = `@taken[${heard.size}]`;
    const numbers = { seq: heard.size, tookMs: 1, forgets: false, inputHash: null };
    const row = { key, kind: "done", value: JSON.stringify({ seqs }), ...numbers } as const;
    const command = { type: "turn_hearing", epoch, attempt, heard: { seqs, row } } as const;
    expect(ask(command)).toMatchObject({ answer: { steering: seqs }, steps: { rows: [row] } });
    const { header } = talk;
    // Sent again, because its outcome wasn't known, it is the same.
    const again = ask(command);
    expect(again).toMatchObject({ header, answer: { steering: seqs } });
    expect(again).not.toHaveProperty("steps");
    // Nothing is left for the next turn but what it hasn't heard.
    const left = header.pending.filter((each) => each.agent === agent && each.trigger === "submit");
    expect(left.length).toBe(
      questions.some((each) => each.agent === agent && each.isSubmit && each.seq > seqs.at(-1)!)
        ? 1
        : 0,
    );
  }

  function finish(pick: number): void {
    const { work } = talk.header;
    if (!work) return;
    const { epoch, attempt, type } = work;
    if (type === "turn") ask({ type: "turn_finished", epoch, attempt, reply: replyOf(pick) });
    else ask({ type: "compaction_finished", epoch, attempt, parts: [], tokens: pick % 30 });
  }

  return { talk, questions, turns, ask, play };
}

/** How often an agent is being asked by a wake of this key, or will be. */
function asksOf({ work, pending }: Header, key: string): number {
  const turns = [...(work?.type === "turn" ? [work] : []), ...pending];
  return turns.filter(({ wake }) => wake?.key === key).length;
}

function isNow({ work }: Header, command: { epoch?: number; attempt?: number }): boolean {
  if (!work || work.epoch !== command.epoch) return false;
  return command.attempt === undefined || command.attempt === work.attempt;
}

function replyOf(pick: number): Reply {
  const outcome = (["completed", "completed", "stopped", "cut", "failed"] as const)[pick % 5]!;
  return { outcome, parts: textParts(pick % 4 === 0 ? "" : "text"), tokens: pick % 17 };
}

/** Something by the agent stands behind it that was made knowing it, or says that nothing will be. */
function isAnswered(
  { seq, agent, isSubmit }: Question,
  entries: readonly DecidedEntry[],
  turns: ReadonlyMap<number, Turn>,
): boolean {
  return entries.some((entry) => {
    if (entry.seq <= seq || entry.author !== agent || entry.role !== "assistant") return false;
    if (entry.epoch === undefined) return true;
    const turn = turns.get(entry.epoch)!;
    if ((turn.steering?.heardSeq ?? 0) >= seq) return true;
    return turn.upToSeq >= seq && (!isSubmit || turn.trigger === "submit");
  });
}

function drain({ talk, play, ask }: Watched, pick: number): void {
  talk.runner = "pod-last";
  // Each turn may be followed by a compaction, and each that waits by a turn.
  for (let steps = 0; talk.header.work; steps++) {
    expect(steps).toBeLessThan(60);
    const { work, lastSeq } = talk.header;
    const { epoch, attempt } = work;
    if (work.type === "compaction" && (pick + steps) % 3 === 0) play("fail", 0);
    else if (attempt === 0) ask({ type: "debounced", epoch, upToSeq: (work as Turn).upToSeq });
    else if (work.runner === null) ask({ type: "work_lost", epoch, attempt });
    else play("finish", pick + steps);
    expect(talk.header.lastSeq).toBeGreaterThanOrEqual(lastSeq);
  }
}

const anyTalk = fc.tuple(
  fc.tuple(anyAgent, anyAgent, anyAgent),
  fc.array(anyOp, { maxLength: 60 }),
  fc.nat(100),
);

function watchAny(judge: (watched: Watched) => void): void {
  fc.assert(
    fc.property(anyTalk, ([[a, b, c], ops, pick]) => {
      const watched = watch({ a, b, c });
      for (const each of ops) watched.play(each.op, each.pick);
      drain(watched, pick);
      judge(watched);
    }),
    { numRuns: 200 },
  );
}

test("whatever commands come in whatever order, every message is answered or seen to have failed", () => {
  watchAny(({ talk, questions, turns }) => {
    const isDeleted = talk.header.status === "deleted";
    const open = questions.filter((question) => !isAnswered(question, talk.entries, turns));
    expect(isDeleted ? [] : open).toEqual([]);
  });
});

test("a turn stores one reply or none, and epochs are stored in their order", () => {
  watchAny(({ talk }) => {
    const epochs = talk.entries.flatMap(({ epoch }) => epoch ?? []);
    expect(epochs).toEqual([...new Set(epochs)].sort((one, other) => one - other));
  });
});

test("an entry replaces the newest of the same message, by the same agent", () => {
  watchAny(({ talk: { entries } }) => {
    for (const { seq, replaces, messageId, author } of entries) {
      if (replaces === undefined) continue;
      const earlier = entries.filter((each) => each.seq < seq && each.messageId === messageId);
      expect(earlier.at(-1)).toMatchObject({ seq: replaces, author, role: "assistant" });
    }
  });
});
