import type { z } from "zod";
import { FlotillaError, type ErrorCode, messageOf } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";
import type { deadLetterSpecs } from "../server/api/dead-letters.schema.ts";
import type { fleetSpecs } from "../server/api/fleet.schema.ts";
import type { limitSpecs } from "../server/api/limits.schema.ts";
import type { taskSpecs } from "../server/api/tasks.schema.ts";
import { newActId, request } from "./browser.ts";
import { parseExact } from "./facts/exact-json.ts";
import { shownFleet } from "./facts/fleet/fleet.ts";

/** All that the dashboard asks of the server and does there, with the types of the routes themselves. */

type Spec = { readonly answers: Readonly<Record<number, z.ZodType>> };
export type Answered<Of extends Spec> = z.output<Of["answers"][keyof Of["answers"] & number]>;

export type HomeFacts = Answered<typeof fleetSpecs.home>;
export type DepthFacts = Answered<typeof fleetSpecs.depth>["names"];
/** How a task that waits stands, as the counts have it. */
type PendingState = Exclude<keyof DepthFacts[string], "running" | "failed" | "oldestMs" | "paused">;
export type PauseView = Answered<typeof limitSpecs.paused>["paused"][number];
export type TaskListPage = Answered<typeof taskSpecs.list>;
export type TaskFacts = TaskListPage["tasks"][number];
export type TaskWhole = Answered<typeof taskSpecs.get>;
export type TaskEventFacts = TaskWhole["events"][number];
export type StepPage = Answered<typeof taskSpecs.steps>;
export type StepFacts = StepPage["steps"][number];
export type ErrorGroupPage = Answered<typeof deadLetterSpecs.groups>;
export type ErrorGroupFacts = ErrorGroupPage["groups"][number];
export type RedriveFacts = Answered<typeof deadLetterSpecs.getRedrive>;

/** The filter of a list, as it is in the address: all of it is text, which the server checks. */
export type TaskQuery = {
  readonly status?: TaskFacts["status"] | undefined;
  readonly state?: PendingState | undefined;
} & {
  readonly [
    Field in
      | "name"
      | "tenant"
      | "key"
      | "scope"
      | "pod"
      | "group"
      | "session"
      | "run"
      | "at"
      | "version"
      | "setAside"
      | "ids"
      | "from"
      | "to"
      | "sinceMs"
      | "untilMs"
      | `payload.${string}`
  ]?: string | undefined;
};

export type ErrorGroupQuery = {
  readonly name?: string | undefined;
  readonly state?: string | undefined;
};

/** Failed tasks that an act is about. */
export type FailedSelection = { readonly group: string } | { readonly taskId: string };

type Query = Readonly<Record<string, string | number | undefined>>;
export type NewAct = { readonly actId: string };

/** So many entries a page of a list has. */
export const pageSize = 100;

