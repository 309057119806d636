import { FlotillaError } from "../../base/errors.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { route, type Route } from "../route.ts";
import { throttleSpecs } from "./throttles.schema.ts";
import { withoutUndefined } from "./tasks.ts";

/** Throttles: read, pin and unpin them. */
export function throttleRoutes({
  flotilla,
}: {
  flotilla: Pick<Flotilla, "throttles" | "pages">;
}): Route[] {
  const { throttles, pages } = flotilla;
  return [
    route(throttleSpecs.list).to(async ({ query }) => {
      return { status: 200, body: await pages.throttles(withoutUndefined(query)) };
    }),
    route(throttleSpecs.get).to(async ({ params: { name }, query }) => {
      const throttle = await throttles.get(name, withoutUndefined(query));
      if (throttle) return { status: 200, body: { throttle } };
      throw new FlotillaError("not_found", `there is no throttle ${name.slice(0, 80)}`);
    }),
    route(throttleSpecs.holders).to(async ({ params: { name }, query }) => {
      return { status: 200, body: await throttles.holders(name, withoutUndefined(query)) };
    }),
    route(throttleSpecs.events).to(async ({ params: { name }, query }) => {
      return { status: 200, body: await throttles.events(name, withoutUndefined(query)) };
    }),
    route(throttleSpecs.pin).to(async ({ params: { name }, body }) => {
      const { limit, ...key } = await body();
      return {
        status: 200,
        body: { throttle: await throttles.pin(name, limit, withoutUndefined(key)) },
      };
    }),
    route(throttleSpecs.unpin).to(async ({ params: { name }, body }) => {
      return {
        status: 200,
        body: { throttle: await throttles.unpin(name, withoutUndefined(await body())) },
      };
    }),
  ];
}
