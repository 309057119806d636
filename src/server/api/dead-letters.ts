import { FlotillaError } from "../../base/errors.ts";
import type { DeadLetters } from "../../dead-letters/dead-letters.ts";
import type { Redrive } from "../../dead-letters/redrive.ts";
import type { FleetPages } from "../../runtime/fleet/pages.ts";
import { type Caller, canSee, heldTenant } from "../auth/caller.ts";
import { route, type Route } from "../route.ts";
import { deadLetterSpecs } from "./dead-letters.schema.ts";
import { withoutUndefined } from "./tasks.ts";

export type DeadLetterRoutes = {
  /** The leader's where the leader is in this process, because it has the groups in memory. */
  deadLetters: () => DeadLetters;
  pages: Pick<FleetPages, "redrives">;
};

/** Failed tasks grouped by their errors, redrives, and discards. `deadLetters` validates selections. */
export function deadLetterRoutes({ deadLetters, pages }: DeadLetterRoutes): Route[] {
  /** A redrive that isn't of the caller's tenant alone answers as a missing one does. */
  const found = async (caller: Caller, redriveId: string): Promise<Redrive> => {
    const redrive = await deadLetters().getRedrive(redriveId);
    if (redrive && canSee(caller, { tenant: redrive.selection.tenant ?? null })) return redrive;
    throw new FlotillaError("not_found", `there is no redrive ${redriveId.slice(0, 80)}`);
  };

  return [
    route(deadLetterSpecs.groups).to(async ({ caller, query }) => {
      return { status: 200, body: await deadLetters().groups(held(caller, query)) };
    }),
    route(deadLetterSpecs.resolve).to(async ({ params: { group } }) => {
      return { status: 200, body: await deadLetters().resolve(group) };
    }),
    route(deadLetterSpecs.ignore).to(async ({ params: { group }, body }) => {
      const options = withoutUndefined(await body());
      return { status: 200, body: await deadLetters().ignore(group, options) };
    }),
    route(deadLetterSpecs.reopen).to(async ({ params: { group } }) => {
      return { status: 200, body: await deadLetters().reopen(group) };
    }),
    route(deadLetterSpecs.tasks).to(async ({ caller, query }) => {
      return { status: 200, body: await deadLetters().list(held(caller, query)) };
    }),
    route(deadLetterSpecs.discard).to(async ({ caller, body }) => {
      return { status: 200, body: await deadLetters().discard(held(caller, await body())) };
    }),
    route(deadLetterSpecs.redrive).to(async ({ caller, body }) => {
      const { maxStep, fromStart, ...selection } = await body();
      const options = withoutUndefined({ maxStep, fromStart });
      // The redrive is only stored now; the leader performs it step by step.
      return { status: 202, body: await deadLetters().redrive(held(caller, selection), options) };
    }),
    route(deadLetterSpecs.redrives).to(async ({ caller, query }) => {
      return { status: 200, body: await pages.redrives(held(caller, query)) };
    }),
    route(deadLetterSpecs.getRedrive).to(async ({ caller, params: { redriveId } }) => {
      return { status: 200, body: await found(caller, redriveId) };
    }),
    route(deadLetterSpecs.cancelRedrive).to(async ({ caller, params: { redriveId } }) => {
      await found(caller, redriveId);
      return { status: 202, body: await deadLetters().cancelRedrive(redriveId) };
    }),
  ];
}

/** Options that are held to the caller's tenant. */
function held<Options extends { tenant?: string | undefined }>(caller: Caller, options: Options) {
  return withoutUndefined({ ...options, tenant: heldTenant(caller, options.tenant) });
}