export const api = {
  home: (signal: AbortSignal) => readAnswer<HomeFacts>("", {}, signal),
  depth: async (signal: AbortSignal) =>
    (await readAnswer<Answered<typeof fleetSpecs.depth>>("v1/depth", {}, signal)).names,
  fleet: async (signal: AbortSignal) =>
    shownFleet(await readAnswer<Answered<typeof fleetSpecs.fleet>>("v1/fleet", {}, signal)),
  pauses: async (signal: AbortSignal) =>
    (await readAnswer<Answered<typeof limitSpecs.paused>>("v1/pauses", {}, signal)).paused,
  tasks: (filter: TaskQuery, cursor: string | undefined, signal: AbortSignal) =>
    readAnswer<TaskListPage>("v1/tasks", { ...filter, cursor, limit: pageSize }, signal),
  task: (taskId: string, signal: AbortSignal) =>
    readAnswer<TaskWhole>(`v1/tasks/${part(taskId)}`, {}, signal),
  /** Those behind a number; the first ones come with the task. */
  taskEvents: (taskId: string, after: number, signal: AbortSignal) =>
    readAnswer<Answered<typeof taskSpecs.events>>(
      `v1/tasks/${part(taskId)}/events`,
      { after },
      signal,
    ),
  steps: (taskId: string, after: number, signal: AbortSignal) =>
    readAnswer<StepPage>(`v1/tasks/${part(taskId)}/steps`, { after }, signal),
  errorGroups: (filter: ErrorGroupQuery, signal: AbortSignal) =>
    readAnswer<ErrorGroupPage>("v1/dlq/groups", { ...filter, limit: pageSize }, signal),
  failedTasks: (group: string, signal: AbortSignal) =>
    readAnswer<Answered<typeof deadLetterSpecs.tasks>>(
      "v1/dlq/tasks",
      { group, limit: 50 },
      signal,
    ),
  redrive: (redriveId: string, signal: AbortSignal) =>
    readAnswer<RedriveFacts>(`v1/dlq/redrives/${part(redriveId)}`, {}, signal),
  redrives: async (signal: AbortSignal) =>
    (await readAnswer<Answered<typeof deadLetterSpecs.redrives>>("v1/dlq/redrives", {}, signal))
      .redrives,

  cancelTask: (taskId: string, act: NewAct) =>
    send<Answered<typeof taskSpecs.cancel>>(`v1/tasks/${part(taskId)}/cancel`, act),
  retryTask: (taskId: string, act: NewAct & { readonly fromStart: boolean }) =>
    send<Answered<typeof taskSpecs.retry>>(
      `v1/tasks/${part(taskId)}/retry${act.fromStart ? "?fromStart=true" : ""}`,
      act,
    ),
  resumeTask: (taskId: string, act: NewAct) =>
    send<Answered<typeof taskSpecs.resume>>(`v1/tasks/${part(taskId)}/resume`, act, {}),
  startRedrive: (selection: FailedSelection & { readonly fromStart: boolean }, act: NewAct) =>
    send<RedriveFacts>("v1/dlq/redrives", act, selection),
  cancelRedrive: (redriveId: string, act: NewAct) =>
    send<RedriveFacts>(`v1/dlq/redrives/${part(redriveId)}/cancel`, act),
  discard: (selection: FailedSelection, act: NewAct) =>
    send<Answered<typeof deadLetterSpecs.discard>>("v1/dlq/discard", act, selection),
};

/** An act with an id of its own. Sending it again with the same one does nothing more. */
export function newAct(): NewAct {
  return { actId: newActId() };
}

/** An error as a sentence, for people. */
export function errorSentence(error: unknown): string {
  const message = messageOf(error);
  const end = /[.!?…]$/.test(message) ? "" : ".";
  return message.slice(0, 1).toUpperCase() + message.slice(1) + end;
}

export function part(id: string): string {
  return encodeURIComponent(id);
}

export function readAnswer<Answer>(
  path: string,
  query: Query,
  signal: AbortSignal,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  const search = given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
  return answered<Answer>(
    () => request(path + search, { headers: { Accept: "application/json", ...headers }, signal }),
    "the server can't be reached",
  );
}

type Sending = {
  readonly method?: "POST" | "PUT" | "DELETE";
  readonly headers?: Readonly<Record<string, string>>;
};

/**
 * Does something at the server. A body that is text is JSON already, with digits that
 * `JSON.stringify` would lose.
 */
export function send<Answer>(
  path: string,
  { actId }: NewAct,
  body?: object | string,
  { method = "POST", headers = {} }: Sending = {},
): Promise<Answer> {
  const init = {
    method,
    headers: {
      Accept: "application/json",
      "Flotilla-Action": actId,
      ...(body !== undefined && { "Content-Type": "application/json" }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
  };
  return answered<Answer>(
    () => request(path, init),
    "the server's answer was lost, so that the act may have been done: try again, which does it once",
  );
}

async function answered<Answer>(call: () => Promise<Response>, lost: string): Promise<Answer> {
  let response: Response;
  let text: string;
  try {
    response = await call();
    text = await response.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new FlotillaError("unavailable", lost, { cause: error, details: { away: true } });
  }
  const value = parsed(text);
  if (response.ok && value !== undefined) return value as Answer;
  const said = (isJsonObject(value) ? value["error"] : undefined) as
    | { code?: ErrorCode; message?: string }
    | undefined;
  if (said?.code !== undefined && said.message !== undefined)
    throw new FlotillaError(said.code, said.message);
  // A proxy in between has answered, and not the server.
  const message = `what answers in place of the server says ${response.status}`;
  throw new FlotillaError("unavailable", message, { details: { away: true } });
}

function parsed(text: string): unknown {
  try {
    return parseExact(text);
  } catch {
    return undefined;
  }
}
