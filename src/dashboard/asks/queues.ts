import type { limitSpecs } from "../../server/api/limits.schema.ts";
import { type NewAct, type Answered, readAnswer, send, type TaskListPage } from "../api.ts";
import { holdersFilter } from "../facts/queues/rows.ts";

/** What the page of queues asks of the server and does there. */

export type ShownLimit = Answered<typeof limitSpecs.limits>["limits"][number];
export type TenantFacts = Answered<typeof limitSpecs.tenants>["tenants"][number];

// A limit may be of ten thousand. The list of tasks has the rest.
const maxHolders = 20;

export const queuesApi = {
  limits: (signal: AbortSignal) =>
    readAnswer<Answered<typeof limitSpecs.limits>>("v1/limits", {}, signal),
  /** The limit of one scope, whether or not it is in the list. */
  limit: async (scope: string, signal: AbortSignal) => {
    const { limits } = await readAnswer<Answered<typeof limitSpecs.limits>>(
      "v1/limits",
      { scope },
      signal,
    );
    return limits[0];
  },
  tenants: (signal: AbortSignal) =>
    readAnswer<Answered<typeof limitSpecs.tenants>>("v1/tenants", {}, signal),
  /** The tasks that use the slots of a scope. */
  holders: (scope: string, signal: AbortSignal) =>
    readAnswer<TaskListPage>("v1/tasks", { ...holdersFilter(scope), limit: maxHolders }, signal),

  /** Without a name: everything. */
  pause: (pause: { readonly name?: string; readonly reason?: string }, act: NewAct) =>
    send<Answered<typeof limitSpecs.pause>>("v1/pause", act, pause),
  resume: (pause: { readonly name?: string }, act: NewAct) =>
    send<Answered<typeof limitSpecs.resume>>("v1/resume", act, pause),
  setLimit: (limit: { readonly scope: string; readonly limit: number | null }, act: NewAct) =>
    send<ShownLimit>("v1/limits", act, limit, { method: "PUT" }),
};
