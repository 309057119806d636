import {
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  jwtVerify,
  type JWTVerifyGetKey,
} from "jose";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import {
  type Role,
  roles,
  usualVerbs,
  type Verb,
  verbs,
  verbsOfRole,
} from "../../protocol/verbs.ts";
import type { TokenConfig } from "../../runtime/server-config.ts";
import { type Caller, isName, nameRule } from "./caller.ts";

export type TokenVerifier = (token: string) => Promise<Caller>;

// Clocks of two machines differ a little, and a token may be used in the second it is issued.
const toleranceSeconds = 5;
const maxTokenChars = 16_384;
const maxSessions = 1_000;
// The last second of a Date. JSON can also hold larger numbers, such as 1e400.
const lastSecond = 8.64e12;

const ofFleet: ReadonlySet<Verb> = new Set(["fleet:read", "fleet:operate", "payloads:read"]);

/** No JWKS arrived, or something else in its place, such as an error page. */
const keysMissing = new Set([
  errors.JOSEError.code,
  errors.JWKSInvalid.code,
  errors.JWKSTimeout.code,
]);

/** Verifies users' tokens. The config decides which algorithms are valid, never the token. */
export function createTokenVerifier(config: TokenConfig, clock: Clock): TokenVerifier {
  const { secret, issuer, audience } = config;
  const byDefault = secret === undefined ? ["RS256", "ES256", "EdDSA"] : ["HS256"];
  const algorithms = [...(config.algorithms ?? byDefault)];
  const key = keyOf(config);
  return async (token) => {
    if (token.length > maxTokenChars) throw refusal("the token is too long");
    const options = {
      algorithms,
      clockTolerance: toleranceSeconds,
      currentDate: new Date(clock.now()),
      requiredClaims: ["exp"],
      ...(issuer !== undefined && { issuer }),
      ...(audience !== undefined && { audience }),
    };
    try {
      const { payload } = await jwtVerify(token, key, options);
      return callerOf(payload, config.claims);
    } catch (error) {
      throw toAuthError(error);
    }
  };
}

function keyOf({ secret, jwks, jwksUrl }: TokenConfig): JWTVerifyGetKey {
  if (secret !== undefined) {
    const bytes = new TextEncoder().encode(secret);
    return () => bytes;
  }
  if (jwks) return createLocalJWKSet(jwks as JSONWebKeySet);
  return createRemoteJWKSet(new URL(jwksUrl!));
}

function callerOf(payload: JWTPayload, claims: TokenConfig["claims"] = {}): Caller {
  const { tenant: tenantClaim = "tenant", user: userClaim = "sub" } = claims;
  const { sessions: sessionsClaim = "sessions" } = claims;
  const sessions = payload[sessionsClaim];
  const role = roleOf(payload, claims.role);
  const isOfTenant = payload[tenantClaim] !== undefined && payload[tenantClaim] !== null;
  if (role === "admin" && isOfTenant)
    throw refusal(
      `the token's claim ${claims.role} is admin, which acts for all tenants: leave out its claim ${tenantClaim}`,
    );
  const tenant = nameOf(tenantClaim, payload[tenantClaim] ?? "default");
  const user = nameOf(userClaim, payload[userClaim]);
  const { jti, iat } = payload;
  return {
    kind: "user",
    tenant,
    ...(role !== undefined && { role }),
    ...(role !== undefined && !isOfTenant && { allTenants: true }),
    user,
    verbs: new Set([...(role ? verbsOfRole[role] : []), ...verbsOf(payload, claims.verbs)]),
    ...(sessions !== undefined && { sessions: new Set(idsOf(sessionsClaim, sessions)) }),
    expiresAtMs: expiryMs(payload.exp!) + toleranceSeconds * 1_000,
    credential: {
      kind: "token",
      tenant,
      user,
      ...(typeof jti === "string" && { jti }),
      ...(iat !== undefined && { issuedAtMs: iat * 1_000 }),
    },
  };
}

function expiryMs(exp: number): number {
  if (exp <= lastSecond) return exp * 1_000;
  throw refusal("the token's claim exp must be the second at which it expires");
}

/** Read only where the config names its claim: many issuers have roles of their own in `role`. */
function roleOf(payload: JWTPayload, claim: string | undefined): Role | undefined {
  const claimed = claim === undefined ? undefined : payload[claim];
  if (claimed === undefined || claimed === null) return undefined;
  const role = roles.find((each) => each === claimed);
  if (role !== undefined) return role;
  throw refusal(`the token's claim ${claim} must be one of ${roles.join(", ")}`);
}

function verbsOf(payload: JWTPayload, claim: string = "verbs"): readonly Verb[] {
  const claimed = payload[claim];
  if (claimed !== undefined) return knownVerbs(claimed);
  // A scope without any of our verbs is about other services, so it limits nothing here. Those have fleets,
  // too: what looks after ours is in a claim for it.
  const scoped = knownVerbs(payload["scope"]).filter((verb) => !ofFleet.has(verb));
  return scoped.length > 0 ? scoped : usualVerbs;
}

/** Ignores words of other services. Only a role makes a token an administrator's. */
function knownVerbs(claimed: unknown): Verb[] {
  const words: unknown[] =
    typeof claimed === "string" ? claimed.split(" ") : Array.isArray(claimed) ? claimed : [];
  return verbs.filter((verb) => verb !== "admin" && words.includes(verb));
}

function nameOf(claim: string, value: unknown): string {
  if (isName(value)) return value;
  throw refusal(`the token's claim ${claim} must be ${nameRule}`);
}

function idsOf(claim: string, value: unknown): string[] {
  if (Array.isArray(value) && value.length <= maxSessions)
    return value.filter((each) => typeof each === "string");
  throw refusal(`the token's claim ${claim} must be a list of at most ${maxSessions} ids`);
}

function toAuthError(error: unknown): unknown {
  if (error instanceof FlotillaError) return error;
  if (error instanceof errors.JWTExpired) return refusal("the token has expired: get a new one");
  if (error instanceof errors.JWTClaimValidationFailed && error.reason === "missing")
    return refusal(
      error.claim === "exp"
        ? "the token has no claim exp: set it to the second at which the token expires"
        : `the token has no claim ${error.claim}, which is required`,
    );
  if (error instanceof errors.JWTClaimValidationFailed)
    return refusal(`the token's claim ${error.claim} isn't accepted here`);
  // Not the caller's fault: `unauthorized` would make it discard a valid token.
  if (!(error instanceof errors.JOSEError) || keysMissing.has(error.code))
    return new FlotillaError("timeout", "cannot fetch the JWKS right now: try again", {
      cause: error,
    });
  return refusal("the token is invalid: its signature, algorithm or format isn't accepted");
}

function refusal(message: string): FlotillaError {
  return new FlotillaError("unauthorized", message);
}
