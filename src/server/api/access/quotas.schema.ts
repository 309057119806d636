import { z } from "zod";
import { described, named, next, paging, shortText, spec } from "../schema.ts";

const bound = (description: string) =>
  described(z.int().nullable(), `${description}; null where there is no quota.`);

const tenantQuota = named(
  "TenantQuota",
  z.object({
    tenant: z.string(),
    used: described(
      z
        .object({
          sessions: described(z.int(), "Sessions that exist, archived ones too."),
          turnsAtOnce: described(z.int(), "Turns under way, over all pods."),
          storedBytes: described(z.int(), "Bytes of all entries of its sessions, as JSON."),
        })
        .nullable(),
      "Null where the config has no quota of these, so that they aren't counted.",
    ),
    requestsHere: described(z.int(), "Requests of the last minute to the server that answers."),
    limits: z.object({
      requestsPerMinute: bound("Over all servers"),
      sessions: bound("How many may exist"),
      turnsAtOnce: bound("How many may be under way"),
      storedBytes: bound("How many may be stored"),
    }),
  }),
  "What a tenant uses, and what it may use.",
);

export const quotaSpecs = {
  list: spec({
    method: "get",
    path: "/v1/quotas",
    operationId: "listQuotas",
    tag: "quotas",
    summary: "What tenants use and may use, by name; a caller of one tenant sees its own.",
    verb: "fleet:read",
    ofTenant: true,
    query: z.strictObject({
      tenant: described(shortText(), "Only of this tenant.").optional(),
      ...paging,
    }),
    answers: {
      200: named(
        "TenantQuotas",
        z.object({
          tenants: z.array(tenantQuota),
          servers: described(z.int(), "How many servers divide the quotas among them."),
          next,
        }),
      ),
    },
    errors: ["invalid_input", "invalid_option"],
  }),
};
