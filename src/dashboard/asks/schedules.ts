import type { scheduleSpecs } from "../../server/api/schedules.schema.ts";
import { type NewAct, type Answered, pageSize, part, readAnswer, send } from "../api.ts";

/** What the pages of schedules ask of the server and do there. */

export type SchedulesShown = Answered<typeof scheduleSpecs.list>;
export type ScheduleFacts = SchedulesShown["schedules"][number];
export type ScheduleWhole = Answered<typeof scheduleSpecs.get>;
export type FiringFacts = Answered<typeof scheduleSpecs.firings>["firings"][number];

const firingsOfPage = 50;
const pathOf = (scheduleId: string) => `v1/schedules/${part(scheduleId)}`;

export const schedulesApi = {
  list: (cursor: string | undefined, signal: AbortSignal) =>
    readAnswer<SchedulesShown>("v1/schedules", { cursor, limit: pageSize }, signal),
  get: (scheduleId: string, signal: AbortSignal) =>
    readAnswer<ScheduleWhole>(pathOf(scheduleId), {}, signal),
  firings: (scheduleId: string, cursor: string | undefined, signal: AbortSignal) =>
    readAnswer<Answered<typeof scheduleSpecs.firings>>(
      `${pathOf(scheduleId)}/firings`,
      { cursor, limit: firingsOfPage },
      signal,
    ),

  fire: (scheduleId: string, act: NewAct) =>
    send<Answered<typeof scheduleSpecs.fire>>(`${pathOf(scheduleId)}/fire`, act),
  pause: (scheduleId: string, act: NewAct) =>
    send<Answered<typeof scheduleSpecs.pause>>(`${pathOf(scheduleId)}/pause`, act),
  resume: (scheduleId: string, act: NewAct) =>
    send<Answered<typeof scheduleSpecs.resume>>(`${pathOf(scheduleId)}/resume`, act),
  remove: (scheduleId: string, act: NewAct) =>
    send<Answered<typeof scheduleSpecs.remove>>(pathOf(scheduleId), act, undefined, {
      method: "DELETE",
    }),
};
