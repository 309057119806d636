import { expectTypeOf, test } from "vitest";
import type { z } from "zod";
import type { Doing, RunView as ServerRun } from "../flows/rows.ts";
import type { RunError } from "../flows/decide/run.ts";
import type { Task, TaskError } from "../tasks/rows.ts";
import type { runSpecs } from "../server/api/runs.schema.ts";
import type { enqueueOptions, taskSchema } from "../server/api/tasks.schema.ts";
import type { AgentView as ServerAgent } from "../sessions/agents/stored-agents.ts";
import type {
  AgentView,
  EnqueueOptions,
  ErrorView,
  RunDoing,
  RunView,
  StartRunOptions,
  TaskView,
} from "./index.ts";

/** The client may not import what servers are made of, so it says again what they send. */

type Status = TaskView["status"];
type Of<All, Wanted extends Status> = Extract<All, { status: Wanted }>;
/** What the server sends of what the client names. A name that it doesn't know is `never`. */
type Sent<Server, View> = {
  readonly [Name in keyof View]: Name extends keyof Server ? Server[Name] : never;
};
/** As plain fields, without the error, which is looked at by itself. */
type Plain<View> = { readonly [Name in Exclude<keyof View, "error">]: View[Name] };
type Held<Wanted extends Status> = Plain<Sent<Of<Task, Wanted>, Of<TaskView, Wanted>>>;
type Shown<Wanted extends Status> = Plain<Of<TaskView, Wanted>>;

test("a task's view shows of each status what the server sends in it", () => {
  expectTypeOf<Status>().toEqualTypeOf<Task["status"]>();
  expectTypeOf<Shown<"pending">>().toEqualTypeOf<Held<"pending">>();
  expectTypeOf<Shown<"claimed">>().toEqualTypeOf<Held<"claimed">>();
  expectTypeOf<Shown<"completed">>().toEqualTypeOf<Held<"completed">>();
  expectTypeOf<Shown<"failed">>().toEqualTypeOf<Held<"failed">>();
  expectTypeOf<Shown<"cancelled">>().toEqualTypeOf<Held<"cancelled">>();
  expectTypeOf<Task>().toExtend<TaskView>();
  expectTypeOf<keyof TaskView>().toExtend<keyof z.output<typeof taskSchema>>();
});

test("a task's error is there where the server sends one", () => {
  type Where<Wanted extends Status> = "error" extends keyof Of<Task, Wanted>
    ? null extends Of<Task, Wanted>["error" & keyof Of<Task, Wanted>]
      ? ErrorView | null
      : ErrorView
    : undefined;
  expectTypeOf<Of<TaskView, "pending">["error"]>().toEqualTypeOf<Where<"pending">>();
  expectTypeOf<Of<TaskView, "claimed">["error"]>().toEqualTypeOf<Where<"claimed">>();
  expectTypeOf<Of<TaskView, "failed">["error"]>().toEqualTypeOf<Where<"failed">>();
  expectTypeOf<Of<TaskView, "cancelled">["error"]>().toEqualTypeOf<Where<"cancelled">>();
  expectTypeOf<Where<"completed">>().toEqualTypeOf<undefined>();
  expectTypeOf<Of<TaskView, "completed">>().not.toHaveProperty("error");
});

test("a run's view shows what the server sends, and of what it does all there is", () => {
  expectTypeOf<Plain<RunView>>().toEqualTypeOf<Plain<Sent<ServerRun, RunView>>>();
  expectTypeOf<RunView["error"]>().toEqualTypeOf<ErrorView | null>();
  expectTypeOf<RunDoing>().toEqualTypeOf<Doing>();
  expectTypeOf<ServerRun>().toExtend<RunView>();
  type Answer = z.output<(typeof runSpecs.get.answers)[200]>["run"];
  expectTypeOf<keyof RunView>().toExtend<keyof Answer>();
});

test("an error has what errors of tasks and runs have", () => {
  expectTypeOf<{ readonly [Name in keyof ErrorView]: ErrorView[Name] }>().toEqualTypeOf<{
    readonly [Name in keyof RunError]: RunError[Name];
  }>();
  expectTypeOf<TaskError>().toExtend<ErrorView>();
});

test("an agent is of a source that servers know", () => {
  expectTypeOf<AgentView>().toEqualTypeOf<{
    readonly [Name in keyof AgentView]: ServerAgent[Name];
  }>();
});

test("options of an enqueue or a start are what the server takes", () => {
  type Given<Options> = {
    [Name in keyof Options]-?: Exclude<Options[Name], undefined> extends readonly (infer Item)[]
      ? readonly Item[]
      : Exclude<Options[Name], undefined>;
  };
  expectTypeOf<Given<EnqueueOptions>>().toEqualTypeOf<Given<z.input<typeof enqueueOptions>>>();
  type Start = NonNullable<z.input<(typeof runSpecs.start)["body"]>["options"]>;
  expectTypeOf<Given<StartRunOptions>>().toEqualTypeOf<Given<Start>>();
});
