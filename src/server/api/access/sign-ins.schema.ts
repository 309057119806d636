import { z } from "zod";
import { roles, verbs } from "../../../protocol/verbs.ts";
import { described, named, next, paging, spec, time } from "../schema.ts";

const signIn = named(
  "SignIn",
  z.object({
    signInId: z.string(),
    keyId: described(z.string().nullable(), "Its key in the store; null for a key of a config."),
    keyName: z.string(),
    role: described(z.enum(roles).nullable(), "What the key had when it was made."),
    tenant: described(z.string().nullable(), "The key's only tenant; null for any."),
    verbs: z.array(z.enum(verbs)).readonly(),
    origin: described(z.string(), "The only address at which it counts: `https://ops.example`."),
    address: described(z.string().nullable(), "Where it was made from."),
    createdAtMs: time(),
    lastUsedAtMs: described(z.int(), "When it was last used, to the minute."),
    expiresAtMs: described(z.int(), "When it ends, unless an hour without use ends it before."),
  }),
  "A browser that has signed in with a key.",
);

const tag = "keys and tokens";

export const signInSpecs = {
  list: spec({
    method: "get",
    path: "/v1/sign-ins",
    operationId: "listSignIns",
    tag,
    verb: "sessions:read",
    or: "fleet:read",
    summary:
      "A page of sign-ins, the newest first: to an administrator all, to others their key's.",
    query: z.strictObject(paging),
    answers: {
      200: named("SignInPage", z.object({ signIns: z.array(signIn).readonly(), next })),
    },
    errors: ["invalid_option"],
  }),
  end: spec({
    method: "delete",
    path: "/v1/sign-ins/{signInId}",
    operationId: "endSignIn",
    tag,
    verb: "sessions:read",
    or: "fleet:read",
    summary:
      "End a sign-in: within a second every server refuses it and ends its sockets and streams.",
    answers: { 200: named("EndedSignIn", z.object({ signIn })) },
    errors: ["not_found", "invalid_option", "conflict"],
  }),
};
