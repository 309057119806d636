import { describe, expect, test } from "vitest";
import type { AgentFacts, Command, CommandDecision } from "./command.ts";
import { decideCommand } from "./decide.ts";
import { type Header, sessionStateOf } from "./header.ts";
import {
  compacted,
  plain,
  startConversation,
  type ConversationHarness,
} from "../contract/conversation-harness.ts";

type State =
  | "idle"
  | "waiting"
  | "running"
  | "steered"
  | "runnerless"
  | "without a permit"
  | "stopping"
  | "compacting"
  | "archived"
  | "deleted";

const states: Record<State, () => ConversationHarness> = {
  idle: () => answered(compacted),
  waiting: () => then(answered({ ...compacted, during: "merge" }), (talk) => talk.say("more")),
  running: () => then(answered(compacted), (talk) => talk.say("more")),
  steered: () =>
    then(answered({ ...compacted, steers: true }), (talk) => {
      talk.say("more");
      talk.say("and this");
    }),
  runnerless: () =>
    then(answered(compacted), (talk) => {
      talk.runner = null;
      talk.say("more");
      talk.runner = "pod-2";
    }),
  "without a permit": () =>
    then(states.running(), (talk) =>
      talk.ask({ type: "turn_waiting", epoch: 2, attempt: 1, count: 1 }),
    ),
  stopping: () => then(states.running(), (talk) => talk.ask({ type: "stop" })),
  compacting: () => then(answered(compacted), (talk) => talk.say("much", { tokens: 90 })),
  archived: () => then(answered(compacted), (talk) => talk.ask({ type: "archive" })),
  deleted: () => then(states.running(), (talk) => talk.ask({ type: "delete" })),
};

/** A user has sent a message and was answered, in a first turn. */
function answered(helper: AgentFacts): ConversationHarness {
  const talk = startConversation({ helper, other: compacted });
  talk.say("hello");
  if (talk.header.work?.attempt === 0) talk.ask({ type: "debounced", epoch: 1, upToSeq: 1 });
  talk.finish("good day");
  return talk;
}

function then(
  talk: ConversationHarness,
  go: (talk: ConversationHarness) => unknown,
): ConversationHarness {
  go(talk);
  return talk;
}

const said = { role: "user", author: "ann", parts: [], tokens: 1 } as const;
const target = { seq: 2, messageId: "id-2-1", author: "helper" };
const reply = { outcome: "completed", parts: [], tokens: 1 } as const;
type Numbers = { epoch: number; attempt: number };

/** Each is about the work that is under way, where there is one. */
const commands = {
  create: () => ({
    type: "create",
    sessionId: "s",
    tenant: "t",
    agents: ["helper", "other"],
    users: [],
    metadata: null,
  }),
  abandon: () => ({ type: "abandon", sessionId: "s", tenant: "t" }),
  append: () => ({ type: "append", clientId: "c", messageId: "c", ...said }),
  "append to another": () => ({
    type: "append",
    clientId: "c",
    messageId: "c",
    to: "other",
    ...said,
  }),
  "append by the system": () => ({
    type: "append",
    clientId: "c",
    messageId: "c",
    ...said,
    role: "system",
  }),
  tool_result: () => ({
    type: "tool_result",
    clientId: "c",
    author: "ann",
    messageId: target.messageId,
    results: [{ toolCallId: "call", output: 1 }],
    target,
    tokens: 1,
  }),
  regenerate: () => ({ type: "regenerate", clientId: "c", target }),
  stop: () => ({ type: "stop" }),
  turn_finished: (at) => ({ type: "turn_finished", ...at, reply }),
  turn_released: (at) => ({ type: "turn_released", ...at }),
  work_begun: (at) => ({ type: "work_begun", ...at }),
  turn_waiting: (at) => ({ type: "turn_waiting", ...at, count: 1 }),
  "turn_waiting no more": (at) => ({ type: "turn_waiting", ...at, count: 2 }),
  checkpoint: (at) => ({ type: "checkpoint", ...at, body: "{}" }),
  turn_steps: (at) => ({ type: "turn_steps", ...at, rows: [] }),
  turn_hearing: (at) => ({ type: "turn_hearing", ...at }),
  "turn_hearing of a message": (at) => ({
    type: "turn_hearing",
    ...at,
    heard: {
      seqs: [4],
      row: {
        key: "@taken[1]",
        seq: 1,
        kind: "done",
        inputHash: null,
        value: '{"seqs":[4]}',
        tookMs: 1,
        forgets: false,
      },
    },
  }),
  work_lost: (at) => ({ type: "work_lost", ...at }),
  stop_expired: ({ epoch }) => ({ type: "stop_expired", epoch }),
  debounced: ({ epoch }) => ({ type: "debounced", epoch, upToSeq: 3 }),
  compact: () => ({ type: "compact" }),
  compaction_finished: (at) => ({ type: "compaction_finished", ...at, parts: [], tokens: 1 }),
  compaction_failed: (at) => ({
    type: "compaction_failed",
    ...at,
    error: { code: "broken", message: "" },
  }),
  read: () => ({ type: "read", user: "ann", seq: 1 }),
  metadata: () => ({ type: "metadata", metadata: "1" }),
  members: () => ({ type: "members", addUsers: ["bob"] }),
  archive: () => ({ type: "archive" }),
  unarchive: () => ({ type: "unarchive" }),
  check_agents: () => ({ type: "check_agents", agents: ["other"] }),
  delete: () => ({ type: "delete" }),
} satisfies Record<string, (numbers: Numbers) => Command>;

