import type { Rights } from "../../../keys/keys.ts";
import type { RevokeTokens } from "../../../keys/revocations.ts";
import type { Flotilla } from "../../../runtime/connect.ts";
import { type Caller, may } from "../../auth/caller.ts";
import { route, type Route } from "../../route.ts";
import { keySpecs } from "./keys.schema.ts";
import { withoutUndefined } from "../tasks.ts";

/** Keys in the store, and users' tokens that are refused before they expire. */
export function keyRoutes({ flotilla }: { flotilla: Pick<Flotilla, "keys" | "tokens"> }): Route[] {
  const { keys, tokens } = flotilla;
  return [
    route(keySpecs.list).to(async ({ query }) => {
      return { status: 200, body: await keys.list(withoutUndefined(query)) };
    }),
    route(keySpecs.create).to(async ({ caller, body }) => {
      const options = { ...withoutUndefined(await body()), ...grantOf(caller) };
      return { status: 201, body: await keys.create(options) };
    }),
    route(keySpecs.revoke).to(async ({ params: { keyId } }) => {
      return { status: 200, body: { key: await keys.revoke(keyId) } };
    }),
    route(keySpecs.rotate).to(async ({ caller, params: { keyId }, body }) => {
      const options = { ...withoutUndefined(await body()), ...grantOf(caller) };
      return { status: 201, body: await keys.rotate(keyId, options) };
    }),
    route(keySpecs.revocations).to(async ({ query }) => {
      return { status: 200, body: await tokens.revocations(withoutUndefined(query)) };
    }),
    route(keySpecs.revokeTokens).to(async ({ caller, body }) => {
      const given = await body();
      const tenant = given.tenant ?? (given.user === undefined ? undefined : caller.tenant);
      const options = withoutUndefined({ ...given, tenant, by: makerOf(caller) });
      // Which of them go together is checked where they are stored.
      const revocation = await tokens.revoke(options as RevokeTokens);
      return { status: 201, body: { revocation } };
    }),
  ];
}

/** A caller's key makes none that may do more than itself. */
function grantOf(caller: Caller): { by: string; within: Rights } {
  const { verbs, tenant } = caller;
  const within = {
    verbs,
    payloads: may(caller, "payloads:read"),
    ...(!may(caller, "admin") && { tenant }),
  };
  return { by: makerOf(caller), within };
}

function makerOf({ kind, keyName, keyId }: Caller): string {
  return keyName ?? (keyId === undefined ? kind : `key ${keyId}`);
}
