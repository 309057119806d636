import type { z } from "zod";
import { FlotillaError } from "../../../base/errors.ts";
import type { Bulk, BulkRequest } from "../../../bulk/bulk.ts";
import type { Flotilla } from "../../../runtime/connect.ts";
import { type Caller, canSee, heldTenant, requireVerb } from "../../auth/caller.ts";
import { route, type Route } from "../../route.ts";
import type { TaskFilter } from "../../../tasks/inspect/filter.ts";
import type { TaskContract } from "../../../tasks/model.ts";
import { checkPayloadFilter, withoutUndefined } from "../tasks.ts";
import { bulkSpecs } from "./bulk.schema.ts";

type BulkRouteParts = {
  flotilla: Pick<Flotilla, "bulk" | "pages">;
  /** Tasks whose input may have fields that no caller is shown. */
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** The longest body: a signal carries a payload. */
  maxBytes: number;
};

/** Acts on all tasks and runs that match a filter. `flotilla.bulk` checks requests. */
export function bulkRoutes({ flotilla, contracts, maxBytes }: BulkRouteParts): Route[] {
  const { bulk, pages } = flotilla;
  /** A bulk that isn't on the caller's tenant alone answers as a missing one does. */
  const found = async (caller: Caller, bulkId: string): Promise<Bulk> => {
    const one = await bulk.get(bulkId);
    if (one && canSee(caller, { tenant: one.filter.tenant ?? null })) return one;
    throw new FlotillaError("not_found", `there is no bulk ${bulkId.slice(0, 80)}`);
  };

  /**
   * A request that is held to the caller's tenant. That tenant alone is no filter: an empty one is refused
   * to every caller.
   */
  const heldRequest = (
    caller: Caller,
    { filter, ...given }: z.output<typeof bulkSpecs.start.body>,
  ): BulkRequest => {
    const { name, payload } = filter;
    if (payload !== undefined) checkPayloadFilter(caller, { name, contracts, payload });
    // What is given for the payload is checked with the rest of the filter.
    const own = withoutUndefined(filter) as TaskFilter;
    const tenant = heldTenant(caller, filter.tenant);
    const isEmpty = Object.keys(own).length === 0;
    const held = isEmpty || tenant === undefined ? own : { ...own, tenant };
    return { ...withoutUndefined(given), filter: held };
  };

  return [
    route(bulkSpecs.preview, { maxBytes }).to(async ({ caller, body }) => {
      return { status: 200, body: await pages.bulkPreview(heldRequest(caller, await body())) };
    }),
    route(bulkSpecs.start, { maxBytes }).to(async ({ caller, body }) => {
      const request = heldRequest(caller, await body());
      if (request.action === "delete") requireVerb(caller, "admin");
      return { status: 202, body: await bulk.start(request) };
    }),
    route(bulkSpecs.list).to(async ({ caller, query }) => {
      const tenant = heldTenant(caller, query.tenant);
      return { status: 200, body: await pages.bulks(withoutUndefined({ ...query, tenant })) };
    }),
    route(bulkSpecs.get).to(async ({ caller, params: { bulkId } }) => {
      return { status: 200, body: await found(caller, bulkId) };
    }),
    route(bulkSpecs.outcomes).to(async ({ caller, params: { bulkId } }) => {
      await found(caller, bulkId);
      return { status: 200, body: { outcomes: [...(await bulk.outcomes(bulkId))] } };
    }),
    route(bulkSpecs.stop).to(async ({ caller, params: { bulkId } }) => {
      const { action } = await found(caller, bulkId);
      if (action === "delete") requireVerb(caller, "admin");
      return { status: 200, body: await bulk.stop(bulkId) };
    }),
  ];
}