/** What is stored, what is under way then, and what is done, in short. */
function told(before: Header, decision: CommandDecision): string {
  if (decision.type === "refused") return decision.code;
  const { header, entries, effects, answer } = decision;
  if (answer.done === false) return "nothing";
  const stored = entries.map(({ kind, role, outcome }) =>
    kind === "message" ? (outcome ?? role) : kind,
  );
  const done = effects.map((effect) =>
    effect.type === "abort_turn" ? `abort ${effect.keep ? "and keep" : "and drop"}` : effect.type,
  );
  const beside = ["read", "metadata", "checkpoint", "steps"].filter((name) => name in decision);
  const now = header === before ? "same" : atOf(header);
  return [
    ...stored.map((each) => `+${each}`),
    ...beside.map((each) => `=${each}`),
    now,
    ...done,
  ].join(", ");
}

function atOf({ status, work, pending }: Header): string {
  const waits = pending.length > 0 ? ` with ${pending.length} waiting` : "";
  const left = status === "active" ? "" : ` ${status}`;
  if (!work) return `idle${left}${waits}`;
  const stopping = work.type === "turn" && work.stopping ? " stopping" : "";
  const permit = sessionStateOf({ work }).state === "waiting" ? " without a permit" : "";
  return `${work.type} ${work.epoch}.${work.attempt}${permit}${stopping}${left}${waits}`;
}

