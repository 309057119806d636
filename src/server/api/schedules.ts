import { FlotillaError } from "../../base/errors.ts";
import { checkUnredacted } from "../../redaction/redactor.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import type { Schedule } from "../../schedules/rows.ts";
import type { ScheduleOf } from "../../schedules/schedule.ts";
import { route, type Route } from "../route.ts";
import { scheduleSpecs } from "./schedules.schema.ts";
import { withoutUndefined } from "./tasks.ts";
import type { TaskContract } from "../../tasks/model.ts";

export type ScheduleRoutes = {
  flotilla: Pick<Flotilla, "schedules" | "tasks" | "pages">;
  /** Tasks whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** The longest body that is read. */
  maxBytes: number;
};

/** Schedules: store, read, pause, resume and fire them. */
export function scheduleRoutes({ flotilla, contracts, maxBytes }: ScheduleRoutes): Route[] {
  const { schedules } = flotilla;
  const withNoWorker = async (schedule: Schedule) => {
    const noWorker = await flotilla.tasks.noWorker([schedule.name]);
    return { schedule: { ...schedule, noWorker: noWorker.length > 0 } };
  };

  return [
    route(scheduleSpecs.list).to(async ({ query }) => {
      const page = await flotilla.pages.schedules(withoutUndefined(query));
      const noWorker = new Set(
        await flotilla.tasks.noWorker(page.schedules.map(({ name }) => name)),
      );
      const all = page.schedules.map((each) => ({ ...each, noWorker: noWorker.has(each.name) }));
      return { status: 200, body: { schedules: all, next: page.next } };
    }),
    route(scheduleSpecs.get).to(async ({ params: { scheduleId } }) => {
      const schedule = await schedules.get(scheduleId);
      if (!schedule) throw missing(scheduleId);
      const broken = schedule.state === "broken";
      const upcomingMs = broken ? [] : await schedules.upcoming(scheduleId);
      return { status: 200, body: { ...(await withNoWorker(schedule)), upcomingMs } };
    }),
    route(scheduleSpecs.firings).to(async ({ params: { scheduleId }, query }) => {
      return { status: 200, body: await schedules.firings(scheduleId, withoutUndefined(query)) };
    }),
    route(scheduleSpecs.put, { maxBytes }).to(async ({ params: { scheduleId }, body }) => {
      const { name, ...rest } = await body();
      checkUnredacted("input", rest.input);
      const task: TaskContract = { ...contracts?.get(name), name } as TaskContract;
      // `put` checks that there is either a pattern or an interval, and that it is valid.
      const declared = { ...rest, task } as ScheduleOf<TaskContract>;
      return { status: 200, body: await withNoWorker(await schedules.put(scheduleId, declared)) };
    }),
    route(scheduleSpecs.remove).to(async ({ params: { scheduleId } }) => {
      if (!(await schedules.remove(scheduleId))) throw missing(scheduleId);
      return { status: 200, body: { removed: true } };
    }),
    route(scheduleSpecs.pause).to(async ({ params: { scheduleId } }) => {
      return { status: 200, body: await withNoWorker(await schedules.pause(scheduleId)) };
    }),
    route(scheduleSpecs.resume).to(async ({ params: { scheduleId } }) => {
      return { status: 200, body: await withNoWorker(await schedules.resume(scheduleId)) };
    }),
    route(scheduleSpecs.fire).to(async ({ params: { scheduleId } }) => {
      return { status: 201, body: await schedules.fire(scheduleId) };
    }),
  ];
}

function missing(scheduleId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no schedule ${scheduleId.slice(0, 80)}`);
}
