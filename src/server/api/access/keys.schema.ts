import { z } from "zod";
import { roles } from "../../../protocol/verbs.ts";
import { described, named, next, paging, shortText, spec, time } from "../schema.ts";

const role = named(
  "Role",
  z.enum(roles),
  "What a key may do: read, also act on what is there, or everything.",
);
const timeOrNull = (description: string) => described(z.int().nullable(), description);

const key = named(
  "Key",
  z.object({
    keyId: z.string(),
    name: z.string(),
    role,
    tenant: described(z.string().nullable(), "The only tenant that it acts for; null for any."),
    payloads: described(z.boolean(), "Whether it may read payloads and results."),
    status: z.enum(["active", "expired", "revoked"]),
    createdAtMs: time(),
    createdBy: described(z.string().nullable(), "Who made it."),
    expiresAtMs: timeOrNull("When it ends by itself; null: never."),
    lastUsedAtMs: timeOrNull("When it was last used, to the minute; null: never."),
    revokedAtMs: timeOrNull("When it was revoked."),
    replacedBy: described(z.string().nullable(), "The key that it was rotated to."),
  }),
);
const text = described(z.string(), "`fl_…`: what callers send. It can't be shown again.");
const revocation = named(
  "Revocation",
  z.union([
    z.object({ jti: z.string(), expiresAtMs: time(), createdBy: z.string().nullable() }),
    z.object({
      user: z.string(),
      tenant: z.string(),
      beforeMs: described(z.int(), "Tokens that were issued up to here are refused."),
      expiresAtMs: time(),
      createdBy: z.string().nullable(),
    }),
  ]),
  "Tokens that are refused though they have not expired: one, or all that a user had.",
);

const yearMs = 366 * 86_400_000;
const refusals = ["invalid_input", "invalid_option", "payload_too_large", "unsupported"] as const;
const tag = "keys and tokens";

export const keySpecs = {
  list: spec({
    method: "get",
    path: "/v1/keys",
    operationId: "listKeys",
    tag,
    verb: "admin",
    summary: "A page of keys, the newest first, without their texts.",
    query: z.strictObject(paging),
    answers: { 200: named("KeyPage", z.object({ keys: z.array(key).readonly(), next })) },
    errors: ["invalid_option"],
  }),
  create: spec({
    method: "post",
    path: "/v1/keys",
    operationId: "createKey",
    tag,
    verb: "admin",
    summary: "Make a key. Its text is in the answer, and nowhere else.",
    body: named(
      "CreateKeyBody",
      z.strictObject({
        name: described(z.string().min(1).max(200), "For lists, logs and the audit."),
        role,
        tenant: described(shortText(), "Default: any tenant. Not for an `admin`.").optional(),
        payloads: described(z.boolean(), "Default false.").optional(),
        expiresAtMs: described(z.int().min(1), "Default: it doesn't expire.").optional(),
      }),
    ),
    answers: { 201: named("CreatedKey", z.object({ key, text })) },
    errors: [...refusals, "overloaded"],
  }),
  revoke: spec({
    method: "delete",
    path: "/v1/keys/{keyId}",
    operationId: "revokeKey",
    tag,
    verb: "admin",
    summary:
      "Revoke a key: within a second every server refuses it and ends its sockets and streams.",
    answers: { 200: named("RevokedKey", z.object({ key })) },
    errors: ["not_found", "invalid_option"],
  }),
  rotate: spec({
    method: "post",
    path: "/v1/keys/{keyId}/rotate",
    operationId: "rotateKey",
    tag,
    verb: "admin",
    summary: "Make a key with the same rights, and let the old one end after the overlap.",
    body: named(
      "RotateKeyBody",
      z.strictObject({
        overlapMs: described(
          z.int().min(0).max(yearMs),
          "How long the old key still works. Default: 24 hours; 0 ends it at once.",
        ).optional(),
      }),
    ),
    bodyOptional: true,
    answers: { 201: named("RotatedKey", z.object({ key, text, replaced: key })) },
    errors: [...refusals, "not_found", "conflict", "overloaded"],
  }),
  revocations: spec({
    method: "get",
    path: "/v1/tokens/revocations",
    operationId: "listRevocations",
    tag,
    verb: "admin",
    summary: "A page of revoked tokens that would still be valid.",
    query: z.strictObject(paging),
    answers: {
      200: named("RevocationPage", z.object({ revocations: z.array(revocation).readonly(), next })),
    },
    errors: ["invalid_option"],
  }),
  revokeTokens: spec({
    method: "post",
    path: "/v1/tokens/revocations",
    operationId: "revokeTokens",
    tag,
    verb: "admin",
    summary: "Refuse one token by its `jti`, or everything that a user was issued before now.",
    body: named(
      "RevokeTokensBody",
      z.strictObject({
        jti: described(
          shortText(),
          "The claim `jti` of a token. Either this or `user`.",
        ).optional(),
        expiresAtMs: described(
          z.int().min(1),
          "With `jti`: when the token expires. Default: in 400 days.",
        ).optional(),
        user: described(shortText(), "A user, all of whose tokens are refused.").optional(),
        tenant: described(
          shortText(),
          "With `user`. Default: the tenant of the request.",
        ).optional(),
      }),
    ),
    answers: { 201: named("RevokedTokens", z.object({ revocation })) },
    errors: [...refusals, "overloaded"],
  }),
};