/** What is left out changes nothing, and says so. */
const expected: Record<keyof typeof commands, Partial<Record<State, string>>> = {
  create: {
    idle: "same",
    waiting: "same",
    running: "same",
    steered: "same",
    runnerless: "same",
    "without a permit": "same",
    stopping: "same",
    compacting: "same",
    archived: "same",
    deleted: "conflict",
  },
  abandon: {},
  append: {
    idle: "+user, turn 2.1, start_turn",
    waiting: "+user, turn 2.0, debounce",
    running: "+user, turn 2.1 with 1 waiting",
    steered: "+user, turn 2.1 with 1 waiting",
    runnerless: "+user, turn 2.1 with 1 waiting",
    "without a permit": "+user, turn 2.1 without a permit with 1 waiting",
    stopping: "+user, turn 2.1 stopping with 1 waiting",
    compacting: "+user, compaction 2.1 with 1 waiting",
    archived: "conflict",
    deleted: "not_found",
  },
  "append to another": {
    idle: "+user, turn 2.1, start_turn",
    waiting: "+user, turn 2.0 with 1 waiting",
    running: "+user, turn 2.1 with 1 waiting",
    steered: "+user, turn 2.1 with 2 waiting",
    runnerless: "+user, turn 2.1 with 1 waiting",
    "without a permit": "+user, turn 2.1 without a permit with 1 waiting",
    stopping: "+user, turn 2.1 stopping with 1 waiting",
    compacting: "+user, compaction 2.1 with 2 waiting",
    archived: "conflict",
    deleted: "not_found",
  },
  "append by the system": {
    idle: "+system, idle",
    waiting: "+system, turn 2.0",
    running: "+system, turn 2.1",
    steered: "+system, turn 2.1 with 1 waiting",
    runnerless: "+system, turn 2.1",
    "without a permit": "+system, turn 2.1 without a permit",
    stopping: "+system, turn 2.1 stopping",
    compacting: "+system, compaction 2.1 with 1 waiting",
    archived: "conflict",
    deleted: "not_found",
  },
  tool_result: {
    idle: "+tool_result, turn 2.1, start_turn",
    waiting: "+tool_result, turn 2.0 with 1 waiting",
    running: "+tool_result, turn 2.1 with 1 waiting",
    steered: "+tool_result, turn 2.1 with 2 waiting",
    runnerless: "+tool_result, turn 2.1 with 1 waiting",
    "without a permit": "+tool_result, turn 2.1 without a permit with 1 waiting",
    stopping: "+tool_result, turn 2.1 stopping with 1 waiting",
    compacting: "+tool_result, compaction 2.1 with 2 waiting",
    archived: "conflict",
    deleted: "not_found",
  },
  regenerate: {
    idle: "turn 2.1, start_turn",
    waiting: "turn 2.0 with 1 waiting",
    running: "turn 2.1 with 1 waiting",
    steered: "turn 2.1 with 2 waiting",
    runnerless: "turn 2.1 with 1 waiting",
    "without a permit": "turn 2.1 without a permit with 1 waiting",
    stopping: "turn 2.1 stopping with 1 waiting",
    compacting: "compaction 2.1 with 2 waiting",
    archived: "conflict",
    deleted: "not_found",
  },
  stop: {
    waiting: "+stop, +stopped, idle",
    running: "+stop, turn 2.1 stopping, abort and keep",
    steered: "+stop, turn 2.1 stopping with 1 waiting, abort and keep",
    runnerless: "+stop, +stopped, idle",
    "without a permit": "+stop, turn 2.1 stopping, abort and keep",
    stopping: "same",
    deleted: "not_found",
  },
  turn_finished: {
    running: "+completed, idle",
    steered: "+completed, turn 3.1, start_turn",
    runnerless: "+completed, idle",
    "without a permit": "+completed, idle",
    stopping: "+completed, idle",
  },
  turn_released: {
    running: "turn 2.2, start_turn",
    steered: "turn 2.2 with 1 waiting, start_turn",
    runnerless: "turn 2.2, start_turn",
    "without a permit": "turn 2.2, start_turn",
    stopping: "turn 2.2 stopping",
    compacting: "compaction 2.2 with 1 waiting, start_compaction",
  },
  work_begun: {
    running: "same",
    steered: "same",
    runnerless: "same",
    "without a permit": "same",
    stopping: "same",
    compacting: "same",
  },
  turn_waiting: {
    running: "turn 2.1 without a permit",
    steered: "turn 2.1 without a permit with 1 waiting",
    "without a permit": "same",
    stopping: "same",
  },
  "turn_waiting no more": {
    running: "turn 2.1",
    steered: "turn 2.1 with 1 waiting",
    "without a permit": "turn 2.1",
    stopping: "same",
  },
  checkpoint: {
    running: "=checkpoint, same",
    steered: "=checkpoint, same",
    runnerless: "=checkpoint, same",
    "without a permit": "=checkpoint, same",
    stopping: "=checkpoint, same",
  },
  turn_steps: {
    running: "=steps, turn 2.1",
    steered: "=steps, turn 2.1 with 1 waiting",
    runnerless: "=steps, turn 2.1",
    "without a permit": "=steps, turn 2.1 without a permit",
    stopping: "=steps, turn 2.1 stopping",
  },
  turn_hearing: {
    running: "same",
    steered: "same",
    runnerless: "same",
    "without a permit": "same",
    stopping: "same",
  },
  "turn_hearing of a message": {
    running: "same",
    steered: "=steps, turn 2.1",
    runnerless: "same",
    "without a permit": "same",
    stopping: "same",
  },
  work_lost: {
    waiting: "turn 2.1, start_turn",
    running: "turn 2.2, start_turn",
    steered: "turn 2.2 with 1 waiting, start_turn",
    runnerless: "turn 2.1, start_turn",
    "without a permit": "turn 2.2, start_turn",
    stopping: "+stopped, idle",
    compacting: "compaction 2.2 with 1 waiting, start_compaction",
  },
  stop_expired: {
    stopping: "+stopped, idle",
  },
  debounced: {
    waiting: "turn 2.1, start_turn",
  },
  compact: {
    idle: "compaction 2.1, start_compaction",
    compacting: "same",
    archived: "conflict",
    deleted: "not_found",
  },
  compaction_finished: {
    compacting: "+summary, turn 3.1, start_turn",
  },
  compaction_failed: {
    compacting: "turn 3.1, start_turn",
  },
  read: {
    idle: "=read, same",
    waiting: "=read, same",
    running: "=read, same",
    steered: "=read, same",
    runnerless: "=read, same",
    "without a permit": "=read, same",
    stopping: "=read, same",
    compacting: "=read, same",
    archived: "=read, same",
    deleted: "not_found",
  },
  metadata: {
    idle: "=metadata, idle",
    waiting: "=metadata, turn 2.0",
    running: "=metadata, turn 2.1",
    steered: "=metadata, turn 2.1 with 1 waiting",
    runnerless: "=metadata, turn 2.1",
    "without a permit": "=metadata, turn 2.1 without a permit",
    stopping: "=metadata, turn 2.1 stopping",
    compacting: "=metadata, compaction 2.1 with 1 waiting",
    archived: "=metadata, idle archived",
    deleted: "not_found",
  },
  members: {
    idle: "idle",
    waiting: "turn 2.0",
    running: "turn 2.1",
    steered: "turn 2.1 with 1 waiting",
    runnerless: "turn 2.1",
    "without a permit": "turn 2.1 without a permit",
    stopping: "turn 2.1 stopping",
    compacting: "compaction 2.1 with 1 waiting",
    archived: "idle archived",
    deleted: "not_found",
  },
  archive: {
    idle: "idle archived",
    waiting: "+stopped, idle archived",
    running: "turn 2.1 stopping archived, abort and keep",
    steered: "turn 2.1 stopping archived with 1 waiting, abort and keep",
    runnerless: "+stopped, idle archived",
    "without a permit": "turn 2.1 stopping archived, abort and keep",
    stopping: "turn 2.1 stopping archived",
    compacting: "+stopped, idle archived, abort and drop",
    deleted: "not_found",
  },
  unarchive: {
    archived: "idle",
    deleted: "not_found",
  },
  check_agents: {
    idle: "same",
    waiting: "same",
    running: "same",
    steered: "same",
    runnerless: "same",
    "without a permit": "same",
    stopping: "same",
    compacting: "same",
    archived: "same",
    deleted: "not_found",
  },
  delete: {
    idle: "idle deleted",
    waiting: "idle deleted",
    running: "idle deleted, abort and drop",
    steered: "idle deleted, abort and drop",
    runnerless: "idle deleted",
    "without a permit": "idle deleted, abort and drop",
    stopping: "idle deleted, abort and drop",
    compacting: "idle deleted, abort and drop",
    archived: "idle deleted",
  },
};

