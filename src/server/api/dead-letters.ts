import { FlotillaError } from "../../base/errors.ts";
import type { DeadLetters } from "../../dead-letters/dead-letters.ts";
import { route, type Route } from "../route.ts";
import { deadLetterSpecs } from "./dead-letters.schema.ts";
import { withoutUndefined } from "./tasks.ts";

export type DeadLetterRoutes = {
  /** The leader's where the leader is in this process, because it has the groups in memory. */
  deadLetters: () => DeadLetters;
};

/** Failed tasks grouped by their errors, redrives, and discards. `deadLetters` validates selections. */
export function deadLetterRoutes({ deadLetters }: DeadLetterRoutes): Route[] {
  return [
    route(deadLetterSpecs.groups).to(async ({ query }) => {
      return { status: 200, body: await deadLetters().groups(withoutUndefined(query)) };
    }),
    route(deadLetterSpecs.tasks).to(async ({ query }) => {
      return { status: 200, body: await deadLetters().list(withoutUndefined(query)) };
    }),
    route(deadLetterSpecs.discard).to(async ({ body }) => {
      return { status: 200, body: await deadLetters().discard(withoutUndefined(await body())) };
    }),
    route(deadLetterSpecs.redrive).to(async ({ body }) => {
      const { maxStep, fromStart, ...selection } = await body();
      const options = withoutUndefined({ maxStep, fromStart });
      // The redrive is only stored now; the leader performs it step by step.
      return {
        status: 202,
        body: await deadLetters().redrive(withoutUndefined(selection), options),
      };
    }),
    route(deadLetterSpecs.redrives).to(async ({ query }) => {
      return { status: 200, body: await deadLetters().redrives(withoutUndefined(query)) };
    }),
    route(deadLetterSpecs.getRedrive).to(async ({ params: { redriveId } }) => {
      const redrive = await deadLetters().getRedrive(redriveId);
      if (redrive) return { status: 200, body: redrive };
      throw new FlotillaError("not_found", `there is no redrive ${redriveId.slice(0, 80)}`);
    }),
    route(deadLetterSpecs.cancelRedrive).to(async ({ params: { redriveId } }) => {
      return { status: 202, body: await deadLetters().cancelRedrive(redriveId) };
    }),
  ];
}
