import { yearMs } from "../base/durations.ts";

/**
 * The options of a new task, or of a run of a flow. This is the one list of them: what code and the client
 * take is this type, and the checks of `enqueue`, the server's schema and the flags of the command line
 * follow the table below it.
 */
export type NewTaskOptions<Time = number | string, Dependency = string> = {
  /** Higher runs first, −100 to 100. Default 0. */
  priority?: number;
  /** How long before it may run. Default 0. */
  delayMs?: number;
  /** When it may run, as a date or in milliseconds since 1970. A time in the past means now. */
  runAt?: Time;
  /** How many attempts it gets. Default: the handler's `attempts`. */
  attempts?: number;
  /** The tenant that the task belongs to, if one store serves several. Default `default`. */
  tenant?: string;
  /**
   * Tasks with the same name and concurrency key share a limit in the whole fleet: the contract's
   * `concurrency`, or one set with `limits`, else one at a time. Default: the contract derives
   * the key from the input.
   */
  concurrencyKey?: string;
  /**
   * Identifies the task: enqueueing it again while the first is kept returns the first, unless one
   * of the options below changes that. At most 500 characters.
   */
  key?: string;
  /**
   * If the key is taken: return the `existing` task, `reject` with `duplicate_key`, or `replace`
   * the payload and options of the existing one if no pod runs it. Default `existing`.
   */
  onDuplicate?: "existing" | "reject" | "replace";
  /**
   * Whether a task holds its key as long as it is `kept`, or only while `unfinished`. Default
   * `kept`.
   */
  uniqueWhile?: "kept" | "unfinished";
  /** The key is free again this long after its task was created. Default: no such limit. */
  uniqueForMs?: number;
  /** Tasks that must have ended before this one runs, by id or as returned by `enqueue`. */
  after?: readonly Dependency[];
  /** If one of them fails or is cancelled, this task fails too, or runs anyway. Default `fail`. */
  afterFailed?: "fail" | "run";
};

export type TaskOptionName = keyof NewTaskOptions;

/** The form and the bounds of an option, and its description in the API and the help. */
export type TaskOption<Value = unknown> = { readonly description: string } & (
  | { readonly type: "number"; readonly min: number; readonly max: number }
  | { readonly type: "text"; readonly maxChars: number }
  | { readonly type: "choice"; readonly choices: readonly Value[] }
  | { readonly type: "time" }
  | { readonly type: "ids"; readonly max: number }
);

export const maxKeyChars = 500;
const maxDependencies = 1_000;

export const taskOptions = {
  priority: {
    type: "number",
    min: -100,
    max: 100,
    description: "Higher runs first. Default 0.",
  },
  delayMs: {
    type: "number",
    min: 0,
    max: yearMs,
    description: "The delay before it may run. Default 0.",
  },
  runAt: {
    type: "time",
    description: "When it may run: milliseconds since 1970, or RFC 3339. Not with `delayMs`.",
  },
  attempts: { type: "number", min: 1, max: 1_000, description: "How often it is tried." },
  tenant: {
    type: "text",
    maxChars: maxKeyChars,
    description: "Whose task it is. Default `default`.",
  },
  concurrencyKey: {
    type: "text",
    maxChars: maxKeyChars,
    description: "The key that its concurrency limit counts by.",
  },
  key: {
    type: "text",
    maxChars: maxKeyChars,
    description: "Names the task, so that it isn't stored twice.",
  },
  onDuplicate: {
    type: "choice",
    choices: ["existing", "reject", "replace"],
    description: "What to do where the key is taken. Default `existing`.",
  },
  uniqueWhile: {
    type: "choice",
    choices: ["kept", "unfinished"],
    description: "How long a task holds its key. Default `kept`.",
  },
  uniqueForMs: {
    type: "number",
    min: 1,
    max: yearMs,
    description: "The key is free again this long after its task was created.",
  },
  after: {
    type: "ids",
    max: maxDependencies,
    description: "Tasks that must have ended before this one runs.",
  },
  afterFailed: {
    type: "choice",
    choices: ["fail", "run"],
    description: "What to do where one of them fails. Default `fail`.",
  },
} as const satisfies {
  readonly [Name in TaskOptionName]-?: TaskOption<NonNullable<NewTaskOptions[Name]>>;
};

export const taskOptionNames = Object.keys(taskOptions) as TaskOptionName[];

// A claim counts running tasks, so a limit that is never reached would only cost.
export const limitRange = { min: 1, max: 10_000 } as const;

/** Stands for every name, in what is paused. */
export const allNames = "*";

/** What a limit of all tasks of a tenant is set and shown by. */
export function tenantScope(tenant: string): string {
  return `tenant/${tenant}`;
}
