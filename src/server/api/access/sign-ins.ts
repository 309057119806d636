import type { SignInOwner } from "../../../keys/key.ts";
import type { Flotilla } from "../../../runtime/connect.ts";
import { type Caller, may } from "../../auth/caller.ts";
import { route, type Route } from "../../route.ts";
import { withoutUndefined } from "../tasks.ts";
import { signInSpecs } from "./sign-ins.schema.ts";

/** Browsers that have signed in: to an administrator all of them, to others those of their key. */
export function signInRoutes({ flotilla }: { flotilla: Pick<Flotilla, "signIns"> }): Route[] {
  const { signIns } = flotilla;
  return [
    route(signInSpecs.list).to(async ({ caller, query }) => {
      return {
        status: 200,
        body: await signIns.list({ ...withoutUndefined(query), ...held(caller) }),
      };
    }),
    route(signInSpecs.end).to(async ({ caller, params: { signInId } }) => {
      return { status: 200, body: { signIn: await signIns.end(signInId, held(caller)) } };
    }),
  ];
}

function held(caller: Caller): { owner?: SignInOwner } {
  return may(caller, "admin") ? {} : { owner: ownerOf(caller) };
}

/**
 * What a caller owns. A key of a config is known by its name; one without a name owns only the sign-in that
 * it comes with, because its place in the config may be another key's by now.
 */
function ownerOf({ kind, credential, keyName, keyTenant }: Caller): SignInOwner {
  if (credential?.kind === "key") return { keyId: credential.keyId };
  const bySignIn = credential?.kind === "sign-in" ? credential : undefined;
  const own = bySignIn && { signInId: bySignIn.signInId };
  if (bySignIn?.keyId !== undefined) return { ...own, keyId: bySignIn.keyId };
  if (kind !== "server" || keyName === undefined) return { ...own };
  return { ...own, keyName, ...(keyTenant !== undefined && { tenant: keyTenant }) };
}
