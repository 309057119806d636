import type { deadLetterSpecs } from "../../server/api/dead-letters.schema.ts";
import type { taskSpecs } from "../../server/api/tasks.schema.ts";
import type { whySpecs } from "../../server/api/waiting/why.schema.ts";
import { type NewAct, type Answered, part, readAnswer, send } from "../api.ts";

/** What the pages of tasks and of failures ask of the server and do there. */

export type VerdictFacts = Answered<typeof whySpecs.get>["verdict"];
export type WhyReasonFacts = VerdictFacts["reasons"][number];

export const tasksApi = {
  why: async (taskId: string, signal: AbortSignal) =>
    (await readAnswer<Answered<typeof whySpecs.get>>(`v1/tasks/${part(taskId)}/why`, {}, signal))
      .verdict,
  /** Stores a task. The input is JSON text, of which no digit may be lost on the way. */
  enqueue: (
    task: { readonly name: string; readonly input: string; readonly options: object },
    act: NewAct,
  ) =>
    send<Answered<typeof taskSpecs.enqueue>>(
      "v1/tasks",
      act,
      `{"name":${JSON.stringify(task.name)},"input":${task.input},"options":${JSON.stringify(task.options)}}`,
    ),
  changeGroup: (
    group: string,
    change: "resolve" | "ignore" | "reopen",
    { untilMs, ...act }: NewAct & { readonly untilMs?: number | undefined },
  ) =>
    send<Answered<typeof deadLetterSpecs.resolve>>(
      `v1/dlq/groups/${part(group)}/${change}`,
      act,
      untilMs === undefined ? undefined : { untilMs },
    ),
};