describe.each(Object.keys(commands) as (keyof typeof commands)[])("%s", (name) => {
  test.each(Object.keys(states) as State[])("in a session that is %s", (state) => {
    const talk = states[state]();
    const { header } = talk;
    const { epoch, attempt } = header.work ?? { epoch: header.epoch, attempt: 1 };
    const decision = talk.ask(commands[name]({ epoch, attempt }));
    expect(told(header, decision)).toBe(expected[name][state] ?? "nothing");
  });
});

const aboutWork = [
  "turn_finished",
  "turn_released",
  "work_begun",
  "turn_waiting",
  "checkpoint",
  "turn_steps",
  "turn_hearing",
  "turn_hearing of a message",
  "work_lost",
  "stop_expired",
  "debounced",
  "compaction_finished",
  "compaction_failed",
] as const;

describe.each(aboutWork)("a %s", (name) => {
  test.each(Object.keys(states) as State[])(
    "of another epoch or attempt changes nothing in a session that is %s",
    (state) => {
      const talk = states[state]();
      const { epoch, attempt } = talk.header.work ?? { epoch: talk.header.epoch, attempt: 1 };
      for (const by of [-1, 1]) {
        const others = [{ epoch: epoch + by, attempt }];
        if ("attempt" in commands[name]({ epoch, attempt })) {
          others.push({ epoch, attempt: attempt + by });
        }
        for (const other of others) {
          expect(told(talk.header, talk.ask(commands[name](other)))).toBe("nothing");
        }
      }
    },
  );
});

test("a session that isn't there can only be created or given up", () => {
  const facts = { nowMs: 0, newId: () => "id", agent: () => plain, runnerFor: () => null };
  for (const [name, commandOf] of Object.entries(commands)) {
    const decision = decideCommand(undefined, commandOf({ epoch: 1, attempt: 1 }), facts);
    const code = decision.type === "refused" ? decision.code : "none";
    expect(code).toBe(["create", "abandon"].includes(name) ? "none" : "not_found");
  }
});
