import type { Context, Hono } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import type { TaskContract } from "../../queue/task.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { namesWithWorker } from "../../runtime/workers.ts";
import type { Schedule } from "../../schedules/row.ts";
import type { ScheduleOf } from "../../schedules/schedule.ts";
import { asNumber, asObject, jsonBody } from "../parse.ts";

export type ScheduleRoutes = {
  flotilla: Pick<Flotilla, "schedules" | "pods">;
  /** Tasks whose input is checked before it is stored. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** The longest body that is read. */
  maxBytes: number;
};

/** What `PUT /v1/schedules/:id` takes. The values are checked where schedules are declared. */
const bodyNames = ["name", "input", "pattern", "zone", "everyMs", "missed", "options"];

/** Schedules: what they say, when they come, and whether somebody would run their tasks. */
export function scheduleRoutes(app: Hono, { flotilla, contracts, maxBytes }: ScheduleRoutes): void {
  const { schedules } = flotilla;
  const shown = async (schedule: Schedule) => {
    const names = await namesWithWorker(flotilla);
    return { ...schedule, hasWorker: names.has(schedule.name) };
  };

  app.get("/v1/schedules", async (c) => {
    const query = c.req.query();
    checkOptions("the query", query, ["cursor", "limit"]);
    const { cursor, limit } = query;
    const page = await schedules.list({
      ...(cursor !== undefined && { cursor }),
      ...(limit !== undefined && { limit: asNumber("limit", limit) }),
    });
    const names = await namesWithWorker(flotilla);
    const all = page.schedules.map((each) => ({ ...each, hasWorker: names.has(each.name) }));
    return c.json({ schedules: all, next: page.next });
  });

  app.get("/v1/schedules/:id", async (c) => {
    const schedule = await schedules.get(idOf(c));
    if (!schedule) throw missing(idOf(c));
    const broken = schedule.state === "broken";
    const upcomingMs = broken ? [] : await schedules.upcoming(schedule.scheduleId);
    return c.json({ schedule: await shown(schedule), upcomingMs });
  });

  app.put("/v1/schedules/:id", async (c) => {
    const body = asObject("the body", await jsonBody(c, maxBytes));
    checkOptions("the body", body, bodyNames);
    const { name, ...rest } = body;
    if (typeof name !== "string") {
      throw new FlotillaError("invalid_input", "the body needs `name`, the name of a task");
    }
    const task: TaskContract = { ...contracts?.get(name), name } as TaskContract;
    const given = { ...rest, task } as ScheduleOf<TaskContract>;
    return c.json({ schedule: await shown(await schedules.put(idOf(c), given)) });
  });

  app.delete("/v1/schedules/:id", async (c) => {
    if (!(await schedules.remove(idOf(c)))) throw missing(idOf(c));
    return c.json({ removed: true });
  });

  app.post("/v1/schedules/:id/pause", async (c) =>
    c.json({ schedule: await shown(await schedules.pause(idOf(c))) }),
  );
  app.post("/v1/schedules/:id/resume", async (c) =>
    c.json({ schedule: await shown(await schedules.resume(idOf(c))) }),
  );
  app.post("/v1/schedules/:id/fire", async (c) => c.json(await schedules.fire(idOf(c)), 201));
}

function idOf(c: Context): string {
  return c.req.param("id")!;
}

function missing(scheduleId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no schedule ${scheduleId.slice(0, 80)}`);
}
