/** The fences of the steps of tasks, and how each is taken out. */
import { type Mutation, of } from "./mutation.ts";

const statements = of("tasks/sql");
const steps = of("steps/steps");
const attempts = of("tasks/run/steps");

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
];
