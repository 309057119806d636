/** The fences of the steps of tasks, and how each is taken out. */
import { type Mutation, of } from "./mutation.ts";

const statements = of("tasks/sql");
const steps = of("steps/steps");
const scopes = of("steps/scope");
const attempts = of("tasks/run/steps");
const agents = of("durable");

export const stepMutations: readonly Mutation[] = [
  {
    name: "steps: a resend is stored once more",
    edits: [
      statements("\n    where stored.seq < excluded.seq\n    ${returning", "\n    ${returning"),
    ],
  },
  {
    name: "steps: the journal isn't read by later attempts",
    edits: [attempts("token > firstToken", "token < firstToken")],
  },
  {
    name: "steps: at most once, without storing that it begins",
    edits: [
      steps(
        'await store(call, { kind: "begun", value: "null", startedMs: nowMs });',
        "void nowMs;",
      ),
    ],
    by: "T18",
  },
  {
    name: "steps: signals that stay untaken",
    edits: [statements("set taken = 1 from ${used} used", "set taken = 0 from ${used} used")],
    by: "T19",
  },
  {
    name: "steps: deaths count from the start",
    edits: [
      statements(
        "case when ${hasStepped(sql`${task}`)} then 0 else ${task}.deaths end",
        "${task}.deaths",
      ),
    ],
  },
  {
    name: "steps: failures count from the start",
    edits: [
      statements(
        "retry_count = case when done.stepped = 1 then 0 else retry_count end + done.counted",
        "retry_count = retry_count + done.counted",
      ),
    ],
  },
  {
    name: "steps: of any claim",
    edits: [
      statements(
        "where task.claim_token = given.token and task.run_seq = given.run_seq",
        "where task.run_seq = given.run_seq",
      ),
    ],
    by: "T17",
  },
  {
    name: "steps: rows within one that isn't stored are forgotten",
    edits: [
      statements(
        "join ${journal} stored on stored.owner_id = given.task_id and stored.part = given.part\n        and stored.key = given.key and stored.token = given.token and stored.seq = given.seq\n      join ${journal} inner_step",
        "join ${journal} inner_step",
      ),
    ],
    by: "T16",
  },
  {
    // A task that is to be parked waits for its steps as well, so that both are taken out.
    name: "steps: parked while one runs",
    edits: [
      steps("() => busy === 0 && storing === 0", "() => storing === 0"),
      scopes("while (scope.open.size > 0) {", "while (scope.open.size > 1_000) {"),
    ],
    by: "T19",
  },
  {
    name: "agents: a budget counts what this attempt has called",
    edits: [
      agents(
        "if (counts) meter.add(storedUsage(stored));",
        "if (fresh !== undefined) meter.add(storedUsage(stored));",
      ),
    ],
    by: "T20",
  },
  {
    name: "agents: tools begin before their call is stored",
    edits: [agents("holding ||= startsTool(part) || part.type ===", "holding ||= part.type ===")],
    by: "T20",
  },
];
