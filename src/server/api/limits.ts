import { pageAfter } from "../../base/page.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { route, type Route } from "../route.ts";
import { limitSpecs } from "./limits.schema.ts";
import { withoutUndefined } from "./tasks.ts";

/** What keeps tasks from being claimed: pauses, and limits of keys and tenants. */
export function limitRoutes({ flotilla }: { flotilla: Flotilla }): Route[] {
  const paused = async () =>
    ({ status: 200, body: { paused: await flotilla.tasks.paused() } }) as const;
  return [
    route(limitSpecs.paused).to(paused),
    route(limitSpecs.pause).to(async ({ body }) => {
      const { name, ...options } = await body();
      await flotilla.tasks.pause(name, withoutUndefined(options));
      return paused();
    }),
    route(limitSpecs.resume).to(async ({ body }) => {
      await flotilla.tasks.resume((await body()).name);
      return paused();
    }),
    route(limitSpecs.limits).to(async ({ query: { scope, cursor } }) => {
      const { limits } = flotilla.tasks;
      const found = scope === undefined ? await limits.list() : [await limits.get(scope)];
      const page = pageAfter(found, (limit) => limit.scope, cursor);
      return { status: 200, body: { limits: page.items, next: page.next } };
    }),
    route(limitSpecs.setLimit).to(async ({ body }) => {
      const { scope, limit } = await body();
      await flotilla.tasks.limits.set(scope, limit);
      return { status: 200, body: await flotilla.tasks.limits.get(scope) };
    }),
    route(limitSpecs.tenants).to(async ({ query: { cursor } }) => {
      const found = await flotilla.tasks.limits.tenants();
      const page = pageAfter(found, ({ tenant }) => tenant, cursor);
      return { status: 200, body: { tenants: page.items, next: page.next } };
    }),
  ];
}
